# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The functions that oracle.py and the files of single families build on."""
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def l2_norm(x):
    return x / np.sqrt(np.sum(x * x, -1, keepdims=True) + 1e-6)


def elu_plus_one(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear(W, name, x):
    y = x @ W[name + ".weight"].T
    return y + W[name + ".bias"] if name + ".bias" in W else y


def heads(x, count):
    return x.reshape(len(x), count, -1)


def repeat_heads(x, count):
    """Key-value head j serves query heads j·r .. j·r + r - 1."""
    return np.repeat(x, count // x.shape[1], 1)


def below(W, prefix):
    return {name[len(prefix):]: x for name, x in W.items() if name.startswith(prefix)}
