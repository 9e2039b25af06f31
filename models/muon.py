# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Muon for the matrices inside the layers, AdamW for everything else, as one optimizer.

Muon (Jordan et al. 2024): momentum, then the nearest semi-orthogonal matrix by five Newton-Schulz steps.
Matrices of one shape are orthogonalised together, so a step is a handful of batched products."""
from collections import defaultdict

import torch


def orthogonalise(g):
    """[N, R, C] -> the same with singular values near 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16() if g.is_cuda else g                    # a CPU may only emulate bf16
    wide = x.shape[1] <= x.shape[2]
    x = x if wide else x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x if wide else x.transpose(1, 2)


class MuonGroup:
    """All matrices of one shape."""

    def __init__(self, params):
        self.params = params
        self.momentum = torch.zeros(len(params), *params[0].shape, device=params[0].device)
        self.gain = max(1.0, params[0].shape[0] / params[0].shape[1]) ** 0.5

    def step(self, lr, weight_decay, beta=0.95):
        grads = torch.stack([p.grad for p in self.params]).float()
        self.momentum.lerp_(grads, 1 - beta)
        update = orthogonalise(grads.lerp(self.momentum, beta))
        torch._foreach_mul_(self.params, 1 - lr * weight_decay)
        torch._foreach_add_(self.params, list(update.float().unbind(0)), alpha=-lr * self.gain)


def is_matrix(name, p):
    return name.endswith("_proj.weight") and p.ndim == 2


class Optimizer:
    """Rates: `lr` for AdamW, `muon_lr` for matrices. Weight decay is decoupled; vectors have none."""

    def __init__(self, model, lr, muon_lr, weight_decay):
        shapes, rest = defaultdict(list), []
        for name, p in model.named_parameters():
            if is_matrix(name, p):
                shapes[tuple(p.shape)].append(p)
            else:
                rest.append(p)
        self.muon_lr, self.lr, self.weight_decay = muon_lr, lr, weight_decay
        self.groups = [MuonGroup(ps) for ps in shapes.values()]
        decayed = [p for p in rest if p.ndim == 2]
        self.adam = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": weight_decay},
             {"params": [p for p in rest if p.ndim != 2], "weight_decay": 0.0}],
            lr=lr, betas=(0.9, 0.95), fused=decayed[0].is_cuda)

    @torch.no_grad()
    def step(self, scale):
        for group in self.adam.param_groups:
            group["lr"] = self.lr * scale
        self.adam.step()
        for group in self.groups:
            group.step(self.muon_lr * scale, self.weight_decay)

    def zero_grad(self):
        self.adam.zero_grad(set_to_none=True)
        for group in self.groups:
            for p in group.params:
                p.grad = None
