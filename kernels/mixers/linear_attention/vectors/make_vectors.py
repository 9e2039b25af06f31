# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: linear attention in float64 from its definition (docs/mixers.md#linear-attention).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, padded_heads, rounded


def attention(q, k, v, normalised):
    """q [T, H, R] scaled features, k [T, Hkv, R], v [T, Hkv, E] -> [T, H, E]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.tril(np.einsum("thd,shd->hts", q, k))
    out = np.einsum("hts,she->the", scores, v)
    return out / (scores.sum(-1).T[..., None] + 1e-10) if normalised else out


def features(config, x, weights, name):
    kind = config.get("feature_map", "elementwise_product")
    linear = lambda layer: x @ weights[f"{name}.{layer}.weight"].T + weights.get(f"{name}.{layer}.bias", 0.0)
    if kind == "elementwise_product":
        return linear("layer1") * linear("layer2")
    if kind == "elu":
        return np.where(x > 0, x + 1, np.exp(x))
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "identity":
        return x
    if kind == "t2r":
        return np.maximum(linear("layer"), 0)
    if kind == "hedgehog":
        y = np.exp(np.concatenate([2 * linear("layer"), -2 * linear("layer")], -1))
        return y / y.sum(-1, keepdims=True)
    if kind == "dpfp":
        u = np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], -1)
        return np.concatenate([u * np.roll(u, j, -1) for j in range(1, 5)], -1)
    x = x * config.get("feature_map_input_scale", x.shape[-1] ** -0.25)
    if kind == "random_relu":
        return np.maximum(linear("projection"), 0) + config.get("feature_map_offset", 1e-3)
    if kind == "random_exp":
        return np.exp(linear("projection") - (x * x).sum(-1, keepdims=True) / 2) / np.sqrt(config["num_random_features"])
    raise ValueError(kind)


def layer(config, hidden, weights, x):
    H = config["num_heads"]
    Hkv = config.get("num_kv_heads") or H
    heads = lambda n, h: (x @ weights[n + ".weight"].T).reshape(len(x), h, -1)
    q, k, v = heads("q_proj", H), heads("k_proj", Hkv), heads("v_proj", Hkv)
    q = features(config, q, weights, "feature_map_q")
    k = features(config, k, weights, "feature_map_q" if config.get("tie_feature_map_qk") else "feature_map_k")
    q = q / (q.sum(-1, keepdims=True) + 1e-4) if config.get("norm_q") else q
    k = k / (k.sum(-1, keepdims=True) + 1e-4) if config.get("norm_k") else k
    o = attention(q / np.sqrt(q.shape[-1]), k, v, config.get("norm_feature_map", False))
    o = o / np.sqrt(np.mean(o * o, -1, keepdims=True) + config.get("norm_eps", 1e-6))
    o = o * weights.get("norm.weight", 1.0)
    return o.reshape(len(x), -1) @ weights["o_proj.weight"].T


def tensors_of(config, hidden):
    H = config["num_heads"]
    Hkv = config.get("num_kv_heads") or H
    d = int(hidden * config.get("expand_k", 1)) // H
    e = int(hidden * config.get("expand_v", 1)) // H
    kind, scale = config.get("feature_map", "elementwise_product"), 2.0 / np.sqrt(hidden)
    t = {"q_proj.weight": (H * d, hidden), "k_proj.weight": (Hkv * d, hidden),
         "v_proj.weight": (Hkv * e, hidden), "o_proj.weight": (hidden, H * e)}
    for side in ["q"] if config.get("tie_feature_map_qk") else ["q", "k"]:
        for name in {"elementwise_product": ["layer1", "layer2"], "hedgehog": ["layer"], "t2r": ["layer"]}.get(kind, []):
            t[f"feature_map_{side}.{name}.weight"] = (d, d)
            if kind != "t2r":
                t[f"feature_map_{side}.{name}.bias"] = (d,)
    specs = {n: {"shape": list(s), "low": -scale, "high": scale} for n, s in t.items()}
    for side in ["q"] if config.get("tie_feature_map_qk") else ["q", "k"]:
        if "num_random_features" in config:
            specs[f"feature_map_{side}.projection.weight"] = {"shape": [config["num_random_features"], d], "low": -1.7, "high": 1.7}
            if config.get("feature_map_bias"):
                specs[f"feature_map_{side}.projection.bias"] = {"shape": [config["num_random_features"]], "low": -0.5, "high": 0.5}
    if config.get("elementwise_affine", True):
        specs["norm.weight"] = {"shape": [e], "low": 0.5, "high": 1.5}
    return specs


def core_entry(name, tokens, normalised, H, Hkv, R, E):
    low = 0.0 if normalised else -1.0  # the normaliser wants features that are not negative
    q = generated("q", (tokens, H, R), low)
    k = generated("k", (tokens, Hkv, R), low)
    v = generated("v", (tokens, Hkv, E))
    return {"name": name, "tokens": tokens,
            "parameters": {"heads": H, "kv_heads": Hkv, "features": R, "value_dim": E, "normalised": normalised},
            "outputs": rounded(padded_heads(attention(q, k, v, normalised)))}


def layer_entry(name, tokens=35, hidden=24, **config):
    return vectors.layer_entry(name, layer, tensors_of, tokens, hidden, config)


def main():
    file = {
        "core": [core_entry("signed", 35, False, 2, 2, 12, 16), core_entry("normalised_grouped", 35, True, 4, 2, 20, 16)],
        "layers": [
            layer_entry("elementwise_product", num_heads=2),
            layer_entry("tied", num_heads=2, feature_map="elementwise_product", tie_feature_map_qk=True),
            layer_entry("elu_normalised_grouped", num_heads=4, num_kv_heads=2, feature_map="elu", norm_feature_map=True),
            layer_entry("hedgehog", num_heads=2, feature_map="hedgehog", norm_feature_map=True),
            layer_entry("t2r_norms", num_heads=2, feature_map="t2r", norm_q=True, norm_k=True),
            layer_entry("dpfp", num_heads=2, feature_map="dpfp"),
            layer_entry("relu_wide", num_heads=3, feature_map="relu", expand_k=0.5, expand_v=2, elementwise_affine=False),
            layer_entry("random_relu", num_heads=2, feature_map="random_relu", num_random_features=20, feature_map_bias=True,
                        norm_feature_map=True),
            layer_entry("random_exp_tied", num_heads=4, num_kv_heads=2, feature_map="random_exp", num_random_features=40,
                        tie_feature_map_qk=True, norm_feature_map=True),
            layer_entry("random_exp_scaled", num_heads=2, feature_map="random_exp", num_random_features=7, feature_map_bias=True,
                        feature_map_input_scale=0.8, norm_k=True),
            layer_entry("identity", num_heads=2, feature_map="identity", norm_eps=1e-5),
        ],
    }
    vectors.write(__file__, file)


main()
