#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: fp64 outputs of small cases, token by token (docs/mixers.md#hla-order-of-updates).

The C++ reference sums pair weights and the C++ recurrence works in chunks; this is the third way, the
streaming one. NumPy only.    python3 make_vectors.py"""
import json, os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from vectors import generated


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def head(q, k, v, form, gamma, ridge, normalize, eps=1e-6):
    """One head: q, k [T, D], v [T, E]. The order of updates is the point."""
    v = np.c_[v, np.ones(len(v))]                       # the last column carries m, h, eta
    d, e = q.shape[1], v.shape[1]
    S, C, X, out = np.zeros((d, d)), np.zeros((d, e)), np.zeros((d, e)), []
    for q_t, k_t, v_t in zip(q, k, v):
        if form == "serial":
            X = gamma * X + np.outer(k_t, k_t @ C)      # C before this token
        S = gamma * S + np.outer(k_t, k_t)
        if form == "masked":
            X = gamma ** 2 * X + np.outer(q_t @ S, v_t)
        C = gamma * C + np.outer(q_t, v_t)
        o = q_t @ X + ridge * (q_t @ C) if form == "masked" else (q_t @ S + ridge * q_t) @ C
        if form == "serial":
            o = o - q_t @ X
        out.append(o[:-1] / (o[-1] + eps) if normalize else o[:-1])
    return np.array(out)


def pad(x):
    """[T, H, E] to [T, H * E rounded up to 16]."""
    width = -(-x.shape[2] // 16) * 16
    return np.pad(x, ((0, 0), (0, 0), (0, width - x.shape[2]))).reshape(len(x), -1)


def core(name, tokens, **p):
    H, D, E = p["heads"], p["key_dim"], p["value_dim"]
    Hk = p.get("kv_heads", H)
    low, high = p.get("low", -1.0), p.get("high", 1.0)
    q, k = generated("q", (tokens, H, D), low, high), generated("k", (tokens, Hk, D), low, high)
    v = generated("v", (tokens, Hk, E), -1.0, 1.0)
    gamma = sigmoid(np.array(p["decay_logit"])) if "decay_logit" in p else np.ones(H)
    o = [head(q[:, h], k[:, h * Hk // H], v[:, h * Hk // H], p.get("form", "masked"), gamma[h], p.get("ridge_lambda", 0.0),
              p.get("normalize", False)) for h in range(H)]
    return dict(name=name, parameters=p, tokens=tokens, outputs=pad(np.stack(o, 1)).ravel().tolist())


def layer(name, tokens, hidden, recurrence=head, tolerance=1e-5, **c):
    H, D = c["num_heads"], c["head_dim"]
    Hk, E = c.get("num_kv_heads", H), int(c["head_dim"] * c.get("expand_v", 1))
    rows = dict(q=H * D, k=Hk * D, v=Hk * E)
    if c.get("use_output_gate", True):
        rows["g"] = H * E
    spec = {f"{n}_proj.weight": dict(shape=[r, hidden], low=-0.5, high=0.5) for n, r in rows.items()}
    spec["o_proj.weight"] = dict(shape=[hidden, H * E], low=-0.3, high=0.3)
    spec["o_norm.weight"] = dict(shape=[E], low=0.5, high=1.5)
    if c.get("use_decay"):
        spec["decay_logit"] = dict(shape=[H], low=0.0, high=6.0)
    if c.get("use_short_conv"):
        for n in "qkv":
            spec[f"{n}_conv1d.weight"] = dict(shape=[rows[n], 1, c.get("conv_size", 4)], low=-0.8, high=0.8)
    W = {n: generated(n, s["shape"], s["low"], s["high"]) for n, s in spec.items()}
    x = generated("x", (tokens, hidden), -1.0, 1.0)

    def project(n):
        y = x @ W[f"{n}_proj.weight"].T
        if c.get("use_short_conv"):
            w = W[f"{n}_conv1d.weight"][:, 0]
            past = np.concatenate([np.zeros((w.shape[1] - 1, y.shape[1])), y])
            y = sum(past[j:j + tokens] * w[:, j] for j in range(w.shape[1]))
            y = y * sigmoid(y)
        return y

    def prepare(y, heads):
        y = y.reshape(tokens, heads, D)
        act = c.get("qk_activation", "none")
        y = np.where(y > 0, y + 1, np.exp(np.minimum(y, 0))) if act == "elu1" else np.maximum(y, 0) if act == "relu" else y
        if c.get("rope_theta"):                         # halves are real and imaginary parts
            angle = np.arange(tokens)[:, None, None] * c["rope_theta"] ** (-2 * np.arange(D // 2) / D)
            z = (y[..., :D // 2] + 1j * y[..., D // 2:]) * np.exp(1j * angle)
            y = np.concatenate([z.real, z.imag], -1)
        if c.get("qk_norm") == "l2":
            y = y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6)
        return y * c.get("qk_scale", D ** -0.5)

    q, k, v = prepare(project("q"), H), prepare(project("k"), Hk), project("v").reshape(tokens, Hk, E)
    gamma = sigmoid(W["decay_logit"]) if c.get("use_decay") else np.ones(H)
    o = np.stack([recurrence(q[:, h], k[:, h * Hk // H], v[:, h * Hk // H], c.get("hla_form", "masked"), gamma[h],
                             c.get("ridge_lambda", 0.0), c.get("normalize", False), c.get("denom_eps", 1e-6)) for h in range(H)], 1)
    o = o / np.sqrt((o * o).mean(-1, keepdims=True) + c.get("norm_eps", 1e-5)) * W["o_norm.weight"]
    if c.get("use_output_gate", True):
        g = (x @ W["g_proj.weight"].T).reshape(tokens, H, E)
        o = o * g * sigmoid(g)
    y = o.reshape(tokens, -1) @ W["o_proj.weight"].T
    return dict(name=name, config=c, hidden=hidden, tensors=spec, tokens=tokens, tolerance=tolerance, outputs=y.ravel().tolist())


def write(path, **vectors):
    with open(os.path.join(path, "vectors.json"), "w") as f:
        f.write(json.dumps(vectors, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    write(os.path.dirname(os.path.abspath(__file__)), core=[
        core("masked", 21, heads=2, key_dim=6, value_dim=5),
        core("masked_decay", 40, heads=2, key_dim=16, value_dim=8, decay_logit=[3.0, 0.5]),
        core("masked_ridge_normalised", 40, heads=1, key_dim=8, value_dim=4, decay_logit=[2.0], ridge_lambda=0.3, normalize=True,
             low=0.1, high=1.1),
        core("serial_decay", 40, heads=2, kv_heads=1, key_dim=8, value_dim=6, form="serial", decay_logit=[3.0, 1.0]),
        core("serial_ridge_normalised", 33, heads=1, key_dim=8, value_dim=4, form="serial", decay_logit=[2.0], ridge_lambda=0.3,
             normalize=True, low=0.1, high=1.1),
        core("none_decay", 40, heads=1, key_dim=8, value_dim=6, form="none", decay_logit=[3.0]),
    ], layers=[
        layer("as_bundled", 40, 24, num_heads=2, head_dim=16, use_decay=True, use_short_conv=True, qk_norm="l2"),
        layer("plain", 20, 16, num_heads=2, head_dim=8, use_output_gate=False),
        layer("grouped", 36, 24, num_heads=4, num_kv_heads=2, head_dim=8, expand_v=1.5, use_decay=True, qk_scale=0.5, norm_eps=1e-6),
        layer("normalised", 36, 16, num_heads=2, head_dim=8, use_decay=True, normalize=True, qk_activation="elu1", denom_eps=1e-5),
        layer("serial_ridge", 36, 16, num_heads=2, head_dim=8, hla_form="serial", use_decay=True, ridge_lambda=0.1, use_short_conv=True,
              conv_size=3),
        layer("none_relu", 36, 16, num_heads=2, head_dim=8, hla_form="none", qk_activation="relu"),
    ])
