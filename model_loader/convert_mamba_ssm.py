#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Turns a state-spaces Mamba-2 checkpoint into the layout that transformers and this server use.

    model_loader/convert_mamba_ssm.py FROM TO

FROM holds config.json {d_model, n_layer, vocab_size, ssm_cfg, ...} and pytorch_model.bin, as on
https://huggingface.co/state-spaces; TO, a new directory, gets config.json and model.safetensors. Those checkpoints have no
tokenizer of their own (they use GPT-NeoX's), so the result is served with token ids. Only Python's standard library is
needed: the file is read as data, and no code that it may hold is run.
"""
import argparse
import collections
import json
import os
import pickle
import struct
import sys
import zipfile

GPT_NEOX_END_OF_TEXT = 0

# What mamba_ssm/modules/mamba2.py takes when ssm_cfg does not say.
MAMBA2_DEFAULTS = dict(d_state=128, d_conv=4, expand=2, headdim=64, ngroups=1, bias=False, conv_bias=True, dt_limit=(0.0, float("inf")),
                       D_has_hdim=False, rmsnorm=True, norm_before_gate=False, d_ssm=None, activation="swish")


class ConversionError(Exception):
    pass


# ---------------------------------------------------------------- config.json
def refuse(condition, message):
    if condition:
        raise ConversionError(message)


def check_config(config, ssm):
    layer = (config.get("ssm_cfg") or {}).get("layer", "Mamba1")
    refuse(layer != "Mamba2", f"ssm_cfg.layer is {layer!r} (absent means Mamba1): only Mamba2 can be converted")
    refuse(config.get("attn_layer_idx"), "attn_layer_idx names layers of softmax attention: not served")
    refuse(config.get("d_intermediate"), "d_intermediate adds an MLP to each block: not served")
    refuse(not config.get("rms_norm", True), "rms_norm is false: LayerNorm is not served")
    refuse(not ssm["rmsnorm"], "ssm_cfg.rmsnorm is false: not served")
    refuse(ssm["norm_before_gate"], "ssm_cfg.norm_before_gate is true: not served")
    inner = ssm["expand"] * config["d_model"]
    refuse(ssm["d_ssm"] not in (None, inner), f"ssm_cfg.d_ssm is {ssm['d_ssm']}: only d_ssm = expand * d_model = {inner} is served")
    refuse(inner % ssm["headdim"], f"ssm_cfg.headdim is {ssm['headdim']}: it must divide expand * d_model = {inner}")


def padded_vocabulary(config):
    multiple = config.get("pad_vocab_size_multiple", 8)
    return -(-config["vocab_size"] // multiple) * multiple


def json_number(x):
    """Infinity as transformers 5 writes it, since JSON has none."""
    return {"__float__": "Infinity"} if x == float("inf") else x


def convert_config(config):
    """config.json in transformers' keys."""
    for key in ("d_model", "n_layer", "vocab_size"):
        refuse(not isinstance(config.get(key), int), f"config.json: {key} is {config.get(key)!r}: it must be a whole number")
    ssm = {**MAMBA2_DEFAULTS, **(config.get("ssm_cfg") or {})}
    check_config(config, ssm)
    return {
        "model_type": "mamba2", "hidden_size": config["d_model"], "num_hidden_layers": config["n_layer"],
        "vocab_size": padded_vocabulary(config), "state_size": ssm["d_state"], "conv_kernel": ssm["d_conv"], "expand": ssm["expand"],
        "head_dim": ssm["headdim"], "num_heads": ssm["expand"] * config["d_model"] // ssm["headdim"], "n_groups": ssm["ngroups"],
        "use_bias": ssm["bias"], "use_conv_bias": ssm["conv_bias"], "D_has_hdim": ssm["D_has_hdim"],
        "time_step_limit": [json_number(x) for x in ssm["dt_limit"]], "hidden_act": "silu", "layer_norm_epsilon": 1e-5,
        "residual_in_fp32": config.get("residual_in_fp32", True), "tie_word_embeddings": config.get("tie_embeddings", True),
        "eos_token_id": GPT_NEOX_END_OF_TEXT,
    }


def convert_name(name, tied):
    """The tensor's name in transformers' layout; None: leave it out."""
    if name == "lm_head.weight" and tied:
        return None
    return "backbone.embeddings.weight" if name == "backbone.embedding.weight" else name


# ---------------------------------------------------------------- pytorch_model.bin
Storage = collections.namedtuple("Storage", "dtype key")
StoredTensor = collections.namedtuple("StoredTensor", "dtype key offset shape")

STORAGES = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def contiguous_stride(shape):
    stride, step = [], 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return tuple(stride)


def rebuild_tensor(storage, offset, shape, stride, *_):
    shape = tuple(shape)
    significant = [(a, b) for a, b, size in zip(stride, contiguous_stride(shape), shape) if size != 1]
    refuse(any(a != b for a, b in significant), f"a tensor of shape {list(shape)} is not stored row by row")
    return StoredTensor(storage.dtype, storage.key, offset, shape)


class DataUnpickler(pickle.Unpickler):
    """Knows the few names that a file of tensors uses, and refuses every other: nothing in the file can run."""

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return rebuild_tensor
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise ConversionError(f"pytorch_model.bin refers to {module}.{name}: expected a plain dictionary of float tensors")

    def persistent_load(self, reference):
        kind, dtype, key = reference[:3]
        refuse(kind != "storage", f"pytorch_model.bin refers to a {kind!r}, expected a storage")
        return Storage(dtype, key)


class PytorchFile:
    """The tensors of a file that torch.save wrote (the zip format of PyTorch 1.6 and later)."""

    def __init__(self, path):
        refuse(not zipfile.is_zipfile(path), f"{path} is not in PyTorch's zip format: load and save it again with PyTorch 1.6 or later")
        self.archive = zipfile.ZipFile(path)
        pickles = [name for name in self.archive.namelist() if name.endswith("/data.pkl")]
        refuse(len(pickles) != 1, f"{path} has no data.pkl: it was not written by torch.save")
        self.root = pickles[0][:-len("data.pkl")]
        with self.archive.open(pickles[0]) as file:
            self.tensors = DataUnpickler(file).load()
        refuse(not isinstance(self.tensors, dict), f"{path} holds no dictionary of tensors")

    def bytes_of(self, tensor):
        start = tensor.offset * ELEMENT_BYTES[tensor.dtype]
        data = self.archive.read(f"{self.root}data/{tensor.key}")[start:start + byte_size(tensor)]
        refuse(len(data) != byte_size(tensor), f"the file ends inside a tensor of shape {list(tensor.shape)}")
        return data


def byte_size(tensor):
    size = ELEMENT_BYTES[tensor.dtype]
    for count in tensor.shape:
        size *= count
    return size


# ---------------------------------------------------------------- model.safetensors
def safetensors_header(tensors):
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [end, end + byte_size(tensor)]}
        end += byte_size(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def convert(source, target):
    with open(os.path.join(source, "config.json")) as file:
        config = convert_config(json.load(file))
    weights = PytorchFile(os.path.join(source, "pytorch_model.bin"))
    names = {name: convert_name(name, config["tie_word_embeddings"]) for name in weights.tensors}
    tensors = {names[name]: tensor for name, tensor in weights.tensors.items() if names[name] is not None}
    os.makedirs(target)
    with open(os.path.join(target, "model.safetensors"), "wb") as file:
        file.write(safetensors_header(tensors))
        for tensor in tensors.values():
            file.write(weights.bytes_of(tensor))
    with open(os.path.join(target, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    print(f"{target}: {len(tensors)} tensors, {sum(map(byte_size, tensors.values())):,} bytes; served with token ids (no tokenizer)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    arguments = parser.parse_args()
    try:
        convert(arguments.source, arguments.target)
    except (ConversionError, OSError, json.JSONDecodeError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        sys.exit(f"convert_mamba_ssm: {error}")


if __name__ == "__main__":
    main()
