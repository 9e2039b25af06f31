# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Generates text with a teacher (hla or gla layers), on which the student trains in addition to the books.

    python3 synthesize.py --data work --teacher work/teacher1/model.pt --out work/written.npy --rounds 16
    python3 synthesize.py --data work --teacher tales --out work/tales.npy --temperatures 1 0.8 0

Each row opens with a few tokens of a random training window (held-out blocks are never touched) and goes on
by itself; --out gets [rows * rounds, length] token ids."""
import argparse
import os
import time

import numpy as np
import torch

from data import Corpus
from decode import Writer
from export import load_export
from train import load_model


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--teacher", required=True, help="model.pt or an exported folder")
    p.add_argument("--out", required=True)
    p.add_argument("--rows", type=int, default=512)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--prompt", type=int, default=8)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--temperatures", nargs="+", type=float, default=[1.0], help="as many rows of each; 0 is greedy")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    corpus, rng, begin = Corpus(args.data), np.random.default_rng(args.seed), time.time()
    load = load_export if os.path.isdir(args.teacher) else load_model
    writer, out = Writer(load(args.teacher, device, torch.float32), args.rows, args.temperatures), []
    for _ in range(args.rounds):
        prompts = corpus.windows(rng, args.rows, args.prompt, entry_share=0.5)
        out.append(writer.write(torch.from_numpy(prompts).to(device), args.length).to(torch.int16).cpu().numpy())
    np.save(args.out, np.concatenate(out).view(np.uint16))
    print(f"== {args.out}: {args.rows * args.rounds * args.length} tokens, {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
