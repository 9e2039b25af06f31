# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What the scripts that write a mixer's vectors.json share: the suite's generated numbers, and the form of the file
(README.md, Vectors). NumPy only."""
import json, os
import numpy as np


def generated(name, shape, low=-1.0, high=1.0):
    """The numbers that mixer_suite.h's GeneratedFloat gives for this name, seed 0."""
    with np.errstate(over="ignore"):
        h = np.uint64(0xCBF29CE484222325)
        for c in name.encode():
            h = (h ^ np.uint64(c)) * np.uint64(0x100000001B3)
        x = h + (np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    u = (x >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return (low + (high - low) * u).astype(np.float32).astype(np.float64).reshape(shape)


def rounded(x):
    """13 digits: the C++ reference must agree within 1e-12."""
    return [float(f"{v:.13g}") for v in np.ravel(x)]


def padded_heads(x):
    """[T, H, E] -> [T, H * padded E], as the recurrence writes it."""
    return np.pad(x, ((0, 0), (0, 0), (0, -x.shape[-1] % 16))).reshape(len(x), -1)


def layer_entry(name, layer, tensors_of, tokens, hidden, config):
    """An entry of "layers": layer(config, hidden, weights, x) over generated weights and input."""
    specs = tensors_of(config, hidden)
    weights = {n: generated(n, s["shape"], s["low"], s["high"]) for n, s in specs.items()}
    x = generated("x", (tokens, hidden))
    return {"name": name, "config": config, "hidden": hidden, "tensors": specs, "tokens": tokens,
            "outputs": [float(f"{v:.9g}") for v in np.ravel(layer(config, hidden, weights, x))]}


def write(script, file):
    """vectors.json beside the script, one entry a line."""
    with open(os.path.join(os.path.dirname(os.path.abspath(script)), "vectors.json"), "w") as f:
        rows = [f'"{part}": [\n' + ",\n".join(json.dumps(e) for e in file[part]) + "\n]" for part in file]
        f.write("{" + ",\n".join(rows) + "}\n")
