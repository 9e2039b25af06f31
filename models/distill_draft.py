# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Distils draft models from an exported model: on the books, and on text that it wrote itself.

    python3 synthesize.py --data work --teacher tales --out work/tales.npy --temperatures 1 0.8 0.6 0
    python3 distill_draft.py --data work --teacher tales --written work/tales.npy --config configs/tales-draft.json \\
        --out work/draft --minutes 4
    python3 export.py --model work/draft/draft.pt --data work --out tales-draft
    python3 distill_draft.py --data work --teacher tales --written work/tales.npy --measure tales-draft

--data is the folder of data.py, made with the teacher's tokenizer.model in it: a draft model needs the same
vocabulary. The loss is the cross-entropy with the teacher's whole distribution. Several students can share the
batches and the teacher's passes: --student NAME '{"num_hidden_layers": 2}' is one, with keys over --config;
"overlap_weight" adds so many times 1 - sum_v min(p_v, q_v) to its loss.
"""
import argparse
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

from data import Corpus
from export import load_export
from model import DEFAULTS, LanguageModel, num_parameters
from muon import Optimizer
from train import Schedule, save_model, written_windows

HELD_BACK = 256  # the last rows of --written: not trained on
WINDOWS = (0.05, 0.1, 0.2)


def principal_components(embeddings, width):
    """[V, E] -> [V, width], the directions of largest variance about zero."""
    _, _, v = torch.linalg.svd(embeddings, full_matrices=False)
    return embeddings @ v[:width].T


class Student:
    def __init__(self, args, name, keys, teacher, device):
        with open(args.config) as f:
            config = {**json.load(f), **keys}
        self.name, self.overlap_weight = name, config.pop("overlap_weight", 0.0)
        self.model = LanguageModel(config, dtype=teacher.dtype).to(device)
        width = {**DEFAULTS, **config}["hidden_size"]
        self.model.embeddings.weight.data = principal_components(teacher.embeddings.weight, width).contiguous()
        self.optimizer = Optimizer(self.model, args.lr, args.muon_lr, args.weight_decay)
        self.recent = []

    def step(self, ids, p, scale):
        """ids [B, T]; p [B, T, V], the teacher's distributions."""
        log_q = F.log_softmax(self.model(ids).float(), -1)
        loss = nats = -(p * log_q).sum(-1).mean()
        if self.overlap_weight:
            loss = nats + self.overlap_weight * (0.5 * (p - log_q.exp()).abs().sum(-1).mean())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step(scale)
        self.optimizer.zero_grad()
        self.recent.append(nats.detach())

    def report(self):
        mean, self.recent = torch.stack(self.recent).mean().item(), []
        return f"{self.name} {mean:.3f}"

    def save(self, args):
        os.makedirs(args.out, exist_ok=True)
        save_model(self.model, os.path.join(args.out, self.name + ".pt"), args=vars(args))


def batch(args, corpus, written, rng):
    ids = corpus.windows(rng, args.batch, args.length)
    share = round(args.batch * args.written_share)
    ids[:share] = written_windows(written[:-HELD_BACK], rng, share, args.length)
    return torch.from_numpy(ids)


def train(args, students, teacher, corpus, written, device):
    rng, schedule, step = np.random.default_rng(args.seed), Schedule(args.steps, args.minutes), 0
    begin, reported = time.time(), time.time()
    while schedule.progress(step) < 1:
        ids = batch(args, corpus, written, rng).to(device)
        with torch.no_grad():
            p = F.softmax(teacher(ids).float(), -1)
        for student in students:
            student.step(ids, p, schedule.scale(step))
        step += 1
        if time.time() - reported > args.report or step == 1:
            reported = time.time()
            print(f"step {step}, {step * ids.numel()} tokens, {time.time() - begin:.0f} s, cross-entropy:",
                  ", ".join(student.report() for student in students), flush=True)
            for student in students:
                student.save(args)
    for student in students:
        student.save(args)
    print(f"{step} steps of {args.batch * args.length} tokens, {time.time() - begin:.0f} s", flush=True)


