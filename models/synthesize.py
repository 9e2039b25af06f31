# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Generates text with a teacher (hla or gla layers), on which the student trains in addition to the books.

    python3 synthesize.py --data work --teacher work/teacher1/model.pt --out work/written.npy --rounds 16

Each row opens with a few tokens of a random training window (held-out blocks are never touched) and goes on
by itself; --out gets [rows * rounds, length] token ids."""
import argparse
import time

import numpy as np
import torch

from data import Corpus
from decode import Writer
from train import load_model


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--teacher", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--rows", type=int, default=512)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--prompt", type=int, default=8)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    corpus, rng, begin = Corpus(args.data), np.random.default_rng(args.seed), time.time()
    writer, out = Writer(load_model(args.teacher, device, torch.float32), args.rows), []
    for _ in range(args.rounds):
        prompts = corpus.windows(rng, args.rows, args.prompt, entry_share=0.5)
        out.append(writer.write(torch.from_numpy(prompts).to(device), args.length).to(torch.int16).cpu().numpy())
    np.save(args.out, np.concatenate(out).view(np.uint16))
    print(f"== {args.out}: {args.rows * args.rounds * args.length} tokens, {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
