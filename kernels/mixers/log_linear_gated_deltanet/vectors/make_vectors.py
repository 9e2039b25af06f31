# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: log-linear Gated DeltaNet in float64 from its quadratic form (docs/mixers.md#log-linear-gated-deltanet).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "..", "delta_net", "delta_rule"), os.path.join(here, "..", "..", "log_linear")]
import delta_rule as rule
import vectors
from levels import level_weights, softplus
from vectors import generated, padded_heads, rounded


def one_head(q, k, v, beta, g, weights):
    """([tril(QKᵀ) (I + stril(diag(β) KKᵀ))⁻¹] ∘ decays ∘ level weights) diag(β) V"""
    T = len(q)
    c = np.cumsum(g)
    causal = np.tril(np.ones((T, T)))
    decays = np.exp((c[:, None] - c[None]) * causal) * causal
    solve = np.linalg.inv(np.eye(T) + np.tril(beta[:, None] * (k @ k.T), -1))
    return (np.tril(q @ k.T) @ solve * decays * weights) @ (beta[:, None] * v)


def log_linear_rule(q, k, v, beta, g, lam):
    """q, k [T, H, D], v [T, H, E], beta and g [T, H], lam [T, H, Lv] -> [T, H, E]."""
    weights = level_weights(lam)
    return np.stack([one_head(q[:, h], k[:, h], v[:, h], beta[:, h], g[:, h], weights[h]) for h in range(q.shape[1])], 1)


def layer(config, hidden, weights, x):
    H = config["num_heads"]
    q, k, v = [rule.heads(rule.silu(rule.convolved(config, weights, x, n)) if config.get("use_short_conv", True)
                          else rule.silu(rule.linear(weights, n + "_proj", x)), H) for n in "qkv"]
    beta = rule.sigmoid(rule.linear(weights, "b_proj", x)) * (2 if config.get("allow_neg_eigval") else 1)
    g = -np.exp(weights["A_log"]) * softplus(rule.linear(weights, "a_proj", x) + weights["dt_bias"])
    lam = softplus(weights["L"] * rule.linear(weights, "l_proj", x).reshape(len(x), H, -1))
    o = log_linear_rule(rule.l2_norm(q), rule.l2_norm(k), v, beta, g, lam)
    gate = rule.heads(rule.linear(weights, "g_proj", x), H) if config.get("use_gate", True) else None
    return rule.linear(weights, "o_proj", rule.norm_gate(config, o, weights["o_norm.weight"], gate).reshape(len(x), -1))


def tensors_of(levels):
    def tensors(config, hidden):
        H, D = config["num_heads"], config["head_dim"]
        E = int(D * config.get("expand_v", 2))
        out = 2.0 / np.sqrt(H * E)
        channels = {"q": H * D, "k": H * D, "v": H * E, "a": H, "b": H, "l": H * levels}
        if config.get("use_gate", True):
            channels["g"] = H * E
        return {"A_log": {"shape": [H], "low": -2.0, "high": 1.0}, "dt_bias": {"shape": [H], "low": -3.0, "high": 0.0},
                "L": {"shape": [H, levels], "low": 0.5, "high": 2.0}, **rule.projection_specs(hidden, channels, config),
                "o_norm.weight": {"shape": [E], "low": 0.5, "high": 1.5},
                "o_proj.weight": {"shape": [hidden, H * E], "low": -out, "high": out}}
    return tensors


def core_entry(name, tokens, H, D, E, levels, beta, lowest):
    bound = float(np.sqrt(3.0 / D))  # as core_subject.h draws keys
    q, k, v = generated("q", (tokens, H, D)), generated("k", (tokens, H, D), -bound, bound), generated("v", (tokens, H, E))
    g, lam = generated("log_decay", (tokens, H), lowest, 0.0), generated("lambda", (tokens, H, levels), 0.0, 1.5)
    out = log_linear_rule(q, k, v, generated("beta", (tokens, H), 0.0, beta), g, lam)
    return {"name": name, "tokens": tokens,
            "parameters": {"heads": H, "key_dim": D, "value_dim": E, "levels": levels, "beta": beta, "lowest": lowest},
            "outputs": rounded(padded_heads(out))}


def layer_entry(name, levels, config, tokens=70, hidden=24):
    return vectors.layer_entry(name, layer, tensors_of(levels), tokens, hidden, config)


vectors.write(__file__, {
    "core": [core_entry("seven_levels", 70, 2, 12, 16, 7, 1.0, -0.1), core_entry("four_levels_negative", 40, 2, 20, 24, 4, 2.0, -0.05)],
    "layers": [
        layer_entry("expand_two", 15, dict(num_heads=2, head_dim=12)),
        layer_entry("negative_eigenvalues_two_levels", 2, dict(num_heads=3, head_dim=8, expand_v=1, allow_neg_eigval=True)),
        layer_entry("no_convolution_no_gate", 6, dict(num_heads=2, head_dim=16, expand_v=1, use_short_conv=False, use_gate=False)),
        layer_entry("max_levels", 7, dict(num_heads=2, head_dim=16, expand_v=0.5, max_levels=7, conv_size=3)),
    ],
})
