# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Reads the tensors of a file that torch.save wrote, and writes safetensors: what the converters beside this file share.

Only Python's standard library is needed: a file is read as data, and no code that it may hold is run.
"""
import argparse
import collections
import io
import json
import math
import os
import pickle
import pickletools
import struct
import sys
import zipfile


class ConversionError(Exception):
    pass


def refuse(condition, message):
    if condition:
        raise ConversionError(message)


def make_parser(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    return parser


def run(program, convert, source, *arguments):
    """convert(source, ...); what is wrong with the files ends the program with a message."""
    try:
        convert(source, *arguments)
    except (ConversionError, OSError, json.JSONDecodeError, zipfile.BadZipFile) as error:
        sys.exit(f"{program}: {error}")
    except Exception as error:  # what damaged files can raise is not bounded
        sys.exit(f"{program}: {source} is damaged: {type(error).__name__}: {error}")


# Limits that no checkpoint comes near, so that a small file takes neither gigabytes nor hours.
LARGEST_PICKLE = 1 << 24
MOST_DIMENSIONS = 8
MOST_COPIES = 4  # bytes written for each byte of the file

Storage = collections.namedtuple("Storage", "dtype key")
StoredTensor = collections.namedtuple("StoredTensor", "dtype key offset shape")

STORAGES = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def byte_size(tensor):
    refuse(tensor.dtype not in ELEMENT_BYTES, f"a tensor of shape {list(tensor.shape)} holds no {', '.join(ELEMENT_BYTES)}")
    return ELEMENT_BYTES[tensor.dtype] * math.prod(tensor.shape)


def rows_of(tensor, first, count):
    """Rows [first, first + count) of a matrix or vector."""
    row = math.prod(tensor.shape[1:])
    return tensor._replace(offset=tensor.offset + first * row, shape=(count,) + tensor.shape[1:])


# ---------------------------------------------------------------- reading
def rebuild_tensor(storage, offset, shape, stride, *_):
    shape = tuple(shape)
    refuse(len(shape) > MOST_DIMENSIONS, f"a tensor has {len(shape)} dimensions, more than {MOST_DIMENSIONS}")
    refuse(not isinstance(storage, Storage) or any(type(number) is not int or number < 0 for number in (offset, *shape)),
           f"a tensor has the shape {shape}, from place {offset}")
    strided = any(step != math.prod(shape[i + 1:]) for i, (step, size) in enumerate(zip(stride, shape)) if size != 1)
    refuse(strided, f"a tensor of shape {list(shape)} is not stored row by row")
    return StoredTensor(storage.dtype, storage.key, offset, shape)


class Ignored:
    """Stands for all that a training checkpoint holds besides tensors: takes everything and does nothing."""

    def __new__(cls, *_, **__):
        return super().__new__(cls)

    def __init__(self, *_, **__):
        pass

    def take(self, *_):
        pass

    __setstate__ = __setitem__ = append = extend = add = take


class DataUnpickler(pickle.Unpickler):
    """Knows the few names that a file of tensors uses: nothing in the file can run. Every other name is refused or, with
    `ignore_others`, stands for Ignored."""

    KNOWN = {("collections", "OrderedDict"): collections.OrderedDict, ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
             ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor}

    def __init__(self, file, name, ignore_others):
        super().__init__(file)
        self.name, self.ignore_others = name, ignore_others

    def find_class(self, module, name):
        if (module, name) in self.KNOWN:
            return self.KNOWN[module, name]
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        refuse(not self.ignore_others, f"{self.name} refers to {module}.{name}: expected a plain dictionary of float tensors")
        return Ignored

    def persistent_load(self, reference):
        kind, dtype, key = reference[:3]
        refuse(kind != "storage" or not isinstance(dtype, str), f"{self.name} refers to a {kind!r}, expected a storage")
        return Storage(dtype, key)


def check_memo(data):
    """Python's unpickler makes a list as long as the largest place in its memo, regardless of the pickle's size."""
    for opcode, argument, _ in pickletools.genops(data):
        refuse(opcode.name in ("PUT", "LONG_BINPUT") and argument > len(data), f"the pickle is damaged: it names place {argument}")


def load(data, name, ignore_others):
    try:
        check_memo(data)
        return DataUnpickler(io.BytesIO(data), name, ignore_others).load()
    except ConversionError:
        raise
    except Exception as error:  # what a damaged pickle can raise is not bounded
        raise ConversionError(f"{name} is damaged: {type(error).__name__}: {error}") from error


class PytorchFile:
    """What a file that torch.save wrote (the zip format of PyTorch 1.6 and later) holds: `contents`, a dictionary with StoredTensors in
    it. `ignore_others`: it may hold other things as well, as a training checkpoint does."""

    def __init__(self, path, ignore_others=False):
        name = str(path).rsplit("/", 1)[-1]
        with open(path, "rb"):
            pass  # a missing file is no wrong format
        refuse(not zipfile.is_zipfile(path), f"{path} is not in PyTorch's zip format: load and save it again with PyTorch 1.6 or later")
        self.archive, self.file_bytes = zipfile.ZipFile(path), os.path.getsize(path)
        pickles = [entry for entry in self.archive.namelist() if entry.endswith("/data.pkl")]
        refuse(len(pickles) != 1, f"{path} has no data.pkl: it was not written by torch.save")
        self.root = pickles[0][:-len("data.pkl")]
        size = self.archive.getinfo(pickles[0]).file_size
        refuse(size > LARGEST_PICKLE, f"{path} has a data.pkl of {size:,} bytes, more than {LARGEST_PICKLE:,}: save its tensors alone")
        self.contents = load(self.read(pickles[0]), name, ignore_others)
        refuse(not isinstance(self.contents, dict), f"{path} holds no dictionary of tensors")

    def read(self, entry):
        """torch.save compresses nothing, and so no entry is larger than the file."""
        refuse(self.archive.getinfo(entry).compress_type != zipfile.ZIP_STORED,
               f"{entry} is compressed, as torch.save never does it: load and save the file again with PyTorch")
        return self.archive.read(entry)

    def bytes_of(self, tensor):
        size = byte_size(tensor)
        start = tensor.offset * ELEMENT_BYTES[tensor.dtype]
        storage = f"{self.root}data/{tensor.key}"
        refuse(storage not in self.archive.namelist(), f"the file has no {storage}, where a tensor of shape {list(tensor.shape)} lies")
        data = self.read(storage)[start:start + size]
        refuse(len(data) != size, f"the file ends inside a tensor of shape {list(tensor.shape)}")
        return data


# ---------------------------------------------------------------- writing
def safetensors_header(tensors):
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [end, end + byte_size(tensor)]}
        end += byte_size(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(path, tensors, source):
    total = sum(map(byte_size, tensors.values()))
    refuse(total > MOST_COPIES * source.file_bytes, f"the tensors have {total:,} bytes and the file {source.file_bytes:,}: they lie over each other")
    with open(path, "wb") as file:
        file.write(safetensors_header(tensors))
        for tensor in tensors.values():
            file.write(source.bytes_of(tensor))


def write_checkpoint(target, config, tensors, source):
    """A new directory of config.json and the tensors, {name: StoredTensor} of the PytorchFile `source`."""
    os.makedirs(target)
    write_safetensors(os.path.join(target, "model.safetensors"), tensors, source)
    with open(os.path.join(target, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    print(f"{target}: {len(tensors)} tensors, {sum(map(byte_size, tensors.values())):,} bytes; served with token ids (no tokenizer)")
