# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: log-linear Mamba-2 in float64 from its quadratic form (docs/mixers.md#log-linear-mamba-2).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", ".."), os.path.join(here, "..", "..", "log_linear")]
import vectors
from levels import level_weights, softplus
from vectors import generated, padded_heads, rounded


def log_linear_ssd(x, B, C, delta, lam, A, D):
    """x [T, H, P], B and C [T, N], delta [T, H], lam [T, H, Lv], A [H], D [H, P] -> [T, H, P]."""
    c = np.cumsum(A * delta, 0)
    causal = np.tril(np.ones((len(x), len(x))))[:, :, None]
    decay = np.exp((c[:, None] - c[None]) * causal) * causal
    return np.einsum("tn,sn,tsh,hts,sh,shp->thp", C, B, decay, level_weights(lam), delta, x, optimize=True) + D * x


def silu(x):
    return x / (1 + np.exp(-x))


def convolution(x, w, b):
    W = w.shape[-1]
    padded = np.concatenate([np.zeros((W - 1, x.shape[1])), x])
    return silu(b + sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(W)))


def layer(config, hidden, weights, x):
    H, P, N = config["num_heads"], config["head_dim"], config["state_size"]
    I = H * P
    linear = lambda n, y: y @ weights[n + ".weight"].T + weights.get(n + ".bias", 0.0)
    z, xBC, dt, dl = np.split(linear("in_proj", x), np.cumsum([I, I + 2 * N, H]), -1)
    u, B, C = np.split(convolution(xBC, weights["conv1d.weight"], weights["conv1d.bias"]), [I, I + N], -1)
    low, high = config.get("time_step_limit") or config.get("dt_limit") or (0.0, np.inf)
    delta = np.clip(softplus(dt + weights["dt_bias"]), low, high)
    lam = softplus(weights["L"] * dl.reshape(len(x), H, -1))
    D = np.repeat(weights["D"], I // len(weights["D"])).reshape(H, P)
    y = log_linear_ssd(u.reshape(len(x), H, P), B, C, delta, lam, -np.exp(weights["A_log"]), D).reshape(len(x), I)
    y = y * silu(z)
    eps = config.get("layer_norm_epsilon", config.get("norm_eps", 1e-5))
    return linear("out_proj", y / np.sqrt(np.mean(y * y, -1, keepdims=True) + eps) * weights["norm.weight"])


def tensors_of(levels):
    def tensors(config, hidden):
        H, P, N = config["num_heads"], config["head_dim"], config["state_size"]
        I, channels, scale = H * P, H * P + 2 * N, 2.0 / np.sqrt(hidden)
        rows = I + channels + H * (1 + levels)
        bounds = {"in_proj.weight": ((rows, hidden), -scale, scale), "out_proj.weight": ((hidden, I), -scale, scale),
                  "conv1d.weight": ((channels, 1, config.get("conv_kernel", 4)), -0.7, 0.7), "conv1d.bias": ((channels,), -0.2, 0.2),
                  "dt_bias": ((H,), -3.0, 0.0), "A_log": ((H,), -1.0, 1.5), "L": ((H, levels), 0.5, 2.0),
                  "D": ((I if config.get("D_has_hdim") else H,), 0.5, 1.5), "norm.weight": ((I,), 0.5, 1.5)}
        if config.get("use_bias"):
            bounds.update({"in_proj.bias": ((rows,), -scale, scale), "out_proj.bias": ((hidden,), -scale, scale)})
        return {name: {"shape": list(shape), "low": low, "high": high} for name, (shape, low, high) in bounds.items()}
    return tensors


def core_entry(name, tokens, H, N, P, levels, slowest, fastest):
    A, D = generated("A", (H,), -fastest, -slowest), generated("D", (H, P), 0.5, 1.5)
    x, delta = generated("x", (tokens, H, P)), generated("delta", (tokens, H), 0.001, 1.0)
    B, C, lam = generated("B", (tokens, N)), generated("C", (tokens, N)), generated("lambda", (tokens, H, levels), 0.0, 1.5)
    return {"name": name, "tokens": tokens,
            "parameters": {"heads": H, "state_size": N, "head_dim": P, "levels": levels, "slowest": slowest, "fastest": fastest},
            "outputs": rounded(padded_heads(log_linear_ssd(x, B, C, delta, lam, A, D)))}


def layer_entry(name, levels, config, tokens=70, hidden=16):
    return vectors.layer_entry(name, layer, tensors_of(levels), tokens, hidden, config)


def main():
    fla = dict(num_heads=2, head_dim=16, state_size=16, n_groups=1, expand=2, norm_eps=1e-5)
    hat = dict(num_heads=4, head_dim=8, state_size=12, n_groups=1, expand=2, conv_kernel=3, layer_norm_epsilon=1e-4, rms_norm=True)
    vectors.write(__file__, {
        "core": [core_entry("seven_levels", 70, 2, 12, 16, 7, 0.1, 1.0), core_entry("four_levels", 40, 3, 20, 8, 4, 0.01, 0.2)],
        "layers": [
            layer_entry("fla", 15, fla),
            layer_entry("fla_two_levels_skip_by_channel", 2, {**fla, "D_has_hdim": True}),
            layer_entry("hat", 6, hat),
            layer_entry("hat_bias_limited", 7, {**hat, "use_bias": True, "time_step_limit": [0.1, 0.6]}),
        ],
    })


main()
