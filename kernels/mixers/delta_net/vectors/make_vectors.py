# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: DeltaNet in float64 from its definition (docs/mixers.md#deltanet).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "delta_rule"))
import delta_rule as rule
import vectors


def queries_and_keys(config, x):
    f = {"silu": rule.silu, "relu": lambda y: np.maximum(y, 0), "identity": lambda y: y,
         "elu": lambda y: np.where(y > 0, y + 1, np.exp(np.minimum(y, 0)))}[config.get("qk_activation", "silu")]
    y = f(x)
    return y / y.sum(-1, keepdims=True) if config.get("qk_norm") == "sum" else rule.l2_norm(y)


def layer(config, hidden, weights, x):
    H = config["num_heads"]
    q, k, v = [rule.heads(rule.convolved(config, weights, x, n), H) for n in "qkv"]
    q, k, v = queries_and_keys(config, q) / np.sqrt(q.shape[-1]), queries_and_keys(config, k), rule.silu(v)
    beta = rule.sigmoid(rule.linear(weights, "b_proj", x)) if config.get("use_beta", True) else np.ones((len(x), H))
    beta = beta * (2 if config.get("allow_neg_eigval") else 1)
    o = rule.delta_rule(q, k, v, beta, np.zeros_like(beta))
    gate = rule.heads(rule.linear(weights, "g_proj", x), H) if config.get("use_gate") else None
    o = rule.norm_gate(config, o, weights["o_norm.weight"], gate)
    return rule.linear(weights, "o_proj", o.reshape(len(x), -1))


def tensors_of(config, hidden):
    H = config["num_heads"]
    keys, values = int(hidden * config.get("expand_k", 1)), int(hidden * config.get("expand_v", 1))
    channels = {"q": keys, "k": keys, "v": values}
    if config.get("use_beta", True):
        channels["b"] = H
    if config.get("use_gate"):
        channels["g"] = values
    specs = rule.projection_specs(hidden, channels, config)
    scale = 2.0 / np.sqrt(values)
    return {**specs, "o_proj.weight": {"shape": [hidden, values], "low": -scale, "high": scale},
            "o_norm.weight": {"shape": [values // H], "low": 0.5, "high": 1.5}}


def layer_entry(name, tokens=35, hidden=24, **config):
    return vectors.layer_entry(name, layer, tensors_of, tokens, hidden, config)


vectors.write(__file__, {
    "core": [rule.core_entry("plain", 35, 2, 2, 12, 16), rule.core_entry("negative_eigenvalues", 35, 1, 1, 20, 24, beta=1.9)],
    "layers": [
        layer_entry("plain", num_heads=2),
        layer_entry("negative_eigenvalues_gate", num_heads=3, allow_neg_eigval=True, use_gate=True, expand_v=2),
        layer_entry("no_convolution_no_beta", num_heads=2, use_short_conv=False, use_beta=False, expand_k=0.5),
        # Sums of positive numbers: elsewhere x / Σx may be as large as one likes.
        layer_entry("sum_norm_elu_bias", num_heads=2, qk_norm="sum", qk_activation="elu", conv_size=3, conv_bias=True),
        layer_entry("identity", num_heads=2, qk_activation="identity", norm_eps=1e-5),
        layer_entry("relu_no_convolution", num_heads=4, qk_activation="relu", use_short_conv=False),
    ],
})
