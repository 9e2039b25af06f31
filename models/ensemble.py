# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Bits per character of the teachers' averaged distribution:  python3 ensemble.py --data work --teachers A B"""
import argparse

import torch

from data import Corpus
from train import Ensemble, bits_per_character


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--data", required=True)
    p.add_argument("--teachers", nargs="+", required=True)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    corpus, ensemble = Corpus(args.data), Ensemble(args.teachers, device, torch.bfloat16, False)
    for name in ("validation", "held_out"):
        bits, nats = bits_per_character(ensemble.logits, corpus.blocks(name), corpus.chars, device)
        print(f"== {len(args.teachers)} teachers, {name}: {bits:.4f} bits/character, "
              f"{nats:.4f} nats/token", flush=True)


if __name__ == "__main__":
    main()
