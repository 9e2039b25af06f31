# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Reads and writes .safetensors with NumPy. BF16 is widened when read, and rounded to nearest even when written."""
import json
import struct

import numpy as np

TYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32}


def round_to_bfloat16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_bytes(x, dtype):
    return round_to_bfloat16(x).tobytes() if dtype == "BF16" else np.ascontiguousarray(x, TYPES[dtype]).tobytes()


def from_bytes(raw, dtype):
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, TYPES[dtype])


def write(path, tensors, dtype_of):
    """tensors: {name: array}; dtype_of(name) names the stored type."""
    header, end = {}, 0
    for name, x in tensors.items():
        size = x.size * (2 if dtype_of(name) in ("BF16", "F16") else 4)
        header[name] = {"dtype": dtype_of(name), "shape": list(x.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, x in tensors.items():
            file.write(to_bytes(x, dtype_of(name)))


def read_typed(path):
    """{name: (stored type, array)}"""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            tensors[name] = entry["dtype"], from_bytes(data[start:end], entry["dtype"]).reshape(entry["shape"])
    return tensors


def read(path):
    return {name: x for name, (_, x) in read_typed(path).items()}
