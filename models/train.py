# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a language model on a prepared folder (data.py), with or without teachers.

    python3 train.py --data work --config configs/teacher.json --out work/teacher1 --dropout 0.25
    python3 train.py --data work --config configs/tales.json --out work/student --teachers work/teacher*/model.pt

With teachers the loss is  a · CE(mean of the teachers' probabilities) + (1 - a) · CE(next token).  The
learning rate warms up, stays, and falls linearly to zero over the last part of the run; --minutes shortens
a run that would take longer, schedule included.
"""
import argparse
import csv
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

from data import Corpus
from model import LanguageModel, num_parameters
from muon import Optimizer

LN2 = math.log(2)


def load_model(path, device, dtype):
    saved = torch.load(path, map_location=device, weights_only=False)
    model = LanguageModel(saved["config"], dtype=dtype).to(device)
    model.load_state_dict({k: v.float() for k, v in saved["weights"].items()})
    return model.eval().requires_grad_(False)


def save_model(model, path, **extra):
    weights = {k: v.detach().to(torch.bfloat16).cpu() for k, v in model.state_dict().items()}
    torch.save({"config": model.config, "weights": weights, **extra}, path)


# ---------------------------------------------------------------- measuring
@torch.no_grad()
def bits_per_character(forward, blocks, chars, device, batch=32):
    """Bits per character over the blocks: every token except a block's first is predicted from the tokens of
    its own block; nats divided by the characters of those tokens. Also nats per token."""
    nats, characters, tokens = 0.0, 0, 0
    for i in range(0, len(blocks), batch):
        x = torch.from_numpy(blocks[i:i + batch]).to(device)
        logits = forward(x)[:, :-1].float()
        nats += F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="sum").item()
        characters += int(chars[blocks[i:i + batch, 1:]].sum())
        tokens += x[:, 1:].numel()
    return nats / characters / LN2, nats / tokens


# ---------------------------------------------------------------- losses
def next_tokens(x):
    """The targets of x: the next token, none for the last."""
    return F.pad(x[:, 1:], (0, 1), value=-100)


def data_loss(model, inputs, targets):
    return F.cross_entropy(model(inputs).float().flatten(0, 1), targets.flatten(), ignore_index=-100)


def distill_loss(model, inputs, targets, teacher, share):
    """`share` of the teachers' distribution and the rest of the data's next token."""
    log_p = F.log_softmax(model(inputs).float(), -1)
    hard = F.nll_loss(log_p.flatten(0, 1), targets.flatten(), ignore_index=-100)
    soft = -(teacher.float() * log_p).sum(-1)[:, :-1].mean()
    return share * soft + (1 - share) * hard, hard


def add_probabilities(total, model, inputs, weight):
    return total + weight * F.softmax(model(inputs).float(), -1)


class Ensemble:
    """The mean of the teachers' next-token probabilities."""

    def __init__(self, paths, device, dtype, compiled):
        self.models = [load_model(p, device, dtype) for p in paths]
        self.add = torch.compile(add_probabilities, dynamic=False) if compiled else add_probabilities

    @torch.no_grad()
    def __call__(self, x):
        total = torch.zeros((), device=x.device)
        for model in self.models:
            total = self.add(total, model, x, 1.0 / len(self.models))
        return total.to(torch.bfloat16)

    @torch.no_grad()
    def logits(self, x):
        return self(x).float().clamp(min=1e-9).log()


# ---------------------------------------------------------------- the run
class Schedule:
    """Progress from 0 to 1, by steps or by time, whichever is further."""

    def __init__(self, steps, minutes, warmup=100, decay_share=0.6):
        self.steps, self.seconds, self.warmup, self.decay = steps, minutes * 60, warmup, decay_share
        self.begin = None

    def progress(self, step):
        if self.begin is None and step >= 10:                # compilation is over
            self.begin = time.time()
        clock = (time.time() - self.begin) / self.seconds if self.begin else 0.0
        return max(step / self.steps, clock)

    def scale(self, step):
        return min((step + 1) / self.warmup, max(0.0, 1 - self.progress(step)) / self.decay, 1.0)


def batch_lengths(args, rng):
    """Window length of the next batch: mostly the short one."""
    return args.long if rng.random() < args.long_share else args.length


def written_windows(written, rng, rows, length):
    row = rng.integers(len(written), size=rows)[:, None]
    start = rng.integers(written.shape[1] - length + 1, size=rows) * (rng.random(rows) < 0.5)
    return written[row, start[:, None] + np.arange(length)].astype(np.int64)


class Trainer:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args, self.rng = args, np.random.default_rng(args.seed)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.corpus = Corpus(args.data)
        with open(args.config) as f:
            config = json.load(f)
        for item in args.set:
            key, value = item.split("=", 1)
            config[key] = json.loads(value)
        self.model = LanguageModel(config, args.dropout, self.dtype).to(self.device)
        self.optimizer = Optimizer(self.model, args.lr, args.muon_lr, args.weight_decay)
        compiled = self.device == "cuda" and not args.eager
        self.teachers = Ensemble(args.teachers, self.device, self.dtype, compiled) if args.teachers else None
        loss = distill_loss if args.teachers else data_loss
        self.loss = torch.compile(loss, dynamic=False) if compiled else loss
        self.written = np.concatenate([np.load(f) for f in args.written]) if args.written else None
        self.log = []

    def batch(self):
        length = batch_lengths(self.args, self.rng)
        rows = max(1, self.args.batch_tokens // length)
        window = self.corpus.windows(self.rng, rows, length, self.args.entry_share)
        if self.written is not None and length == self.args.length:
            share = round(rows * self.args.written_share)    # rows from text generated by a teacher
            window[:share] = written_windows(self.written, self.rng, share, length)
        return torch.from_numpy(window).to(self.device, non_blocking=True)

    def step(self, scale):
        x = self.batch()
        inputs, targets = x, next_tokens(x)
        if self.args.token_dropout:
            keep = torch.rand(x.shape, device=x.device) >= self.args.token_dropout
            inputs = x * keep                                # the unknown token is 0
        if self.teachers:
            loss, hard = self.loss(self.model, inputs, targets, self.teachers(x), self.args.teacher_share)
        else:
            hard = loss = self.loss(self.model, inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step(scale)
        self.optimizer.zero_grad()
        return hard.detach()

    def validate(self, name="validation"):
        self.model.eval()
        result = bits_per_character(self.model, self.corpus.blocks(name), self.corpus.chars, self.device)
        self.model.train()
        return result

    def report(self, step, recent):
        train = torch.stack(recent).mean().item()
        bits, nats = self.validate()
        row = {"step": step, "tokens": step * self.args.batch_tokens,
               "seconds": round(time.time() - self.started, 1), "train_nats": round(train, 4),
               "validation_nats": round(nats, 4), "validation_bits_per_char": round(bits, 4)}
        self.log.append(row)
        if len(self.log) % self.args.print_every == 0:
            print(self.args.out.split("/")[-1], *row.values(), flush=True)

    def run(self):
        schedule = Schedule(self.args.steps, self.args.minutes)
        self.started, recent, step = time.time(), [], 0
        while schedule.progress(step) < 1:
            recent.append(self.step(schedule.scale(step)))
            step += 1
            if step % self.args.eval_every == 0:
                self.report(step, recent)
                recent = []
        if recent:
            self.report(step, recent)
        return step

    def finish(self, step):
        os.makedirs(self.args.out, exist_ok=True)
        with open(os.path.join(self.args.out, "train_log.csv"), "w", newline="") as f:
            writer = csv.DictWriter(f, self.log[0].keys())
            writer.writeheader()
            writer.writerows(self.log)
        save_model(self.model, os.path.join(self.args.out, "model.pt"), args=vars(self.args))
        last = self.log[-1]
        print(f"== {self.args.out.split('/')[-1]}: {num_parameters(self.model) / 1e6:.2f}M, {step} steps, "
              f"{last['seconds']} s, train {last['train_nats']}, validation {last['validation_nats']} = "
              f"{last['validation_bits_per_char']} bits/char", flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder made by data.py")
    p.add_argument("--config", required=True, help="config.json of the model")
    p.add_argument("--set", nargs="*", default=[], help="KEY=JSON, over the config")
    p.add_argument("--out", required=True)
    p.add_argument("--teachers", nargs="*", default=[], help="model.pt of each teacher")
    p.add_argument("--teacher-share", type=float, default=0.9)
    p.add_argument("--written", nargs="*", default=[], help="text written by teachers (synthesize.py)")
    p.add_argument("--written-share", type=float, default=0.5)
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--batch-tokens", type=int, default=32768)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--long", type=int, default=2048)
    p.add_argument("--long-share", type=float, default=0.0)
    p.add_argument("--entry-share", type=float, default=0.1)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--token-dropout", type=float, default=0.0)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--eval-every", type=int, default=200)
    p.add_argument("--print-every", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--eager", action="store_true", help="no torch.compile")
    return p.parse_args()


def main():
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64                # one per window length and teacher
    trainer = Trainer(arguments())
    trainer.finish(trainer.run())


if __name__ == "__main__":
    main()
