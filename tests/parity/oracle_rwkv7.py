# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""RWKV-7 (arXiv 2503.14456) in float64, as its definition: see oracle.py for the letters."""
import numpy as np

from oracle_parts import heads, linear, sigmoid


def layer_norm(W, name, x, eps):
    """Without a bias where the file has none."""
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * W[name + ".weight"] + W.get(name + ".bias", 0.0)


def shifted(x, mix):
    """Each token mixed with the one before; zeros before the first."""
    before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
    return x + (before - x) * mix


def rwkv7(r, k, v, a, b, g):
    """o_t = Σ_{s≤t} (r_t A_t ... A_{s+1} · k_s) v_s with A_s = diag(e^{g_s}) + b_sᵀ a_s. All [T, H, ·]."""
    o = np.zeros_like(v)
    for t in range(len(r)):
        row = r[t]  # [H, D]: r_t A_t ... A_{s+1}
        for s in range(t, -1, -1):
            o[t] += np.sum(row * k[s], -1)[:, None] * v[s]
            row = np.exp(g[s]) * row + np.sum(row * b[s], -1)[:, None] * a[s]
    return o


def low_rank(W, name, x, f=lambda y: y):
    return linear(W, name + ".lora.2", f(linear(W, name + ".lora.0", x)))


def head_count(c):
    D = c.get("head_dim", 64)
    return c["num_heads"] if D is None else c["hidden_size"] // D


def mixtures(W):
    """r, w, k, v, a, g: one tensor in files of fla before March 2025."""
    return W["x_x"] if "x_x" in W else [W["x_" + name].reshape(-1) for name in "rwkvag"]


def layer_rwkv7(W, c, x):
    H = head_count(c)
    xr, xw, xk, xv, xa, xg = [shifted(x, mix) for mix in mixtures(W)]
    r, k, v = linear(W, "r_proj", xr), linear(W, "k_proj", xk), linear(W, "v_proj", xv)
    handed_on = c.get("handed_on", {})
    if "values" in handed_on:  # not of the model's first layer of this kind
        v = v + (handed_on["values"] - v) * sigmoid(low_rank(W, "v_lora", xv))
    handed_on.setdefault("values", v)
    g = -np.exp(-0.5) * sigmoid(low_rank(W, "w_lora", xw, np.tanh))
    rate = sigmoid(low_rank(W, "a_lora", xa))
    removed = heads(k * W["k_k"], H)
    length = np.sum(removed**2, -1, keepdims=True)
    removed = removed / (np.sqrt(length + 1e-6) if c.get("fuse_norm", True) else np.maximum(np.sqrt(length), 1e-12))
    k = k * (1 + (rate - 1) * W["k_a"])
    r, k, v, g, rate = [heads(y, H) for y in (r, k, v, g, rate)]
    o = rwkv7(r, k, v, -removed, removed * rate, g)
    ones = {"head.weight": 1.0}
    o = layer_norm(ones, "head", o, c["norm_eps"] * r.shape[-1]).reshape(len(x), -1) * W["g_norm.weight"] + W["g_norm.bias"]
    o = o + (np.sum(r * k * W["r_k"], -1, keepdims=True) * v).reshape(len(x), -1)
    return linear(W, "o_proj", o * low_rank(W, "g_lora", xg, sigmoid))


ACTIVATIONS = {"sqrelu": lambda y: np.maximum(y, 0) ** 2, "relu": lambda y: np.maximum(y, 0), "swish": lambda y: y * sigmoid(y)}


def channel_mixing(W, c, x):
    return linear(W, "value", ACTIVATIONS[c.get("hidden_act", "sqrelu")](linear(W, "key", shifted(x, W["x_k"]))))
