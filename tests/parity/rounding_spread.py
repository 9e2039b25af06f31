#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""How far float32 programs of one model lie apart: is a difference that parity_test prints within what rounding alone makes?

    RIVULET_PARITY_DIR=FOLDER build/release/test/parity_test --gtest_filter='*LogProb*random_*' > LOG
    build/hf/bin/python tests/parity/rounding_spread.py LOG FOLDER [LEAST [DRAWS]]        as make_random_hf.py

For each checkpoint of FOLDER that LOG says differs by LEAST (2e-4) or more from float64: transformers' float32 as it is, and DRAWS (20)
times with every output of its embeddings and linear maps moved by one unit in the last place at most, at random, as another order of
summing would do. Prints the largest difference of log-probabilities from float64: ours, transformers' own, and the spread of the draws.
"""
import re
import sys

import safetensors.numpy
import torch
import transformers

UNIT = 2.0 ** -23


def differences(log, least):
    for line in open(log, encoding="utf-8"):
        match = re.match(r"(random_\S+): largest difference (\S+)", line)
        if match and float(match[2]) >= least:
            yield match[1], float(match[2])


def moved(generator):
    """A hook that moves what a module gives by one unit of its last place, back, or not at all."""
    def hook(_module, _inputs, output):
        steps = torch.randint(-1, 2, output.shape, generator=generator)
        return output * (1 + UNIT * steps.to(output.dtype))
    return hook


def distance(model, ids, expected):
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    return (logits.double().log_softmax(-1) - expected).abs().max().item()


def spread(folder, draws):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
    tensors = safetensors.numpy.load_file(f"{folder}/expected.safetensors")
    ids = torch.from_numpy(tensors["input_ids"]).long()
    expected = torch.from_numpy(tensors["logits"]).double().log_softmax(-1)
    as_it_is = distance(model, ids, expected)
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            module.register_forward_hook(moved(generator))
    return as_it_is, sorted(distance(model, ids, expected) for _ in range(draws))


def main(log, folder, least="2e-4", draws="20"):
    torch.set_num_threads(1)
    print("| checkpoint | ours | transformers' float32 | moved by one unit: least, median, most | draws that are further off than ours |")
    for name, ours in differences(log, float(least)):
        theirs, moved_by = spread(f"{folder}/{name}", int(draws))
        median = moved_by[len(moved_by) // 2]
        beyond = sum(value > ours for value in moved_by)
        print(f"| {name} | {ours:.1e} | {theirs:.1e} | {moved_by[0]:.1e}, {median:.1e}, {moved_by[-1]:.1e} | {beyond} of {len(moved_by)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
