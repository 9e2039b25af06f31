# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: Gated DeltaNet in float64 from its definition (docs/mixers.md#gated-deltanet), with fla's tensors and with
Qwen3-Next's.

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "delta_net", "delta_rule"))
import delta_rule as rule
import vectors


def sizes(config):
    """Hk, Hv, D, E"""
    H, D = config["num_heads"], config["head_dim"]
    return H, config.get("num_v_heads", H), D, config.get("value_head_dim") or int(D * config.get("expand_v", 2))


def attention(config, q, k, v, b, a, weights):
    """q, k, v convolved and not activated, b and a as projected."""
    q, k, v = rule.l2_norm(rule.silu(q)), rule.l2_norm(rule.silu(k)), rule.silu(v)
    beta = rule.sigmoid(b) * (2 if config.get("allow_neg_eigval") else 1)
    g = -np.exp(weights["A_log"]) * rule.softplus(a + weights["dt_bias"])
    return rule.delta_rule(q / np.sqrt(q.shape[-1]), k, v, beta, g)


def fla_layer(config, weights, x):
    Hk, Hv, D, E = sizes(config)
    q, k, v = [rule.heads(rule.convolved(config, weights, x, n), h) for n, h in (("q", Hk), ("k", Hk), ("v", Hv))]
    o = attention(config, q, k, v, rule.linear(weights, "b_proj", x), rule.linear(weights, "a_proj", x), weights)
    gate = rule.heads(rule.linear(weights, "g_proj", x), Hv) if config.get("use_gate", True) else None
    return rule.linear(weights, "o_proj", rule.norm_gate(config, o, weights["o_norm.weight"], gate).reshape(len(x), -1))


def qwen3_next_layer(config, weights, x):
    """As transformers' forward walks it: split by key head, then the convolution over all of q, all of k, all of v."""
    Hk, Hv, D, E = sizes(config)
    T, group = len(x), Hv // Hk
    qkvz = rule.linear(weights, "in_proj_qkvz", x).reshape(T, Hk, -1)
    q, k, v, z = np.split(qkvz, np.cumsum([D, D, group * E]), -1)
    b, a = [y.reshape(T, Hv) for y in np.split(rule.linear(weights, "in_proj_ba", x).reshape(T, Hk, -1), 2, -1)]
    mixed = rule.convolution(np.concatenate([y.reshape(T, -1) for y in (q, k, v)], -1), weights["conv1d.weight"])
    q, k, v = np.split(mixed, [Hk * D, 2 * Hk * D], -1)
    o = attention(config, rule.heads(q, Hk), rule.heads(k, Hk), rule.heads(v, Hv), b, a, weights)
    return rule.linear(weights, "out_proj", rule.norm_gate(config, o, weights["norm.weight"], z.reshape(T, Hv, E)).reshape(T, -1))


def layer(config, hidden, weights, x):
    return (qwen3_next_layer if config.get("tensor_layout") == "qwen3_next" else fla_layer)(config, weights, x)


def tensors_of(config, hidden):
    Hk, Hv, D, E = sizes(config)
    scale, out = 2.0 / np.sqrt(hidden), 2.0 / np.sqrt(Hv * E)
    common = {"A_log": {"shape": [Hv], "low": -2.0, "high": 1.0}, "dt_bias": {"shape": [Hv], "low": -3.0, "high": 0.0}}
    if config.get("tensor_layout") == "qwen3_next":
        matrix = lambda rows: {"shape": [rows, hidden], "low": -scale, "high": scale}
        return {**common, "in_proj_qkvz.weight": matrix(2 * Hk * D + 2 * Hv * E), "in_proj_ba.weight": matrix(2 * Hv),
                "conv1d.weight": {"shape": [2 * Hk * D + Hv * E, 1, config.get("conv_size", 4)], "low": -0.7, "high": 0.7},
                "norm.weight": {"shape": [E], "low": 0.5, "high": 1.5},
                "out_proj.weight": {"shape": [hidden, Hv * E], "low": -out, "high": out}}
    channels = {"q": Hk * D, "k": Hk * D, "v": Hv * E, "a": Hv, "b": Hv}
    if config.get("use_gate", True):
        channels["g"] = Hv * E
    return {**common, **rule.projection_specs(hidden, channels, config),
            "o_norm.weight": {"shape": [E], "low": 0.5, "high": 1.5},
            "o_proj.weight": {"shape": [hidden, Hv * E], "low": -out, "high": out}}


def layer_entry(name, tokens=35, hidden=24, unused_d=False, **config):
    entry = vectors.layer_entry(name, layer, tensors_of, tokens, hidden, config)
    if unused_d:
        entry["tensors"]["D"] = {"shape": [config["num_heads"]], "low": 0.0, "high": 1.0}
    return entry


vectors.write(__file__, {
    "core": [rule.core_entry("slow_decay", 35, 2, 2, 12, 16, lowest=-0.1),
             rule.core_entry("grouped_fast_decay", 35, 2, 4, 20, 24, lowest=-3.0),
             rule.core_entry("negative_eigenvalues", 35, 1, 1, 20, 24, beta=1.9, lowest=-0.05)],
    "layers": [
        layer_entry("plain", num_heads=2, head_dim=8),
        layer_entry("grouped_no_gate", num_heads=2, num_v_heads=4, head_dim=12, expand_v=1, use_gate=False, norm_eps=1e-5),
        layer_entry("negative_eigenvalues_bias", num_heads=2, head_dim=8, allow_neg_eigval=True, conv_size=3, conv_bias=True),
        layer_entry("no_convolution", num_heads=1, num_v_heads=3, head_dim=16, expand_v=1, use_short_conv=False),
        layer_entry("unused_d", num_heads=3, head_dim=8, expand_v=1.5, unused_d=True),
        layer_entry("qwen3_next", num_heads=2, num_v_heads=4, head_dim=16, value_head_dim=16, tensor_layout="qwen3_next"),
        layer_entry("qwen3_next_odd", num_heads=3, num_v_heads=3, head_dim=6, value_head_dim=10, conv_size=2,
                    tensor_layout="qwen3_next", norm_eps=1e-5),
    ],
})
