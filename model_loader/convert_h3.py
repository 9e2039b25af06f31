#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Turns H3's public checkpoints into a directory that this server loads.

    model_loader/convert_h3.py FROM TO [--attention-heads N] [--rotary-dim N] [--discretization bilinear|zoh]

FROM is model.pt as on https://huggingface.co/danfu09 (H3-125M and larger), or its directory: a dictionary of tensors, or a training
checkpoint of PyTorch Lightning with one, in today's names or the first ones. TO, a new directory, gets config.json and
model.safetensors. Sizes are read off the tensors; what they do not tell are the options:

    --attention-heads   of the layers of softmax attention, if there are some: 12 for 125M, 16 for 355M and 1.3B, 20 for 2.7B
    --rotary-dim        how much of each such head is rotated, where the file does not say (0: no positions); 64 as in the public models
    --discretization    of the diagonal SSM; bilinear in the public models

The checkpoints have no tokenizer of their own (they use GPT-2's), so the result is served with token ids. Only Python's
standard library is needed: the file is read as data, and no code that it may hold is run.
"""
import os
import re

from pytorch_file import PytorchFile, StoredTensor, make_parser, refuse, rows_of, run, write_checkpoint

GPT2_END_OF_TEXT = 50256
EMBEDDINGS = "backbone.embeddings.word_embeddings.weight"
OUTPUT_MAP = "lm_head.weight"
# Older files' beginnings of names.
OLD_NAMES = [(r"^s4seq\.encoder\.", "backbone."), (r"^embedding\.", "backbone.embeddings.word_embeddings."),
             (r"^backbone\.norm\.", "backbone.ln_f.")]


# ---------------------------------------------------------------- tensors in today's names
def model_tensors(contents):
    """{name: StoredTensor} of a plain dictionary, or of the model in a training checkpoint."""
    if "state_dict" in contents:
        state = contents["state_dict"]
        refuse(not isinstance(state, dict), "state_dict is not a dictionary of tensors")
        contents = {name[len("model."):]: tensor for name, tensor in state.items() if str(name).startswith("model.")}
    return {name: tensor for name, tensor in contents.items() if isinstance(name, str) and isinstance(tensor, StoredTensor)}


def rename_old(tensors):
    def new_name(name):
        for old, new in OLD_NAMES:
            name = re.sub(old, new, name)
        return name

    return {new_name(name): tensor for name, tensor in tensors.items()}


def shift_norms(tensors, layers):
    """Older files name a norm after the layer before it: ln_0, then norm1 after a mixer and norm2 after an MLP. Today's name it after
    what comes next: norm1 before a mixer, norm2 before an MLP, ln_f at the end."""
    if "backbone.ln_0.weight" not in tensors:
        return tensors
    new = {"backbone.ln_0": "backbone.layers.0.norm1"}
    for i in range(layers):
        new[f"backbone.layers.{i}.norm1"] = f"backbone.layers.{i}.norm2"
        new[f"backbone.layers.{i}.norm2"] = f"backbone.layers.{i + 1}.norm1" if i + 1 < layers else "backbone.ln_f"

    def new_name(name):
        norm, _, kind = name.rpartition(".")
        return f"{new.get(norm, norm)}.{kind}"

    return {new_name(name): tensor for name, tensor in tensors.items()}


def count_layers(tensors):
    found = {int(m.group(1)) for m in (re.match(r"backbone\.layers\.(\d+)\.", name) for name in tensors) if m}
    refuse(not found or EMBEDDINGS not in tensors, f"this is not an H3 model: it has no {EMBEDDINGS} or no backbone.layers")
    refuse(found != set(range(len(found))), f"the layers are {sorted(found)}: some are missing")
    return len(found)


# ---------------------------------------------------------------- config.json
def shape_of(tensors, name, dimensions):
    refuse(name not in tensors, f"the file has no tensor {name}")
    shape = tensors[name].shape
    refuse(len(shape) != dimensions, f"{name} has shape {list(shape)}, expected {dimensions} dimensions")
    return shape


def h3_sizes(tensors, layer, hidden):
    mixer = f"backbone.layers.{layer}.mixer."
    heads = shape_of(tensors, mixer + "D", 1)[0]
    refuse(heads == 0 or hidden % heads, f"{mixer}D has {heads} heads, which do not divide the width {hidden}")
    return {"d_state": shape_of(tensors, mixer + "ssm_k_kernel.kernel.B", 2)[1], "head_dim": hidden // heads,
            "n_ssm": shape_of(tensors, mixer + "kernel.kernel.inv_A_real", 2)[0]}


def same_sizes(sizes):
    """Of all layers of one kind; {layer: sizes}."""
    first = next(iter(sizes), None)
    for layer in sizes:
        refuse(sizes[layer] != sizes[first], f"layers {first} and {layer} differ: {sizes[first]} and {sizes[layer]}")
    return sizes.get(first, {})


def rotary_dim(tensors, attention_layers, otherwise):
    """Twice the frequencies, where the file has them."""
    for layer in attention_layers:
        frequencies = tensors.get(f"backbone.layers.{layer}.mixer.rotary_emb.inv_freq")
        if frequencies is not None:
            return 2 * frequencies.shape[0]
    return otherwise


def attention_keys(tensors, layers, hidden, options):
    if not layers:
        return {}
    heads = options.attention_heads
    refuse(heads is None, f"layers {layers} are softmax attention, and a file does not say of how many heads: add --attention-heads "
           "(12 for H3-125M, 16 for 355M and 1.3B, 20 for 2.7B)")
    refuse(heads < 1 or hidden % heads, f"--attention-heads {heads} does not divide the width {hidden}")
    rotary = rotary_dim(tensors, layers, options.rotary_dim)
    refuse(rotary < 0 or rotary % 2 or rotary > hidden // heads,
           f"{rotary} rotary dimensions do not fit heads of {hidden // heads}: set --rotary-dim to an even number, 0 for no positions")
    return {"attn_layer_idx": layers, "num_attention_heads": heads, "rotary_dim": rotary}


def make_config(tensors, layers, tied, options):
    vocab, hidden = shape_of(tensors, EMBEDDINGS, 2)
    attention = [i for i in range(layers) if f"backbone.layers.{i}.mixer.Wqkv.weight" in tensors]
    config = {"model_type": "h3", "hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": vocab,
              **same_sizes({i: {"intermediate_size": shape_of(tensors, f"backbone.layers.{i}.mlp.fc1.weight", 2)[0]} for i in range(layers)}),
              **same_sizes({i: h3_sizes(tensors, i, hidden) for i in range(layers) if i not in attention}),
              "discretization": options.discretization, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": tied,
              **attention_keys(tensors, attention, hidden, options)}
    if vocab > GPT2_END_OF_TEXT:
        config["eos_token_id"] = GPT2_END_OF_TEXT
    return config


# ---------------------------------------------------------------- tensors in the server's names
def split_attention(name, tensor):
    """{name: tensor}; Wqkv holds q, then k, then v."""
    if ".mixer.Wqkv." in name:
        rows = tensor.shape[0] // 3
        refuse(tensor.shape[0] % 3, f"{name} has {tensor.shape[0]} rows, which cannot be q, k and v of one size")
        return {name.replace("Wqkv", part + "_proj"): rows_of(tensor, i * rows, rows) for i, part in enumerate("qkv")}
    return {name.replace(".mixer.out_proj.", ".mixer.o_proj."): tensor}


def is_tied(tensors, file):
    """Whether the output map is the embeddings, as in the public models. Trained apart from them, it is kept."""
    if OUTPUT_MAP not in tensors:
        return True
    head, embeddings = tensors[OUTPUT_MAP], tensors[EMBEDDINGS]
    return head.shape == embeddings.shape and file.bytes_of(head) == file.bytes_of(embeddings)


def served_tensors(tensors, tied):
    refuse("backbone.embeddings.position_embeddings.weight" in tensors, "the model has position embeddings: not served")
    served = {}
    for name, tensor in tensors.items():
        computed = ".rotary_emb." in name
        if computed or (tied and name == OUTPUT_MAP):
            continue
        served.update(split_attention(name, tensor))
    return served


def convert(source, target, options):
    path = os.path.join(source, "model.pt") if os.path.isdir(source) else source
    file = PytorchFile(path, ignore_others=True)
    tensors = rename_old(model_tensors(file.contents))
    layers = count_layers(tensors)
    tensors = shift_norms(tensors, layers)
    tied = is_tied(tensors, file)
    config, served = make_config(tensors, layers, tied, options), served_tensors(tensors, tied)
    write_checkpoint(target, config, served, file)


def parse_arguments(arguments=None):
    parser = make_parser(__doc__)
    parser.add_argument("--attention-heads", type=int, help="heads of the attention layers; needed if there are any")
    parser.add_argument("--rotary-dim", type=int, default=64, help="of the attention layers, where the file does not tell (64); 0: no positions")
    parser.add_argument("--discretization", choices=["bilinear", "zoh"], default="bilinear",
                        help="of the diagonal model (bilinear)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse_arguments()
    run("convert_h3", convert, options.source, options.target, options)
