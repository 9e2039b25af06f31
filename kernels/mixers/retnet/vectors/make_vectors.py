# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: retention in float64, token by token (README.md).

The C++ reference sums over pairs of tokens and the C++ recurrence works in chunks; this is the streaming way, and its rotation
is a product of complex numbers.

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, padded_heads, rounded


def retention(q, k, v):
    """q [T, H, D] scaled and rotated, k [T, Hkv, D] rotated, v [T, Hkv, E] -> [T, H, E]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    gamma = 1 - 2.0 ** (-5 - np.arange(q.shape[1]))
    S, out = np.zeros((q.shape[1], q.shape[2], v.shape[2])), []
    for q_t, k_t, v_t in zip(q, k, v):
        S = gamma[:, None, None] * S + k_t[:, :, None] * v_t[:, None]
        out.append(np.einsum("hd,hde->he", q_t, S))
    return np.array(out)


def rotated(x):
    """x [T, H, D] at positions 0, 1, ...: halves are real and imaginary parts."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None, None] * 10000.0 ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


def silu(x):
    return x / (1 + np.exp(-x))


def convolution(x, w, b):
    W = w.shape[-1]
    padded = np.concatenate([np.zeros((W - 1, x.shape[1])), x])
    return silu(b + sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(W)))


def layer(config, hidden, weights, x):
    H = config["num_heads"]
    Hkv = config.get("num_kv_heads") or H
    linear = lambda n, y: y @ weights[n + ".weight"].T
    heads = lambda y, h: y.reshape(len(x), h, -1)
    qkv = [linear(n + "_proj", x) for n in "qkv"]
    if config.get("use_short_conv"):
        qkv = [convolution(y, weights[n + "_conv1d.weight"], weights.get(n + "_conv1d.bias", 0.0)) for n, y in zip("qkv", qkv)]
    q, k, v = heads(qkv[0], H), heads(qkv[1], Hkv), heads(qkv[2], Hkv)
    f = {None: lambda y: y, "relu": lambda y: np.maximum(y, 0), "silu": silu}[config.get("feature_map")]
    o = retention(rotated(f(q)) / np.sqrt(q.shape[-1]), rotated(f(k)), v)
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
    d = int(hidden * config.get("expand_k", 1)) // H
    e = int(hidden * config.get("expand_v", 2)) // H
    scale = 2.0 / np.sqrt(hidden)
    channels = {"q": H * d, "k": Hkv * d, "v": Hkv * e}
    t = {f"{n}_proj.weight": (c, hidden) for n, c in channels.items()}
    t["o_proj.weight"] = (hidden, H * e)
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


def core_entry(name, tokens, H, Hkv, D, E):
    q, k, v = generated("q", (tokens, H, D)), generated("k", (tokens, Hkv, D)), generated("v", (tokens, Hkv, E))
    return {"name": name, "tokens": tokens, "parameters": {"heads": H, "kv_heads": Hkv, "key_dim": D, "value_dim": E},
            "outputs": rounded(padded_heads(retention(q, k, v)))}


def layer_entry(name, tokens=35, hidden=24, **config):
    return vectors.layer_entry(name, layer, tensors_of, tokens, hidden, config)


def main():
    file = {
        "core": [core_entry("plain", 35, 2, 2, 12, 16), core_entry("grouped", 35, 4, 2, 20, 16)],
        "layers": [
            layer_entry("plain", num_heads=2),
            layer_entry("grouped_unfused", num_heads=4, num_kv_heads=2, fuse_norm=False),
            layer_entry("convolution_bias", num_heads=2, num_kv_heads=1, use_short_conv=True, conv_size=3, conv_bias=True),
            layer_entry("no_gate", num_heads=3, use_output_gate=False, expand_v=1, norm_eps=1e-5),
            layer_entry("feature_map", num_heads=2, feature_map="relu", expand_k=0.5, elementwise_affine=False),
        ],
    }
    vectors.write(__file__, file)


main()
