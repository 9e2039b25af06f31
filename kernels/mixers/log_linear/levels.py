# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What the log-linear mixers' make_vectors.py share: which level a token is read at, and its weight (docs/mixers.md#log-linear-mamba-2). NumPy only."""
import numpy as np


def level_weights(lam):
    """lam [T, H, Lv] -> [H, T, T]: lam_t[bit_length(t xor s)], at most the last level; zero for s > t."""
    T, H, levels = lam.shape
    level = np.array([[min(int(t ^ s).bit_length(), levels - 1) for s in range(T)] for t in range(T)])
    return np.stack([np.take_along_axis(lam[:, h], level, 1) for h in range(H)]) * np.tril(np.ones((T, T)))


def softplus(x):
    return np.logaddexp(0, x)
