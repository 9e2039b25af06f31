#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json beside this file: fp64 outputs of small cases, token by token (docs/mixers.md#ahla).

Generator and layer are those of ../../hla/vectors/make_vectors.py. NumPy only.    python3 make_vectors.py"""
import os, sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "hla", "vectors"))
import make_vectors as hla


def head(q, k, v, form, gamma, ridge, normalize, eps=1e-6):
    """One head: q, k [T, D], v [T, E]. P first: r sees its own token."""
    v = np.c_[v, np.ones(len(v))]                       # the last column carries m, n
    P, E, out = np.zeros((q.shape[1], v.shape[1])), np.zeros((q.shape[1], v.shape[1])), []
    for q_t, k_t, v_t in zip(q, k, v):
        P = gamma * P + np.outer(k_t, v_t)
        E = gamma * E + np.outer(k_t, q_t @ P)
        o = q_t @ E
        out.append(o[:-1] / (o[-1] + eps) if normalize else o[:-1])
    return np.array(out)


def core(name, tokens, **p):
    hla.head, keep = head, hla.head
    result = hla.core(name, tokens, **p)
    hla.head = keep
    return result


def layer(name, tokens, hidden, **c):
    return hla.layer(name, tokens, hidden, recurrence=head, hla_variant="asymmetric", **c)


if __name__ == "__main__":
    hla.write(os.path.dirname(os.path.abspath(__file__)), core=[
        core("plain", 21, heads=2, key_dim=6, value_dim=5),
        core("decay", 40, heads=2, key_dim=16, value_dim=8, decay_logit=[3.0, 0.5]),
        core("grouped_normalised", 40, heads=2, kv_heads=1, key_dim=8, value_dim=6, decay_logit=[3.0, 1.0], normalize=True, low=0.1,
             high=1.1),
    ], layers=[
        layer("decay", 36, 24, num_heads=2, head_dim=16, use_decay=True, use_short_conv=True, qk_norm="l2"),
        layer("grouped", 36, 24, num_heads=4, num_kv_heads=2, head_dim=8, expand_v=1.5, use_output_gate=False),
        layer("normalised", 36, 16, num_heads=2, head_dim=8, use_decay=True, normalize=True, qk_activation="elu1"),
    ])
