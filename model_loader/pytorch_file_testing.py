# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""For the converters' tests: files in torch.save's format, made by hand, and what was written. Needs neither PyTorch nor NumPy."""
import collections
import io
import json
import pickle
import struct
import sys
import types
import zipfile

import pytorch_file


class FakeStorage:
    def __init__(self, kind, key):
        self.kind, self.key = kind, key


class FakeTensor:
    """Pickles as a torch.Tensor does."""

    def __init__(self, kind, key, offset, shape, stride):
        self.arguments = (FakeStorage(kind, key), offset, shape, stride, False, collections.OrderedDict())

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


class FakePickler(pickle.Pickler):
    def persistent_id(self, thing):
        if isinstance(thing, FakeStorage):
            return ("storage", getattr(sys.modules["torch"], thing.kind), thing.key, "cpu", 0)
        return None


def fake_torch():
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in pytorch_file.STORAGES:
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*_):
        raise AssertionError("only its name is pickled")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    return {"torch": torch, "torch._utils": utils}


def save_like_torch(path, tensors, storages):
    sys.modules.update(fake_torch())
    try:
        data = io.BytesIO()
        FakePickler(data, protocol=2).dump(collections.OrderedDict(tensors))
    finally:
        del sys.modules["torch"], sys.modules["torch._utils"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data.getvalue())
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}
