# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes a Mamba-2 checkpoint of any shape with random weights of sensible scale, for benchmarks. What it says is noise.

    python3 tests/parity/make_random_mamba2.py DIR [--hidden 768 --layers 24 --head-dim 64 --state 128 --groups 1 --vocab 50288 --seed 1]
                                                   [--tied 1 --shards 1]

The defaults are state-spaces/mamba2-130m in bf16, tied: 258 MB in a few seconds, a tensor at a time. With `--hidden 4096 --layers 38
--shards 4` it is 8.2 GB in four files with an index. Needs NumPy.
"""
import argparse
import json
import os
import struct

import numpy as np

import safetensors_file


def tensors(a):
    """(name, shape, standard deviation, mean), in the order of the file; A_log and dt_bias as Mamba-2 starts training."""
    inner, heads = 2 * a.hidden, 2 * a.hidden // a.head_dim
    channels = inner + 2 * a.groups * a.state
    yield "backbone.embeddings.weight", (a.vocab, a.hidden), a.hidden ** -0.5, 0.0
    for i in range(a.layers):
        p = f"backbone.layers.{i}."
        yield p + "norm.weight", (a.hidden,), 0.1, 1.0
        yield p + "mixer.in_proj.weight", (inner + channels + heads, a.hidden), a.hidden ** -0.5, 0.0
        yield p + "mixer.conv1d.weight", (channels, 1, 4), 0.4, 0.0
        yield p + "mixer.conv1d.bias", (channels,), 0.1, 0.0
        yield p + "mixer.dt_bias", (heads,), 1.0, -4.6  # softplus: steps around 0.01
        yield p + "mixer.A_log", (heads,), 0.5, 1.5     # -A around 1 to 16
        yield p + "mixer.D", (heads,), 0.1, 1.0
        yield p + "mixer.norm.weight", (inner,), 0.1, 1.0
        yield p + "mixer.out_proj.weight", (a.hidden, inner), (inner * a.layers) ** -0.5, 0.0
    yield "backbone.norm_f.weight", (a.hidden,), 0.1, 1.0
    if not a.tied:
        yield "lm_head.weight", (a.vocab, a.hidden), a.hidden ** -0.5, 0.0


def config(a):
    return {"model_type": "mamba2", "hidden_size": a.hidden, "num_hidden_layers": a.layers, "vocab_size": a.vocab, "state_size": a.state,
            "conv_kernel": 4, "expand": 2, "head_dim": a.head_dim, "num_heads": 2 * a.hidden // a.head_dim, "n_groups": a.groups,
            "use_bias": False, "use_conv_bias": True, "time_step_limit": [0.0, {"__float__": "Infinity"}], "hidden_act": "silu",
            "layer_norm_epsilon": 1e-5, "residual_in_fp32": True, "tie_word_embeddings": bool(a.tied), "eos_token_id": 0}


def size(shape):
    return 2 * int(np.prod(shape))


def header(part):
    entries, end = {}, 0
    for name, shape, _, _ in part:
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size(shape)]}
        end += size(shape)
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def split(everything, shards):
    """The tensors in order, as lists of about equal size."""
    total, parts, done = sum(size(shape) for _, shape, _, _ in everything), [[] for _ in range(shards)], 0
    for tensor in everything:
        parts[min(shards - 1, done * shards // total)].append(tensor)
        done += size(tensor[1])
    return [part for part in parts if part]


def write_file(path, part, rng):
    with open(path, "wb") as file:
        file.write(header(part))
        for _, shape, deviation, mean in part:
            values = rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation) + np.float32(mean)
            file.write(safetensors_file.to_bytes(values, "BF16"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR")
    for name, default in dict(hidden=768, layers=24, head_dim=64, state=128, groups=1, vocab=50288, seed=1, tied=1, shards=1).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    a = parser.parse_args()
    os.makedirs(a.directory, exist_ok=True)
    with open(a.directory + "/config.json", "w") as file:
        json.dump(config(a), file, indent=1)
    rng, everything = np.random.default_rng(a.seed), list(tensors(a))
    parts = split(everything, a.shards)
    names = [f"model-{i + 1:05}-of-{len(parts):05}.safetensors" for i in range(len(parts))] if a.shards > 1 else ["model.safetensors"]
    for name, part in zip(names, parts):
        write_file(f"{a.directory}/{name}", part, rng)
    if a.shards > 1:
        weight_map = {tensor[0]: name for name, part in zip(names, parts) for tensor in part}
        with open(a.directory + "/model.safetensors.index.json", "w") as file:
            json.dump({"weight_map": weight_map}, file, indent=1)
    total = sum(size(shape) for _, shape, _, _ in everything)
    print(f"{a.directory}: {total // 2:,} parameters, {total:,} bytes")


if __name__ == "__main__":
    main()
