# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: Mamba-2 in float64 from its quadratic form (docs/mixers.md#mamba-2).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, padded_heads, rounded


def ssd(x, B, C, delta, A, D):
    """x [T, H, P], B and C [T, G, N], delta [T, H], A [H], D [H, P] -> [T, H, P]."""
    group = x.shape[1] // B.shape[1]
    B, C = np.repeat(B, group, 1), np.repeat(C, group, 1)
    c = np.cumsum(A * delta, 0)
    causal = np.tril(np.ones((len(x), len(x))))[:, :, None]
    decay = np.exp((c[:, None] - c[None]) * causal) * causal
    return np.einsum("thn,shn,tsh,sh,shp->thp", C, B, decay, delta, x, optimize=True) + D * x


def silu(x):
    return x / (1 + np.exp(-x))


def convolution(x, w, b):
    W = w.shape[-1]
    padded = np.concatenate([np.zeros((W - 1, x.shape[1])), x])
    return silu(b + sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(W)))


def sizes(config):
    """H, P, N, G in any of the spellings."""
    c = {**config, **config.get("ssm_cfg", {})}
    get = lambda *names: next(c[n] for n in names if n in c)
    return get("num_heads", "nheads"), get("head_dim", "headdim"), get("state_size", "d_state"), get("n_groups", "ngroups")


def layer(config, hidden, weights, x, full_norm):
    H, P, N, G = sizes(config)
    I = H * P
    linear = lambda n, y: y @ weights[n + ".weight"].T + weights.get(n + ".bias", 0.0)
    z, xBC, dt = np.split(linear("in_proj", x), [I, 2 * I + 2 * G * N], -1)
    xBC = convolution(xBC, weights["conv1d.weight"], weights.get("conv1d.bias", 0.0))
    u, B, C = np.split(xBC, [I, I + G * N], -1)
    low, high = config.get("time_step_limit") or config.get("dt_limit") or (0.0, np.inf)
    infinite = lambda v: float(v["__float__"]) if isinstance(v, dict) else v
    delta = np.clip(np.logaddexp(0, dt + weights["dt_bias"]), infinite(low), infinite(high))
    D = np.repeat(weights["D"], I // len(weights["D"])).reshape(H, P)
    shape = lambda y, h: y.reshape(len(x), h, -1)
    y = ssd(shape(u, H), shape(B, G), shape(C, G), delta, -np.exp(weights["A_log"]), D).reshape(len(x), I)
    if not config.get("rmsnorm", True):
        return linear("out_proj", y * silu(z))
    before = config.get("norm_before_gate", False)
    y = y if before else y * silu(z)
    g = y.reshape(len(x), 1 if full_norm or config.get("full_norm") else G, -1)
    g = g / np.sqrt(np.mean(g * g, -1, keepdims=True) + config.get("layer_norm_epsilon", config.get("norm_eps", 1e-5)))
    y = g.reshape(len(x), I) * weights["norm.weight"]
    return linear("out_proj", y * silu(z) if before else y)


def tensors_of(config, hidden):
    H, P, N, G = sizes(config)
    I, channels, scale = H * P, H * P + 2 * G * N, 2.0 / np.sqrt(hidden)
    c = {**config, **config.get("ssm_cfg", {})}
    kernel = c.get("conv_kernel", c.get("d_conv", 4))
    t = {"in_proj.weight": (I + channels + H, hidden), "out_proj.weight": (hidden, I)}
    if c.get("use_bias", c.get("bias", False)):
        t.update({"in_proj.bias": (I + channels + H,), "out_proj.bias": (hidden,)})
    specs = {n: {"shape": list(s), "low": -scale, "high": scale} for n, s in t.items()}
    specs["conv1d.weight"] = {"shape": [channels, 1, kernel], "low": -0.7, "high": 0.7}
    if c.get("use_conv_bias", c.get("conv_bias", True)):
        specs["conv1d.bias"] = {"shape": [channels], "low": -0.2, "high": 0.2}
    specs["dt_bias"] = {"shape": [H], "low": -3.0, "high": 0.0}
    specs["A_log"] = {"shape": [H], "low": -1.0, "high": 1.5}
    specs["D"] = {"shape": [I if c.get("D_has_hdim") else H], "low": 0.5, "high": 1.5}
    if c.get("rmsnorm", True):
        specs["norm.weight"] = {"shape": [I], "low": 0.5, "high": 1.5}
    return specs


def core_entry(name, tokens, H, G, N, P, slowest, fastest):
    A, D = generated("A", (H,), -fastest, -slowest), generated("D", (H, P), 0.5, 1.5)
    x, delta = generated("x", (tokens, H, P)), generated("delta", (tokens, H), 0.001, 1.0)
    B, C = generated("B", (tokens, G, N)), generated("C", (tokens, G, N))
    return {"name": name, "tokens": tokens,
            "parameters": {"heads": H, "groups": G, "state_size": N, "head_dim": P, "slowest": slowest, "fastest": fastest},
            "outputs": rounded(padded_heads(ssd(x, B, C, delta, A, D)))}


def layer_entry(name, config, tokens=35, hidden=16, full_norm=False):
    normed = lambda *arguments: layer(*arguments, full_norm)
    entry = vectors.layer_entry(name, normed, tensors_of, tokens, hidden, config)
    return {**entry, "mamba2_full_norm": True} if full_norm else entry


def main():
    infinity = {"__float__": "Infinity"}
    hf = dict(num_heads=4, head_dim=8, state_size=12, n_groups=1, expand=2, conv_kernel=4, use_bias=False, use_conv_bias=True,
              layer_norm_epsilon=1e-5, rms_norm=True, time_step_limit=[0.0, infinity], hidden_act="silu")
    fla = dict(num_heads=2, head_dim=16, state_size=16, n_groups=1, expand=2, norm_eps=1e-5, rmsnorm=True, dt_limit=[0.0, infinity])
    grouped = {**hf, "n_groups": 2}
    file = {
        "core": [core_entry("one_group", 35, 2, 1, 12, 16, 0.1, 1.0), core_entry("two_groups", 35, 4, 2, 20, 8, 0.01, 4.0)],
        "layers": [
            layer_entry("hf", hf),
            layer_entry("hf_grouped", grouped),
            layer_entry("hf_grouped_full_norm", grouped, full_norm=True),
            layer_entry("granite_full_norm", {**grouped, "full_norm": True}),
            layer_entry("hf_bias_limited", {**hf, "use_bias": True, "use_conv_bias": False, "time_step_limit": [0.1, 0.6]}),
            layer_entry("fla", fla),
            layer_entry("fla_skip_by_channel", {**fla, "D_has_hdim": True}),
            layer_entry("fla_norm_before_gate", {**fla, "n_groups": 2, "norm_before_gate": True}),
            layer_entry("fla_without_norm", {**fla, "rmsnorm": False}),
            layer_entry("state_spaces", dict(d_model=16, ssm_cfg=dict(layer="Mamba2", nheads=4, headdim=8, d_state=8, ngroups=1, d_conv=3, bias=True))),
        ],
    }
    vectors.write(__file__, file)


main()
