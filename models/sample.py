# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Prints samples of an exported model, token by token with decode.py.

    python3 sample.py tales --prompt "Once upon a time" --seeds 1 2 3
"""
import argparse
import json
import os

import sentencepiece
import torch

from data import BOS, EOS
from decode import Decoder
from export import load_export


def penalise(logits, seen, penalty):
    """Penalises tokens seen before, including the prompt: divides positive logits, multiplies negative ones."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def filtered(logits, s):
    """Probabilities after repetition penalty, temperature, top-k, min-p, top-p (in this order)."""
    p = torch.softmax(logits / s["temperature"], -1)
    order = p.argsort(-1, descending=True)
    p = p.gather(1, order)
    rank = torch.arange(p.shape[1], device=p.device)
    cut = (rank >= s["top_k"]) if s["top_k"] else rank < 0
    cut = cut | (p < s["min_p"] * p[:, :1]) | (p.cumsum(-1) - p > s["top_p"])
    p = p.masked_fill(cut, 0)
    return torch.zeros_like(p).scatter(1, order, p / p.sum(-1, keepdim=True))


@torch.no_grad()
def generate(model, prompt_ids, s, seeds, max_tokens, device):
    """One continuation of the prompt per seed: lists of ids, up to </s> or max_tokens."""
    decoder, rows = Decoder(model, len(seeds)), len(seeds)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    for i in prompt_ids:
        logits = decoder.step(torch.full((rows,), i, device=device))
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen[:, prompt_ids] = True
    out = []
    for _ in range(max_tokens):
        p = filtered(penalise(logits, seen, s["repetition_penalty"]), s).cpu()
        token = torch.cat([torch.multinomial(row, 1, generator=g) for row, g in zip(p, generators)])
        out.append(token)
        if all(EOS in row for row in torch.stack(out, 1).tolist()):
            break
        token = token.to(device)
        seen.scatter_(1, token[:, None], True)
        logits = decoder.step(token)
    sequences = torch.stack(out, 1).tolist()
    return [row[:row.index(EOS)] if EOS in row else row for row in sequences], [EOS in row for row in sequences]


def settings(folder, overrides):
    s = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    path = os.path.join(folder, "generation_config.json")
    if os.path.exists(path):
        with open(path) as f:
            s.update({k: v for k, v in json.load(f).items() if k in s})
    s.update({k: v for k, v in overrides.items() if v is not None})
    return s


def show(folder, model, tokenizer, args, s, device):
    for prompt in args.prompt:
        prompt_ids = [BOS] + tokenizer.encode(prompt)
        rows, ended = generate(model, prompt_ids, s, args.seeds, args.max_tokens, device)
        for seed, row, end in zip(args.seeds, rows, ended):
            print(f"\n### prompt {prompt!r}, seed {seed}, {s}{', ended by itself' if end else ''}\n")
            print(prompt + tokenizer.decode(row), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--prompt", nargs="+", default=["Once upon a time"])
    p.add_argument("--seeds", nargs="+", type=int, default=[1])
    p.add_argument("--max-tokens", type=int, default=300)
    for name, kind in (("temperature", float), ("top_k", int), ("top_p", float), ("min_p", float),
                       ("repetition_penalty", float)):
        p.add_argument("--" + name.replace("_", "-"), type=kind)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = sentencepiece.SentencePieceProcessor(
        model_file=os.path.join(args.folder, "tokenizer.model"))
    overrides = {k: getattr(args, k) for k in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
    show(args.folder, load_export(args.folder, device), tokenizer, args, settings(args.folder, overrides), device)


if __name__ == "__main__":
    main()
