# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a draft model for an exported model, on the CPU, from the books that the model was trained on.

    python3 train_draft.py --data work --teacher tales --config configs/tales-draft.json --out work/draft --minutes 20
    python3 export.py --model work/draft/model.pt --data work --out tales-draft
    python3 train_draft.py --data work --teacher tales --measure tales-draft    how often it says what tales says

--data is the folder of data.py, made with the teacher's tokenizer.model in it: the draft model needs the same
vocabulary. Its embeddings start as the principal components of the teacher's. The loss is that of the books' next
token, not of the teacher's probabilities: a pass of tales multiplies four times what a training step of so small a
model does.
"""
import argparse
import copy
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
from train import save_model

ROWS = 256  # logits of so many tokens at a time, so that they stay in the cache
WARMUP = 50  # steps


class VocabularyLoss(torch.autograd.Function):
    """Mean over n tokens of -log softmax(h W^T)[n, target[n]].  h [N, D], W [V, D], target [N].
    Both gradients are made in the forward pass."""

    @staticmethod
    def forward(ctx, h, w, target):
        n, nats = h.shape[0], 0.0
        dh, dw = torch.empty_like(h), torch.zeros_like(w)
        for i in range(0, n, ROWS):
            part, wanted = slice(i, i + ROWS), target[i:i + ROWS, None]
            logits = h[part] @ w.T
            lse = logits.logsumexp(-1, keepdim=True)
            nats += (lse - logits.gather(1, wanted)).sum().item()
            g = logits.sub_(lse).exp_()
            g.scatter_add_(1, wanted, torch.full_like(lse, -1.0)).div_(n)
            torch.matmul(g, w, out=dh[part])
            dw.addmm_(g.T, h[part])
        ctx.save_for_backward(dh, dw)
        return h.new_tensor(nats / n)

    @staticmethod
    def backward(ctx, scale):
        dh, dw = ctx.saved_tensors
        return scale * dh, scale * dw, None


def stream(model, ids):
    """[B, T] -> [B, T, D]: what the vocabulary's matrix multiplies."""
    x = model.embeddings(ids)
    for layer in model.layers:
        x = layer(x, model.dtype)
    return model.norm(x)


def principal_components(embeddings, width):
    """[V, E] -> [V, width], the directions of largest variance about zero."""
    _, _, v = torch.linalg.svd(embeddings, full_matrices=False)
    return embeddings @ v[:width].T


def new_student(args):
    with open(args.config) as f:
        config = json.load(f)
    model, teacher = LanguageModel(config), load_export(args.teacher)
    width = {**DEFAULTS, **config}["hidden_size"]
    model.embeddings.weight.data = principal_components(teacher.embeddings.weight, width).contiguous()
    return model


class Average:
    """The mean of the weights over about the last tenth of the steps, in place of a falling rate: a run on a busy
    machine may then end at any time."""

    def __init__(self, model):
        self.live, self.model = model, copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def add(self, step):
        for mean, now in zip(self.model.parameters(), self.live.parameters()):
            mean.lerp_(now, 1 / (1 + 0.1 * step))


def train(args, model, corpus):
    rng = np.random.default_rng(args.seed)
    optimizer, average = Optimizer(model, args.lr, args.muon_lr, args.weight_decay), Average(model)
    begin, step, recent, reported = time.time(), 0, [], 0
    while time.time() - begin < 60 * args.minutes:
        ids = torch.from_numpy(corpus.windows(rng, args.batch, args.length + 1))
        h = stream(model, ids[:, :-1]).flatten(0, 1)
        loss = VocabularyLoss.apply(h, model.embeddings.weight, ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(min(1.0, (step + 1) / WARMUP))
        optimizer.zero_grad()
        average.add(step)
        step += 1
        recent.append(loss.item())
        if time.time() - begin > reported:
            reported = time.time() - begin + args.report
            print(f"step {step}, {step * h.shape[0]} tokens, {time.time() - begin:.0f} s, cpu {time.process_time():.0f} s, "
                  f"nats {np.mean(recent):.3f}", flush=True)
            recent = []
            save(args, average.model)
    save(args, average.model)
    return step


def save(args, model):
    os.makedirs(args.out, exist_ok=True)
    save_model(model, os.path.join(args.out, "model.pt"), args=vars(args))


@torch.no_grad()
def measure(args):
    """On the first tokens of held-out blocks: how often both models find the same token most likely, and the mean
    of sum_v min(p_v, q_v), which bounds how often samples of the two can be the same."""
    blocks = torch.from_numpy(Corpus(args.data).blocks("held_out")[::30, :256])
    p, q = (F.softmax(load_export(folder)(blocks), -1) for folder in (args.teacher, args.measure))
    same = (p.argmax(-1) == q.argmax(-1)).float().mean().item()
    print(f"{args.measure}: {blocks.numel()} held-out tokens, same most likely token {same:.3f}, "
          f"overlap {torch.minimum(p, q).sum(-1).mean().item():.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder made by data.py")
    p.add_argument("--teacher", required=True, help="the exported model that the draft model serves")
    p.add_argument("--config", help="config.json of the student")
    p.add_argument("--out")
    p.add_argument("--measure", metavar="FOLDER", help="compare an exported student with the teacher; no training")
    p.add_argument("--minutes", type=float, default=20)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--report", type=float, default=60, help="seconds between two reports")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    if args.measure:
        return measure(args)
    model = new_student(args)
    print(f"{num_parameters(model)} parameters", flush=True)
    print(f"{train(args, model, Corpus(args.data))} steps", flush=True)


if __name__ == "__main__":
    main()
