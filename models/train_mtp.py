# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a small Qwen3.5 with its head for further tokens (qwen_mtp.py) on the books of tales, to measure how many
guesses of such a head are right.

    python3 train_mtp.py --data work --written work/tales.npy --out work/mtp --minutes 4
    rivulet-server --model work/mtp --speculate mtp

--out is a folder that the server loads. --written (synthesize.py) is optional.
"""
import argparse
import json
import os
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from data import Corpus
from muon import Optimizer
from qwen_mtp import TALES, QwenWithPredictor
from train import Schedule, bits_per_character, written_windows

WEIGHTS = (1.0, 0.3, 0.1)  # of the losses: the next token, the guess after it, the guess after that


def batch(args, corpus, written, rng):
    ids = corpus.windows(rng, args.batch, args.length)
    if written is not None:
        share = round(args.batch * args.written_share)
        ids[:share] = written_windows(written, rng, share, args.length)
    return torch.from_numpy(ids)


def losses(model, ids):
    """Of the token that follows, and of each guess: [the streams of place t are of token t + 1 + guess]."""
    return torch.stack([F.cross_entropy(model.logits(stream)[:, :-1].float().flatten(0, 1), ids[:, 1 + i:].flatten())
                        for i, stream in enumerate(model.streams(ids, len(WEIGHTS) - 1))])


def train(args, model, corpus, written, device, autocast):
    rng, schedule, step = np.random.default_rng(args.seed), Schedule(args.steps, args.minutes), 0
    optimizer, weights = Optimizer(model, args.lr, args.muon_lr, args.weight_decay), torch.tensor(WEIGHTS, device=device)
    begin, reported, recent = time.time(), time.time(), []
    while schedule.progress(step) < 1:
        with autocast():
            parts = losses(model, batch(args, corpus, written, rng).to(device))
        (parts * weights).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(schedule.scale(step))
        optimizer.zero_grad()
        recent.append(parts.detach())
        step += 1
        if time.time() - reported > args.report or step == 1:
            reported, nats = time.time(), torch.stack(recent).mean(0).tolist()
            print(f"step {step}, {time.time() - begin:.0f} s, nats of the next token and of the guesses:",
                  " ".join(f"{x:.3f}" for x in nats), flush=True)
            recent = []
            save(args, model)
    save(args, model)
    print(f"{step} steps of {args.batch * args.length} tokens, {time.time() - begin:.0f} s", flush=True)


def save(args, model):
    os.makedirs(args.out, exist_ok=True)
    weights = {k: v.detach().to(torch.bfloat16).cpu().contiguous() for k, v in model.state_dict().items()}
    save_file(weights, os.path.join(args.out, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(args.out, "config.json"), "w") as f:
        json.dump(model.config, f, indent=1)
        f.write("\n")
    shutil.copy(os.path.join(args.data, "tokenizer.model"), args.out)


@torch.no_grad()
def measure(model, corpus, device, autocast):
    """Bits per character of held-out blocks, and how often the heads' most likely token is the model's."""
    model.eval()
    with autocast():
        bits, nats = bits_per_character(lambda x: model.logits(model.streams(x)[0]), corpus.blocks("held_out"), corpus.chars,
                                        device)
        ids = torch.from_numpy(corpus.blocks("held_out")[::8]).to(device)
        best, *guesses = (model.logits(stream).argmax(-1) for stream in model.streams(ids, len(WEIGHTS) - 1))
    same = [f"{(guess == best[:, i + 1:]).float().mean().item():.3f}" for i, guess in enumerate(guesses)]
    print(f"held out: {bits:.4f} bits/character, {nats:.4f} nats/token; the model's most likely token is that of the guess: "
          f"{' '.join(same)}", flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder made by data.py")
    p.add_argument("--out", required=True)
    p.add_argument("--written", help="text of a teacher (synthesize.py)")
    p.add_argument("--written-share", type=float, default=0.5)
    p.add_argument("--minutes", type=float, default=20)
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--dropout", type=float, default=0.05)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--report", type=float, default=15, help="seconds between two reports")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    autocast = lambda: torch.autocast(device, torch.bfloat16, enabled=device == "cuda")
    corpus, written = Corpus(args.data), np.load(args.written) if args.written else None
    model = QwenWithPredictor(TALES, args.dropout).to(device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    train(args, model, corpus, written, device, autocast)
    measure(model, corpus, device, autocast)


if __name__ == "__main__":
    main()
