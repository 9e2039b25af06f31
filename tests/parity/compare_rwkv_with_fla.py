#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Compares RWKV-6 and RWKV-7 fixtures with fla's modelling code, in float64 on the CPU.

    python3 tests/parity/compare_rwkv_with_fla.py [NAME ...]     needs torch, transformers, einops, safetensors and flash-linear-attention

fla's kernels need a GPU. What takes their place here are the functions with which fla's own tests define them, or, where it has none, one
line of torch. Printed is the largest difference of a logit. Measured with fla 0.6.0: 1e-7 to 5e-7, which is the
rounding of the stored logits to F32. fla cannot run `attn` in RWKV-7 (in RWKV-6 it needs flash-attn), and cannot initialise value_dim other than hidden_size: that
initialisation is left out.
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
from torch import nn

import fla.layers.rwkv6 as layer6
import fla.layers.rwkv7 as layer
import fla.models.rwkv6.modeling_rwkv6 as modeling6
import fla.models.rwkv7.modeling_rwkv7 as modeling
from fla.models.rwkv6.configuration_rwkv6 import RWKV6Config
from fla.models.rwkv7.configuration_rwkv7 import RWKV7Config
from fla.modules.token_shift import token_shift_ref
from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
from fla.ops.rwkv7.fused_k_update import k_update_ref
from fla.ops.rwkv7.gate_output_correction import gate_output_correction_ref

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"


def chunk(r, w, k, v, a, b, scale, **_):
    """The definition scales its queries by D^{-1/2}; RWKV-7 does not."""
    r, w, k, v, a, b = [x.transpose(1, 2) for x in (r * scale * r.shape[-1] ** 0.5, w, k, v, a, b)]
    return dplr_recurrence(r, k, v, a, b, w)[0].transpose(1, 2), None


def recurrence6(r, k, v, w, u, scale, **_):
    r, k, v, w = [x.transpose(1, 2) for x in (r, k, v, w)]
    return naive_recurrent_rwkv6(r, k, v, w, u, scale)[0].transpose(1, 2), None


class LayerNorm(nn.LayerNorm):
    """As fla's fused one: adds a residual first."""

    def __init__(self, width, bias, eps):
        super().__init__(width, eps=eps, bias=bias)

    def forward(self, x, residual=None, prenorm=False):
        x = x if residual is None else x + residual
        return (super().forward(x), x) if prenorm else super().forward(x)


class GroupNorm(nn.GroupNorm):
    def __init__(self, num_groups, hidden_size, elementwise_affine, eps, bias):
        super().__init__(num_groups, hidden_size, eps=eps, affine=elementwise_affine)

    def forward(self, x):
        return super().forward(x.reshape(-1, x.shape[-1])).view(x.shape)


def replace_kernels():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = lambda x: x  # the definitions would compute in float32
    shift = lambda x, *_, **__: (token_shift_ref(x), None)
    layer.token_shift = modeling.token_shift = shift
    layer.fused_addcmul_rwkv7 = lambda x, difference, *mixtures: [x + difference * mix for mix in mixtures]
    layer.fused_k_rwkv7 = k_update_ref
    layer.gate_output_correction = gate_output_correction_ref
    layer.chunk_rwkv7 = chunk
    layer.l2_norm = lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)
    layer.get_layer_cache = layer.update_layer_cache = lambda *_, **__: None
    layer.GroupNorm, modeling.LayerNorm = GroupNorm, LayerNorm
    layer.RWKV7Attention._initialize_weights = lambda *_: None
    layer6.chunk_rwkv6 = layer6.fused_recurrent_rwkv6 = recurrence6
    layer6.token_shift = modeling6.token_shift = lambda x, *_, **__: token_shift_ref(x)
    layer6.get_layer_cache = layer6.update_layer_cache = lambda *_, **__: None
    layer6.GroupNorm, modeling6.LayerNorm = GroupNorm, LayerNorm
    layer6.RWKV6Attention._initialize_weights = lambda *_: None
    layer6.ACT2FN = {"swish": nn.functional.silu}
    modeling6.ACT2FN = modeling.ACT2FN = {"sqrelu": lambda x: torch.relu(x) ** 2, "relu": torch.relu, "swish": nn.functional.silu}


def compare(name):
    config = json.loads((FIXTURES / name / "config.json").read_text())
    weights = {n: x.to(torch.float64) for n, x in safetensors.torch.load_file(FIXTURES / name / "model.safetensors").items()}
    expected = safetensors.torch.load_file(FIXTURES / name / "expected.safetensors")
    if config.get("tie_word_embeddings"):
        weights["lm_head.weight"] = weights["model.embeddings.weight"]
    make, read = {"rwkv6": (modeling6.RWKV6ForCausalLM, RWKV6Config), "rwkv7": (modeling.RWKV7ForCausalLM, RWKV7Config)}[config["model_type"]]
    model = make(read(**{key: x for key, x in config.items() if key != "model_type"})).to(torch.float64)
    model.load_state_dict(weights)
    # With gradients on, fla uses its chunked form for texts of any length.
    logits = model.lm_head(model.model(expected["input_ids"].long(), use_cache=False)[0]).detach()
    print(f"{name}: largest difference {(logits - expected['logits'].to(torch.float64)).abs().max():.1e}")


if __name__ == "__main__":
    replace_kernels()
    for wanted in sys.argv[1:] or ("rwkv6", "rwkv6_wide_tied", "rwkv7", "rwkv7_wide_tied"):
        compare(wanted)
