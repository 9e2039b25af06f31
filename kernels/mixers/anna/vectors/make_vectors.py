# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: ANNA in float64 from how often pairs of tokens collide (docs/mixers.md#anna).

    python3 make_vectors.py        needs NumPy only

No projection of a layer's vectors may lie so close to a tie that rounding to fp32 decides about the hash: the script stops then."""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, padded_heads, rounded

SMALLEST_MARGIN = 3e-6


def attention(q, k, v, include_self):
    """Buckets q, k [T, H, tables], values v [T, H, E] -> [T, H, E]."""
    seen = np.tril(np.ones((len(q), len(q))), 0 if include_self else -1)
    collisions = (q[:, None] == k[None]).sum(-1) * seen[:, :, None]
    count = collisions.sum(1)[..., None]
    return np.einsum("tsh,she->the", collisions, v) / np.where(count > 0, count, 1)


def margin_of(distance):
    assert distance.min() > SMALLEST_MARGIN, f"a hash is {distance.min()} from a tie: choose other weights"


def simhash(P, x):
    dots = np.einsum("hazd,thd->thaz", P, x)
    margin_of(np.abs(dots))
    return (dots >= 0) @ (1 << np.arange(P.shape[2]))


def cross_polytope(P, x):
    y = np.einsum("hazid,thd->thazi", P, x)
    size = np.sort(np.abs(y), -1)
    margin_of(size[..., -1] - size[..., -2])
    index = np.abs(y).argmax(-1)
    negative = np.take_along_axis(y, index[..., None], -1)[..., 0] < 0
    d = x.shape[-1]
    return (index + d * negative) @ ((2 * d) ** np.arange(P.shape[2]))


def layer(config, hidden, weights, x):
    heads = lambda n: (x @ weights[n + "_proj.weight"].T).reshape(len(x), config["num_heads"], -1)
    q, k, v = heads("q"), heads("k"), heads("v")
    unit = lambda y: y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6)
    family = cross_polytope if config.get("hash_family") == "cross_polytope" else simhash
    buckets = [family(weights["hash_proj"], unit(y)) for y in (q, k)]
    o = attention(*buckets, v, config.get("anna_include_self", True))
    o = o / np.sqrt(np.mean(o * o, -1, keepdims=True) + config.get("norm_eps", 1e-6)) * weights["o_norm.weight"]
    return o.reshape(len(x), -1) @ weights["o_proj.weight"].T


def tensors_of(config, hidden):
    H = config["num_heads"]
    d = config.get("head_dim", hidden // H)
    e = int(d * config.get("expand_v", 1))
    P = [H, config["num_hash_tables"], config["num_hashes"], d] + [d] * (config.get("hash_family") == "cross_polytope")
    scale = 2.0 / np.sqrt(hidden)
    shapes = {"q_proj.weight": [H * d, hidden], "k_proj.weight": [H * d, hidden], "v_proj.weight": [H * e, hidden],
              "o_proj.weight": [hidden, H * e]}
    specs = {n: {"shape": s, "low": -scale, "high": scale} for n, s in shapes.items()}
    specs["hash_proj"] = {"shape": P, "low": -1.0, "high": 1.0}
    specs["o_norm.weight"] = {"shape": [e], "low": 0.5, "high": 1.5}
    return specs


def core_entry(name, tokens, H, tables, buckets, E, include_self):
    q, k = [np.floor(generated(n, (tokens, H, tables), 0.0, buckets)) for n in ("q_buckets", "k_buckets")]
    v = generated("v", (tokens, H, E))
    return {"name": name, "tokens": tokens,
            "parameters": {"heads": H, "tables": tables, "buckets": buckets, "value_dim": E, "include_self": include_self},
            "outputs": rounded(padded_heads(attention(q, k, v, include_self)))}


def layer_entry(name, tokens=35, hidden=24, **config):
    return vectors.layer_entry(name, layer, tensors_of, tokens, hidden, config)


def main():
    file = {
        "core": [core_entry("inclusive", 35, 2, 4, 8, 20, True), core_entry("strict", 35, 1, 3, 8, 16, False)],
        "layers": [
            layer_entry("simhash", num_heads=2, num_hash_tables=8, num_hashes=4),
            layer_entry("simhash_strict", num_heads=3, num_hash_tables=5, num_hashes=3, anna_include_self=False, hash_buckets=8),
            layer_entry("simhash_wide", num_heads=1, head_dim=256, expand_v=0.25, num_hash_tables=2, num_hashes=9, norm_eps=1e-5),
            layer_entry("simhash_one_table", num_heads=2, head_dim=64, num_hash_tables=1, num_hashes=2),
            layer_entry("cross_polytope", num_heads=2, head_dim=16, num_hash_tables=3, num_hashes=1, hash_family="cross_polytope"),
            layer_entry("cross_polytope_strict", num_heads=2, head_dim=5, expand_v=4, num_hash_tables=4, num_hashes=2,
                        hash_family="cross_polytope", hash_buckets=100, anna_include_self=False),
            layer_entry("cross_polytope_wide", num_heads=1, head_dim=130, expand_v=0.125, num_hash_tables=2, num_hashes=1, tokens=20,
                        hash_family="cross_polytope"),
        ],
    }
    vectors.write(__file__, file)


main()
