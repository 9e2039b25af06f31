# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: gated linear attention in float64 from its definition (docs/mixers.md#gla).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, padded_heads, rounded


def attention(q, k, v, g):
    """q [T, H, D] scaled, k and log decay g [T, Hkv, D], v [T, Hkv, E] -> [T, H, E]."""
    group = q.shape[1] // k.shape[1]
    k, v, g = [np.repeat(y, group, 1) for y in (k, v, g)]
    B = np.cumsum(g, 0)
    # [T, S, H, D]; the masked half may overflow, so it is masked before the exponential.
    causal = np.tril(np.ones((len(q), len(q))))[:, :, None, None]
    decay = np.exp((B[:, None] - B[None]) * causal) * causal
    return np.einsum("thd,tshd,shd,she->the", q, decay, k, v, optimize=True)


def silu(x):
    return x / (1 + np.exp(-x))


def convolution(x, w, b):
    W = w.shape[-1]
    padded = np.concatenate([np.zeros((W - 1, x.shape[1])), x])
    return silu(b + sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(W)))


def layer(config, hidden, weights, x):
    H = config["num_heads"]
    Hkv = config.get("num_kv_heads") or H
    linear = lambda n, y: y @ weights[n + ".weight"].T + weights.get(n + ".bias", 0.0)
    heads = lambda y, h: y.reshape(len(x), h, -1)
    qkv = [linear(n + "_proj", x) for n in "qkv"]
    if config.get("use_short_conv"):
        qkv = [convolution(y, weights[n + "_conv1d.weight"], weights.get(n + "_conv1d.bias", 0.0)) for n, y in zip("qkv", qkv)]
    q, k, v = heads(qkv[0], H), heads(qkv[1], Hkv), heads(qkv[2], Hkv)
    f = {None: lambda y: y, "relu": lambda y: np.maximum(y, 0), "silu": silu}[config.get("feature_map")]
    logits = linear("gk_proj.1", linear("gk_proj.0", x))
    g = heads(-np.logaddexp(0, -logits), Hkv) / config.get("gate_logit_normalizer", 16)
    if config.get("clamp_min") is not None:
        g = np.maximum(g, config["clamp_min"])
    o = attention(f(q) / np.sqrt(q.shape[-1]), f(k), v, g)
    o = o / np.sqrt(np.mean(o * o, -1, keepdims=True) + config.get("norm_eps", 1e-6)) * weights.get(norm_name(config) + ".weight", 1.0)
    if config.get("use_output_gate", True):
        o = o * silu(heads(linear("g_proj", x), H))
    return linear("o_proj", o.reshape(len(x), -1))


def norm_name(config):
    fused = config.get("fuse_norm", True) and config.get("use_output_gate", True)
    return "g_norm_swish_gate" if fused else "g_norm"


def tensors_of(config, hidden):
    H = config["num_heads"]
    Hkv = config.get("num_kv_heads") or H
    d = int(hidden * config.get("expand_k", 0.5)) // H
    e = int(hidden * config.get("expand_v", 1)) // H
    rank, scale = 16, 2.0 / np.sqrt(hidden)
    channels = {"q": H * d, "k": Hkv * d, "v": Hkv * e}
    t = {f"{n}_proj.weight": (c, hidden) for n, c in channels.items()}
    t.update({"o_proj.weight": (hidden, H * e), "gk_proj.0.weight": (rank, hidden), "gk_proj.1.weight": (Hkv * d, rank),
              "gk_proj.1.bias": (Hkv * d,)})
    if config.get("use_output_gate", True):
        t["g_proj.weight"] = (H * e, hidden)
    specs = {n: {"shape": list(s), "low": -scale, "high": scale} for n, s in t.items()}
    if config.get("use_short_conv"):
        for n, c in channels.items():
            specs[n + "_conv1d.weight"] = {"shape": [c, 1, config.get("conv_size", 4)], "low": -0.7, "high": 0.7}
            if config.get("conv_bias"):
                specs[n + "_conv1d.bias"] = {"shape": [c], "low": -0.2, "high": 0.2}
    if config.get("elementwise_affine", True):
        specs[norm_name(config) + ".weight"] = {"shape": [e], "low": 0.5, "high": 1.5}
    return specs


def core_entry(name, tokens, H, Hkv, D, E, low):
    q, k = generated("q", (tokens, H, D)), generated("k", (tokens, Hkv, D))
    v, g = generated("v", (tokens, Hkv, E)), generated("log_decay", (tokens, Hkv, D), low, 0.0)
    return {"name": name, "tokens": tokens,
            "parameters": {"heads": H, "kv_heads": Hkv, "key_dim": D, "value_dim": E, "lowest": low},
            "outputs": rounded(padded_heads(attention(q, k, v, g)))}


def layer_entry(name, tokens=35, hidden=24, **config):
    return vectors.layer_entry(name, layer, tensors_of, tokens, hidden, config)


def main():
    file = {
        "core": [core_entry("slow_decay", 35, 2, 2, 12, 16, -0.1), core_entry("fast_decay_grouped", 35, 4, 2, 20, 16, -3.0)],
        "layers": [
            layer_entry("plain", num_heads=2),
            layer_entry("grouped_unfused", num_heads=4, num_kv_heads=2, expand_k=1, fuse_norm=False),
            layer_entry("convolution", num_heads=2, use_short_conv=True, expand_k=1),
            layer_entry("convolution_bias", num_heads=2, num_kv_heads=1, use_short_conv=True, conv_size=3, conv_bias=True),
            layer_entry("no_gate_clamped", num_heads=3, use_output_gate=False, clamp_min=-0.03, gate_logit_normalizer=4, norm_eps=1e-5),
            layer_entry("feature_map", num_heads=2, feature_map="silu", expand_v=2, elementwise_affine=False),
        ],
    }
    vectors.write(__file__, file)


main()
