# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What DeltaNet's and Gated DeltaNet's make_vectors.py share: the delta rule in float64 in its quadratic form, and the parts of
a layer around it (docs/mixers.md#deltanet, #gated-deltanet). NumPy only."""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from vectors import generated, padded_heads, rounded


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def heads(x, count):
    return x.reshape(len(x), count, -1)


def l2_norm(x):
    return x / np.sqrt(np.sum(x * x, -1, keepdims=True) + 1e-6)


def one_head(q, k, v, beta, g):
    """tril(QKᵀ) (I + stril(diag(β) KKᵀ))⁻¹ ∘ decays, diag(β) V: the decays of a chain of transitions multiply, whatever the chain."""
    T = len(q)
    c = np.cumsum(g)
    causal = np.tril(np.ones((T, T)))
    decays = np.exp((c[:, None] - c[None]) * causal) * causal
    solve = np.linalg.inv(np.eye(T) + np.tril(beta[:, None] * (k @ k.T), -1))
    return (np.tril(q @ k.T) @ solve * decays) @ (beta[:, None] * v)


def delta_rule(q, k, v, beta, g):
    """q scaled, k [T, Hk, D], v [T, Hv, E], beta and g [T, Hv] -> [T, Hv, E]."""
    group = v.shape[1] // q.shape[1]
    q, k = np.repeat(q, group, 1), np.repeat(k, group, 1)
    return np.stack([one_head(q[:, h], k[:, h], v[:, h], beta[:, h], g[:, h]) for h in range(v.shape[1])], 1)


def convolution(x, w, b=0.0):
    window = w.shape[-1]
    padded = np.concatenate([np.zeros((window - 1, x.shape[1])), x])
    return b + sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(window))


def linear(weights, name, x):
    return x @ weights[name + ".weight"].T


def convolved(config, weights, x, name):
    """name's projection, through its convolution if there is one; not activated."""
    y = linear(weights, name + "_proj", x)
    if not config.get("use_short_conv", True):
        return y
    return convolution(y, weights[name + "_conv1d.weight"], weights.get(name + "_conv1d.bias", 0.0))


def norm_gate(config, o, weight, gate):
    o = o / np.sqrt(np.mean(o * o, -1, keepdims=True) + config.get("norm_eps", 1e-6)) * weight
    return o if gate is None else o * silu(gate)


def projection_specs(hidden, channels, config):
    """Tensors of fla's q, k, v ("q": channels, ...) with their convolutions, in bounds that keep numbers of order one."""
    scale = 2.0 / np.sqrt(hidden)
    specs = {f"{n}_proj.weight": {"shape": [c, hidden], "low": -scale, "high": scale} for n, c in channels.items()}
    if config.get("use_short_conv", True):
        for n in "qkv":
            specs[n + "_conv1d.weight"] = {"shape": [channels[n], 1, config.get("conv_size", 4)], "low": -0.7, "high": 0.7}
            if config.get("conv_bias"):
                specs[n + "_conv1d.bias"] = {"shape": [channels[n]], "low": -0.2, "high": 0.2}
    return specs


def core_entry(name, tokens, Hk, Hv, D, E, beta=1.0, lowest=0.0):
    bound = float(np.sqrt(3.0 / D))  # as core_subject.h draws keys
    q, k, v = generated("q", (tokens, Hk, D)), generated("k", (tokens, Hk, D), -bound, bound), generated("v", (tokens, Hv, E))
    g = generated("log_decay", (tokens, Hv), lowest, 0.0) if lowest < 0 else np.zeros((tokens, Hv))
    out = delta_rule(q, k, v, generated("beta", (tokens, Hv), 0.0, beta), g)
    return {"name": name, "tokens": tokens,
            "parameters": {"key_heads": Hk, "value_heads": Hv, "key_dim": D, "value_dim": E, "beta": beta, "lowest": lowest},
            "outputs": rounded(padded_heads(out))}
