# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: softmax attention in float64 (docs/mixers.md#softmax-attention).

The C++ reference takes each row's exponentials; here the whole matrix of scores is normalised at once, and rotary positions are
products of complex numbers.

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, rounded


def attention(q, k, v, window):
    """q [T, H, D] scaled, k and v [T, Hkv, D] -> [T, H, D]."""
    T, group = len(q), q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    age = np.arange(T)[:, None] - np.arange(T)
    seen = (age >= 0) & (age < (window or T))
    weights = np.exp(np.einsum("thd,shd->hts", q, k)) * seen
    return np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v)


def rotated(x, theta, width):
    """The first `width` numbers of each head, at positions 0, 1, ...: halves are real and imaginary parts."""
    half = width // 2
    angle = np.arange(len(x))[:, None, None] * theta ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:width]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag, x[..., width:]], -1)


def normed(x, kind, weight, eps):
    y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)
    return y * (weight + 1 if kind == "rms_one_plus" else weight)


def sizes(config, hidden):
    H = config["num_heads"]
    return H, config.get("num_kv_heads") or H, config.get("head_dim") or hidden // H


def has_norm(config):
    return config.get("qk_norm", "none") not in ("none", False)


def layer(config, hidden, weights, x):
    H, Hkv, d = sizes(config, hidden)
    linear = lambda n, y: y @ weights[n + ".weight"].T + weights.get(n + ".bias", 0.0)
    q, k, v = [linear(n + "_proj", x).reshape(len(x), h, -1) for n, h in (("q", H), ("k", Hkv), ("v", Hkv))]
    gate = q[..., d:]
    q = q[..., :d]
    if has_norm(config):
        eps = 1e-5 if config["qk_norm"] is True else config.get("norm_eps", 1e-6)
        q, k = [normed(y, config["qk_norm"], weights[n + "_norm.weight"], eps) for n, y in (("q", q), ("k", k))]
    theta = config.get("rope_theta", 10000.0)
    if theta is not None:
        width = int(d * config.get("partial_rotary_factor", 1.0))
        q, k = rotated(q, theta, width), rotated(k, theta, width)
    o = attention(q * (config.get("softmax_scale") or d**-0.5), k, v, config.get("window_size"))
    if config.get("output_gate"):
        o = o / (1 + np.exp(-gate))
    return linear("o_proj", o.reshape(len(x), -1))


def tensors_of(config, hidden):
    H, Hkv, d = sizes(config, hidden)
    scale = 2.0 / np.sqrt(hidden)
    t = {"q_proj.weight": (H * d * (2 if config.get("output_gate") else 1), hidden),
         "k_proj.weight": (Hkv * d, hidden), "v_proj.weight": (Hkv * d, hidden), "o_proj.weight": (hidden, H * d)}
    for name in (["q", "k", "v"] if config.get("qkv_bias") else []) + (["o"] if config.get("output_bias") else []):
        t[name + "_proj.bias"] = t[name + "_proj.weight"][:1]
    specs = {n: {"shape": list(s), "low": -scale, "high": scale} for n, s in t.items()}
    if has_norm(config):
        low = -0.5 if config["qk_norm"] == "rms_one_plus" else 0.5
        specs.update({n + "_norm.weight": {"shape": [d], "low": low, "high": low + 1} for n in "qk"})
    return specs


def core_entry(name, tokens, H, Hkv, d, window):
    q, k, v = [generated(n, (tokens, h, d)) for n, h in (("q", H), ("k", Hkv), ("v", Hkv))]
    return {"name": name, "tokens": tokens, "parameters": {"heads": H, "kv_heads": Hkv, "head_dim": d, "window": window},
            "outputs": rounded(attention(q, k, v, window).reshape(tokens, -1))}


def layer_entry(name, tokens=35, hidden=24, **config):
    return vectors.layer_entry(name, layer, tensors_of, tokens, hidden, config)


def main():
    file = {
        "core": [core_entry("all", 35, 2, 2, 12, 0), core_entry("grouped", 35, 4, 2, 16, 0), core_entry("window", 50, 2, 1, 20, 17)],
        "layers": [
            layer_entry("fla", num_heads=2),
            layer_entry("fla_norm_bias_window", num_heads=2, qk_norm=True, qkv_bias=True, window_size=9, rope_theta=500.0),
            layer_entry("llama", num_heads=4, num_kv_heads=2, head_dim=8, rope_theta=100.0),
            layer_entry("no_rope_scale_biases", num_heads=3, num_kv_heads=1, rope_theta=None, softmax_scale=0.4, qkv_bias=True,
                        output_bias=True),
            layer_entry("norm", num_heads=2, head_dim=18, qk_norm="rms", norm_eps=1e-3),
            layer_entry("qwen3_next", num_heads=4, num_kv_heads=1, head_dim=20, output_gate=True, qk_norm="rms_one_plus",
                        partial_rotary_factor=0.2),
            layer_entry("gate_without_norm", num_heads=2, head_dim=16, output_gate=True, window_size=20),
        ],
    }
    vectors.write(__file__, file)


main()
