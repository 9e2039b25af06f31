# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Training checkpoint -> a directory that the server loads: config.json, model.safetensors (bf16), tokenizer.

    python3 export.py --model work/student/model.pt --data work --out tales
    python3 export.py --check tales            compare with the NumPy float64 oracle of tests/parity
    python3 export.py --measure tales --data work                    held-out bits per character, fp32
"""
import argparse
import json
import os
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from data import Corpus
from model import DEFAULTS, LanguageModel, num_parameters
from train import bits_per_character


def tensor_name(name):
    return "model." + name


def export(args):
    saved = torch.load(args.model, map_location="cpu", weights_only=False)
    os.makedirs(args.out, exist_ok=True)
    weights = {tensor_name(k): v.to(torch.bfloat16).contiguous() for k, v in saved["weights"].items()}
    save_file(weights, os.path.join(args.out, "model.safetensors"), metadata={"format": "pt"})
    config = {**DEFAULTS, **saved["config"], "architectures": ["RivuletForCausalLM"], "torch_dtype": "bfloat16"}
    with open(os.path.join(args.out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    for name in ("tokenizer.model", "split.json"):
        shutil.copy(os.path.join(args.data, name), args.out)


def load_export(folder, device="cpu", dtype=torch.float32):
    """The model of an exported directory, with the file's weights and arithmetic in `dtype`."""
    with open(os.path.join(folder, "config.json")) as f:
        model = LanguageModel(json.load(f), dtype=dtype)
    weights = load_file(os.path.join(folder, "model.safetensors"))
    model.load_state_dict({k[len("model."):]: v.float() for k, v in weights.items()})
    return model.to(device).eval().requires_grad_(False)


def check(args):
    """Compares the logits of a few hundred tokens, in fp32 here and in fp64 by the oracle, from the same bf16 weights."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "parity"))
    import oracle
    import safetensors_file
    model = load_export(args.check)
    with open(os.path.join(args.check, "config.json")) as f:
        config = json.load(f)
    weights = {k: v.astype(np.float64) for k, v in safetensors_file.read(os.path.join(args.check, "model.safetensors")).items()}
    ids = np.random.default_rng(args.seed).integers(3, config["vocab_size"], args.tokens)
    if args.data:
        ids = Corpus(args.data).blocks("held_out")[0][:args.tokens]
    expected = oracle.logits(config, weights, ids)
    got = model(torch.from_numpy(ids)[None])[0].double().numpy()
    difference = np.abs(expected - got).max()
    print(f"{len(ids)} tokens, logits std {expected.std():.3f}, max |difference| {difference:.2e}, "
          f"same argmax {(expected.argmax(-1) == got.argmax(-1)).mean():.4f}")
    return difference < 2e-4


def measure(args):
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, corpus = load_export(args.measure, device), Corpus(args.data)
    for name in ("validation", "held_out"):
        bits, nats = bits_per_character(model, corpus.blocks(name), corpus.chars, device, batch=16)
        print(f"{args.measure}: {num_parameters(model)} parameters, {name}: {bits:.4f} bits/character, "
              f"{nats:.4f} nats/token")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--data")
    p.add_argument("--out")
    p.add_argument("--check")
    p.add_argument("--tokens", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--measure")
    args = p.parse_args()
    if args.model:
        export(args)
    if args.check and not check(args):
        sys.exit("the exported model differs from the oracle")
    if args.measure:
        measure(args)


if __name__ == "__main__":
    main()
