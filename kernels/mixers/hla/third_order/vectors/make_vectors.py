#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: fp64 outputs of small cases, token by token (docs/mixers.md#third-order).

Generator and layer are those of ../../vectors/make_vectors.py. NumPy only.    python3 make_vectors.py"""
import importlib.util, os
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("second_order", os.path.join(HERE, "..", "..", "vectors", "make_vectors.py"))
hla = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hla)


def masked(q, k, v, gamma):
    S, P, F = np.zeros((q.shape[1],) * 2), np.zeros((q.shape[1], v.shape[1])), np.zeros((q.shape[1], v.shape[1]))
    for q_t, k_t, v_t in zip(q, k, v):
        S, P = gamma * S + np.outer(k_t, k_t), gamma * P + np.outer(k_t, v_t)
        F = gamma ** 3 * F + np.outer(S @ q_t, q_t @ P)
        yield q_t @ F


def paper(q, k, v, gamma):
    """Algorithm 3: the three corrections, added up, see S, Q and P as they were before the token."""
    d, e = q.shape[1], v.shape[1]
    S, Q, P, G = np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, e)), np.zeros((d, e))
    for q_t, k_t, v_t in zip(q, k, v):
        u = Q @ k_t
        G = gamma * G + np.outer(k_t, u @ P) + np.outer(S @ q_t, q_t @ P) + np.outer(S @ u, v_t)
        S, Q, P = gamma * S + np.outer(k_t, k_t), gamma * Q + np.outer(q_t, q_t), gamma * P + np.outer(k_t, v_t)
        yield (Q @ (S @ q_t)) @ P - q_t @ G


def head(q, k, v, form, gamma, ridge, normalize, eps=1e-6):
    """One head: q, k [T, D], v [T, E]."""
    v = np.c_[v, np.ones(len(v))]                       # the last column becomes the denominator
    o = np.array(list((paper if form == "paper" else masked)(q, k, v, gamma)))
    return o[:, :-1] / (o[:, -1:] + eps) if normalize else o[:, :-1]


def layer(name, tokens, hidden, **c):
    return hla.layer(name, tokens, hidden, recurrence=head, hla_variant="third", **c)


if __name__ == "__main__":
    hla.head = head
    core = hla.core
    hla.write(HERE, core=[
        core("plain", 21, heads=2, key_dim=6, value_dim=5),
        core("decay", 40, heads=2, key_dim=16, value_dim=8, decay_logit=[3.0, 0.5]),
        core("grouped_normalised", 40, heads=2, kv_heads=1, key_dim=8, value_dim=6, decay_logit=[3.0, 1.0], normalize=True, low=0.1,
             high=1.1),
        core("paper", 21, form="paper", heads=2, key_dim=6, value_dim=5),
        core("paper_decay", 40, form="paper", heads=2, kv_heads=1, key_dim=8, value_dim=6, decay_logit=[3.0, 1.0]),
        core("paper_normalised", 33, form="paper", heads=1, key_dim=8, value_dim=4, normalize=True, low=0.1, high=1.1),
    ], layers=[
        layer("decay", 36, 24, num_heads=2, head_dim=16, use_decay=True, use_short_conv=True, qk_norm="l2"),
        layer("grouped", 36, 24, num_heads=4, num_kv_heads=2, head_dim=8, expand_v=1.5, use_output_gate=False),
        layer("normalised", 36, 16, num_heads=2, head_dim=8, use_decay=True, normalize=True, qk_activation="elu1"),
        layer("rotary", 36, 16, num_heads=2, head_dim=8, use_decay=True, qk_norm="l2", rope_theta=100.0),
        layer("paper", 36, 16, num_heads=2, head_dim=8, hla_form="paper", use_decay=True, tolerance=1e-4),
    ])