# ---------------------------------------------------------------- how often a guess would be right
def drawn(p, u):
    """The token that the server draws with the random number u: ids in ascending order. p [N, V], u [N, 1]"""
    return (p.cumsum(-1) <= u * p.sum(-1, keepdim=True)).sum(-1).clamp(max=p.shape[-1] - 1)


def likeliest_near(q, u, width):
    """The token with most of its weight within `width` of the random number."""
    end = q.cumsum(-1)
    return (torch.minimum(end, u + width) - torch.maximum(end - q, u - width)).clamp(min=0).argmax(-1)


@torch.no_grad()
def agreement(teacher, student, ids, temperature, generator):
    """Shares of tokens [name: value]: same most likely token; sum_v min(p_v, q_v); and how often the teacher's
    sample is the student's most likely token, its sample with the same random number, and likeliest_near."""
    p, q = (F.softmax(model(ids).float() / temperature, -1).flatten(0, 1) for model in (teacher, student))
    u = torch.rand(p.shape[0], 1, generator=generator).to(p.device)
    right = drawn(p, u)
    guesses = {"most likely": q.argmax(-1), "same number": drawn(q, u),
               **{f"within {w}": likeliest_near(q, u, w) for w in WINDOWS}}
    return {"same best": (p.argmax(-1) == q.argmax(-1)).float().mean().item(),
            "overlap": torch.minimum(p, q).sum(-1).mean().item(),
            **{name: (guess == right).float().mean().item() for name, guess in guesses.items()}}


def measure(name, teacher, student, texts, rows=4):
    for text, ids in texts.items():
        for temperature in (1.0, 0.7):
            generator, parts = torch.Generator().manual_seed(1), []
            for i in range(0, len(ids), rows):
                parts.append(agreement(teacher, student, ids[i:i + rows], temperature, generator))
            means = ", ".join(f"{key} {np.mean([part[key] for part in parts]):.3f}" for key in parts[0])
            print(f"{name}, {text}, temperature {temperature}: {means}", flush=True)


def measured_texts(corpus, written, temperatures, device, rows=32, length=256):
    """Held-out text, and the text that was held back, by the temperature at which it was written."""
    texts = {"held-out books": corpus.blocks("held_out")[::12, :length]}
    if written is not None:
        back, first = written[-HELD_BACK:], len(written) - HELD_BACK
        for i, temperature in enumerate(temperatures):
            own = [row for n, row in enumerate(back) if (first + n) % len(temperatures) == i]
            texts[f"written at {temperature}"] = np.stack(own)[:rows, :length].astype(np.int64)
    return {name: torch.from_numpy(ids).to(device) for name, ids in texts.items()}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder made by data.py")
    p.add_argument("--teacher", required=True, help="the exported model that the draft model serves")
    p.add_argument("--written", help="text of the teacher (synthesize.py)")
    p.add_argument("--temperatures", nargs="+", type=float, default=[1.0, 0.8, 0.6, 0.0], help="those of --written")
    p.add_argument("--written-share", type=float, default=0.6)
    p.add_argument("--config", help="config.json of the students")
    p.add_argument("--student", nargs=2, action="append", metavar=("NAME", "KEYS"), default=None)
    p.add_argument("--out")
    p.add_argument("--measure", nargs="*", metavar="FOLDER", help="compare exported students with the teacher; no training")
    p.add_argument("--minutes", type=float, default=20)
    p.add_argument("--steps", type=int, default=20000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--report", type=float, default=15, help="seconds between two reports")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    teacher = load_export(args.teacher, device, torch.bfloat16 if device == "cuda" else torch.float32)
    corpus, written = Corpus(args.data), np.load(args.written) if args.written else None
    texts = measured_texts(corpus, written, args.temperatures, device)
    if args.measure:
        for folder in args.measure:
            measure(folder, teacher, load_export(folder, device), texts)
        return
    students = [Student(args, name, json.loads(keys), teacher, device)
                for name, keys in args.student or [("draft", "{}")]]
    print(", ".join(f"{s.name}: {num_parameters(s.model)} parameters" for s in students), flush=True)
    train(args, students, teacher, corpus, written, device)
    for student in students:
        measure(student.name, teacher, student.model.eval(), texts)


if __name__ == "__main__":
    main()
