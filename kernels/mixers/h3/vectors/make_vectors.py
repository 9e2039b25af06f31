# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: H3 in float64, its two SSMs as convolutions with their kernels (docs/mixers.md#h3).

    python3 make_vectors.py        needs NumPy only"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import vectors
from vectors import generated, rounded


def convolve(kernel, x):
    """y_t = Σ_{s<=t} kernel_{t-s} x_s, both [T, ...]."""
    return np.stack([sum(kernel[t - s] * x[s] for s in range(t + 1)) for t in range(len(x))])


def rows(x, hd):
    """Channel h·hd + i -> [T, hd, Hs]."""
    return np.moveaxis(x.reshape(len(x), -1, hd), -1, -2)


def h3(q, k, v, taps, kernel, hd):
    """q, k, v [T, D] in channels h·hd + i, taps [D, T], kernel [T, Hs], both with their skip -> [T, hd, Hs]."""
    shifted = convolve(taps.T, k)
    u = np.einsum("tih,tjh->tijh", rows(shifted, hd), rows(v, hd))
    return np.einsum("tih,tijh->tjh", rows(q, hd), convolve(kernel[:, None, None], u))


def tap_matrix(taps, tokens):
    """[D, N] -> [D, tokens], zeros beyond N."""
    wide = np.zeros((len(taps), tokens))
    n = min(tokens, taps.shape[1])
    wide[:, :n] = taps[:, :n]
    return wide


def as_complex(x):
    return x[..., 0] + 1j * x[..., 1]


def layer(config, hidden, weights, x):
    hd = config.get("head_dim", 1)
    linear = lambda n, y: y @ weights[n + ".weight"].T + weights[n + ".bias"]
    b, c = weights["ssm_k_kernel.kernel.B"], weights["ssm_k_kernel.kernel.C"][0]
    n = b.shape[1]
    taps = np.stack([(b[:, :n - l] * c[:, l:]).sum(1) for l in range(n)], 1)
    taps[:, 0] += weights["ssm_k_D"]

    step = np.exp(weights["kernel.kernel.log_dt"])[:, None]
    ssm = np.arange(len(step)) % len(weights["kernel.kernel.A_imag"])
    a = (-np.exp(weights["kernel.kernel.inv_A_real"]) + 1j * weights["kernel.kernel.A_imag"])[ssm]
    B, C = as_complex(weights["kernel.kernel.B"])[ssm], as_complex(weights["kernel.kernel.C"])[0]
    if config.get("discretization") == "zoh":
        pole, dB = np.exp(step * a), B * (np.exp(step * a) - 1) / a
    else:
        pole, dB = (1 + step * a / 2) / (1 - step * a / 2), B * step / (1 - step * a / 2)
    kernel = np.stack([2 * np.real((C * dB * pole**l).sum(1)) for l in range(len(x))])
    kernel[0] += weights["D"]
    q, k, v = [linear(p + "_proj", x) for p in "qkv"]
    return linear("output_linear", h3(q, k, v, tap_matrix(taps, len(x)), kernel, hd).reshape(len(x), hidden))


def tensors_of(config, hidden):
    hd, n = config.get("head_dim", 1), config.get("d_state", 64)
    heads, m = hidden // hd, n // 2
    ssms = config.get("n_ssm", heads)
    spec = lambda low, high, *shape: {"shape": list(shape), "low": low, "high": high}
    specs = {}
    for name in ("q_proj", "k_proj", "v_proj", "output_linear"):
        specs[name + ".weight"] = spec(-2 / np.sqrt(hidden), 2 / np.sqrt(hidden), hidden, hidden)
        specs[name + ".bias"] = spec(-0.2, 0.2, hidden)
    return {**specs,
            "ssm_k_kernel.kernel.B": spec(-0.6, 0.6, hidden, n), "ssm_k_kernel.kernel.C": spec(-0.6, 0.6, 1, hidden, n),
            "ssm_k_D": spec(-1, 1, hidden), "D": spec(-1, 1, heads), "kernel.kernel.log_dt": spec(-4, -1, heads),
            "kernel.kernel.B": spec(-1, 1, ssms, m, 2), "kernel.kernel.C": spec(-1, 1, 1, heads, m, 2),
            "kernel.kernel.inv_A_real": spec(-1.5, 0.5, ssms, m), "kernel.kernel.A_imag": spec(0, 20, ssms, m)}


def core_entry(name, tokens, Hs, hd, N, M, radius):
    """Poles at a distance of up to `radius` from 0, in the polar form that h3_test.cc generates."""
    D = Hs * hd
    q, k, v = [generated(p, (tokens, hd, Hs)) for p in "qkv"]  # [T, i, h], as the recurrence reads them
    channels = lambda x: np.moveaxis(x, 1, 2).reshape(tokens, D)
    f32 = lambda x: x.astype(np.float32).astype(np.float64)
    distance, angle = generated("pole_distance", (Hs, M), 0.5 * radius, radius), generated("pole_angle", (Hs, M), 0.0, 3.0)
    pole = f32(distance * np.cos(angle)) + 1j * f32(distance * np.sin(angle))
    weight = generated("weight_real", (Hs, M)) + 1j * generated("weight_imaginary", (Hs, M))
    kernel = np.stack([np.real((weight * pole**l).sum(1)) for l in range(tokens)])
    kernel[0] += generated("D", (Hs,))
    taps = tap_matrix(generated("taps", (D, N)), tokens)
    o = h3(channels(q), channels(k), channels(v), taps, kernel, hd)
    o = np.pad(o, ((0, 0), (0, 0), (0, -Hs % 16)))
    return {"name": name, "tokens": tokens, "parameters": {"heads": Hs, "head_dim": hd, "window": N, "modes": M, "radius": radius},
            "outputs": rounded(o)}


def main():
    entry = lambda name, config, hidden: vectors.layer_entry(name, layer, tensors_of, 35, hidden, config)
    file = {
        "core": [core_entry("one_row", 35, 16, 1, 8, 4, 0.95), core_entry("three_rows_odd", 35, 5, 3, 21, 3, 0.99)],
        "layers": [
            entry("public", dict(d_state=64), 16),
            entry("odd_width", dict(d_state=8), 13),
            entry("head_dim_2", dict(d_state=8, head_dim=2), 16),
            entry("head_dim_4_shared_zoh", dict(d_state=6, head_dim=4, n_ssm=2, discretization="zoh"), 24),
        ],
    }
    vectors.write(__file__, file)


main()
