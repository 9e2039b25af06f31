# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: Mamba-1 in float64 from its quadratic form (docs/mixers.md#mamba).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, rounded


def silu(x):
    return x / (1 + np.exp(-x))


def scan(x, dt, z, B, C, A, D):
    """x, dt, z [T, I], B and C [T, N], A [I, N], D [I] -> [T, I]."""
    delta = np.logaddexp(0, dt)
    elapsed = np.cumsum(delta, 0)
    y = D * x
    for t in range(len(x)):
        for s in range(t + 1):
            y[t] += (np.exp(A * (elapsed[t] - elapsed[s])[:, None]) * B[s] * C[t]).sum(1) * delta[s] * x[s]
    return y * silu(z)


def convolution(x, w, b):
    W = w.shape[-1]
    padded = np.concatenate([np.zeros((W - 1, x.shape[1])), x])
    return silu(b + sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(W)))


def sizes(config, hidden):
    """I, N, R, W."""
    rank = config.get("time_step_rank", "auto")
    return (int(config.get("expand", 2) * hidden), config.get("state_size", 16), -(-hidden // 16) if rank == "auto" else rank,
            config.get("conv_kernel", 4))


def layer(config, hidden, weights, x):
    I, N, R, _ = sizes(config, hidden)
    linear = lambda n, y: y @ weights[n + ".weight"].T + weights.get(n + ".bias", 0.0)
    u, z = np.split(linear("in_proj", x), 2, -1)
    u = convolution(u, weights["conv1d.weight"], weights.get("conv1d.bias", 0.0))
    parts = np.split(linear("x_proj", u), [R, R + N], -1)
    if "mixer_rms_eps" in config:
        parts = [p / np.sqrt(np.mean(p * p, -1, keepdims=True) + config["mixer_rms_eps"]) for p in parts]
    delta, B, C = parts
    return linear("out_proj", scan(u, linear("dt_proj", delta), z, B, C, -np.exp(weights["A_log"]), weights["D"]))


def tensors_of(config, hidden):
    I, N, R, W = sizes(config, hidden)
    matrices = {"in_proj.weight": (2 * I, hidden), "x_proj.weight": (R + 2 * N, I), "dt_proj.weight": (I, R), "out_proj.weight": (hidden, I)}
    specs = {n: {"shape": list(s), "low": -2.0 / np.sqrt(s[1]), "high": 2.0 / np.sqrt(s[1])} for n, s in matrices.items()}
    biases = {"conv1d.bias": I} if config.get("use_conv_bias", True) else {}
    biases.update({"in_proj.bias": 2 * I, "out_proj.bias": hidden} if config.get("use_bias") else {})
    specs.update({n: {"shape": [s], "low": -0.2, "high": 0.2} for n, s in biases.items()})
    specs["conv1d.weight"] = {"shape": [I, 1, W], "low": -0.7, "high": 0.7}
    specs["dt_proj.bias"] = {"shape": [I], "low": -4.0, "high": 0.0}
    specs["A_log"] = {"shape": [I, N], "low": -1.0, "high": 2.5}
    specs["D"] = {"shape": [I], "low": 0.5, "high": 1.5}
    return specs


def core_entry(name, tokens, I, N, slowest, fastest):
    A, D = generated("A", (I, N), -fastest, -slowest), generated("D", (I,), 0.5, 1.5)
    x, z, dt = generated("x", (tokens, I)), generated("z", (tokens, I), -2.0, 2.0), generated("dt", (tokens, I), -5.0, 1.0)
    return {"name": name, "tokens": tokens, "parameters": {"channels": I, "state_size": N, "slowest": slowest, "fastest": fastest},
            "outputs": rounded(scan(x, dt, z, generated("B", (tokens, N)), generated("C", (tokens, N)), A, D))}


def main():
    entry = lambda name, config, hidden=16: vectors.layer_entry(name, layer, tensors_of, 35, hidden, config)
    file = {
        "core": [core_entry("one_block", 35, 16, 4, 0.1, 1.0), core_entry("odd", 35, 21, 3, 0.01, 16.0)],
        "layers": [
            entry("auto_rank", dict(state_size=8)),
            entry("defaults_odd_width", {}, 13),
            entry("bias", dict(state_size=5, use_bias=True, use_conv_bias=False, time_step_rank=3, conv_kernel=3, expand=1.5)),
            entry("falcon", dict(state_size=4, time_step_rank=2, mixer_rms_eps=1e-6)),
        ],
    }
    vectors.write(__file__, file)


main()
