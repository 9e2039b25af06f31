# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""RWKV-6 (arXiv 2404.05892) in float64, as its definition: see oracle.py for the letters."""
import numpy as np

from oracle_parts import heads, linear, sigmoid
from oracle_rwkv7 import ACTIVATIONS, layer_norm, low_rank, shifted

MIXTURES = "rwkvg"


def rwkv6(r, k, v, g):
    """o_t = Σ_{s<t} (r_t e^{g_(s+1) + ... + g_(t-1)} · k_s) v_s. All [T, H, ·]."""
    o = np.zeros_like(v)
    for t in range(len(r)):
        for s in range(t):
            o[t] += np.sum(r[t] * np.exp(g[s + 1:t].sum(0)) * k[s], -1)[:, None] * v[s]
    return o


def mixtures(W, x):
    """The input of each projection. All maps of the mixtures' weights are in one matrix, side by side."""
    low = np.tanh(linear(W, "x_proj.0.linear", shifted(x, W["x_proj.0.mu"])))
    rank = low.shape[-1] // len(MIXTURES)
    for n, bias in enumerate(W["x_bias"]):
        columns = slice(n * rank, (n + 1) * rank)
        yield shifted(x, low[:, columns] @ W["x_proj.2.weight"][:, columns].T + bias)


def layer_rwkv6(W, c, x):
    H = c.get("num_heads", 4)
    xr, xw, xk, xv, xg = mixtures(W, x)
    r, k, v = [heads(linear(W, f"{name}_proj.linear", y), H) for name, y in (("r", xr), ("k", xk), ("v", xv))]
    g = heads(-np.exp(low_rank(W, "w_proj.linear", xw, np.tanh)), H)
    o = rwkv6(r, k, v, g) + np.sum(r * W["bonus"] * k, -1, keepdims=True) * v
    o = layer_norm({"head.weight": 1.0}, "head", o, c["norm_eps"]).reshape(len(x), -1) * W["g_norm.weight"] + W["g_norm.bias"]
    gate = linear(W, "g_proj.linear", xg)
    return linear(W, "o_proj", o * gate * sigmoid(gate))


def channel_mixing(W, c, x):
    key = ACTIVATIONS[c.get("hidden_act", "sqrelu")](linear(W, "key.linear", shifted(x, W["key.mu"])))
    return sigmoid(linear(W, "receptance.linear", shifted(x, W["receptance.mu"]))) * linear(W, "value", key)
