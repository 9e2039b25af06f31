# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The model in PyTorch, from the same config.json and with the same tensor names as the served checkpoint.

Mixers in the form a GPU trains fastest: HLA and AHLA as two masked matrix products over the whole window
(the quadratic form), GLA by chunks. `softmax` layers exist for teachers only; the server does not load them.

Letters: B windows, T tokens, H heads, D key dim, E value dim, C tokens of a chunk.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

DEFAULTS = {
    "model_type": "hla", "hidden_size": 320, "num_hidden_layers": 7, "intermediate_size": 640, "num_heads": 5,
    "head_dim": 64, "expand_k": 1.0, "expand_v": 1.0, "vocab_size": 4096, "norm_eps": 1e-5, "use_decay": True,
    "use_short_conv": True, "conv_size": 4, "qk_norm": "l2", "qk_activation": "none", "qk_scale": 1.0,
    "hla_variant": "symmetric", "hla_form": "masked", "normalize": False, "ridge_lambda": 0.0,
    "use_output_gate": True, "hidden_act": "swish", "tie_word_embeddings": True, "bos_token_id": 1,
    "eos_token_id": 2}
GLA_CHUNK = 64
GATE_LOGIT_NORMALIZER = 16.0


def layer_config(config, i):
    """The keys of layer i: config.json with layer_config[i] merged over it, and its mixer as `type`."""
    merged = {**DEFAULTS, **config, **(config.get("layer_config") or [{}] * 99)[i]}
    merged["type"] = (config.get("layer_types") or [merged["model_type"]] * 99)[i]
    return merged


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class ShortConv(nn.Module):
    """Depthwise causal convolution, then SiLU. The last column of the weight multiplies the current token."""

    def __init__(self, channels, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, width).uniform_(-1, 1) / math.sqrt(width))

    def forward(self, x):
        width = self.weight.shape[-1]
        padded = F.pad(x, (0, 0, width - 1, 0))
        y = sum(padded[:, j:j + x.shape[1]] * self.weight[:, 0, j] for j in range(width))
        return F.silu(y)


def l2norm(x):
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class Mixer(nn.Module):
    """Projections, short convolutions, heads and the output norm, shared by all mixers."""

    def __init__(self, c, key_dim, value_dim, norm_name):
        super().__init__()
        self.c, self.heads = c, c["num_heads"]
        hidden, keys, values = c["hidden_size"], self.heads * key_dim, self.heads * value_dim
        for name, width in (("q", keys), ("k", keys), ("v", values)):
            setattr(self, name + "_proj", nn.Linear(hidden, width, bias=False))
            if c["use_short_conv"]:
                setattr(self, name + "_conv1d", ShortConv(width, c["conv_size"]))
        if c["use_output_gate"]:
            self.g_proj = nn.Linear(hidden, values, bias=False)
        self.o_proj = nn.Linear(values, hidden, bias=False)
        self.norm_name = norm_name
        setattr(self, norm_name, RMSNorm(value_dim, c["norm_eps"]))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, name, x):
        """[B, T, hidden] -> [B, H, T, D]"""
        y = getattr(self, name + "_proj")(x)
        if self.c["use_short_conv"]:
            y = getattr(self, name + "_conv1d")(y)
        return self.split(y)

    def finish(self, o, x):
        """Per-head RMSNorm, gate, output projection."""
        o = getattr(self, self.norm_name)(o)
        if self.c["use_output_gate"]:
            o = o * F.silu(self.split(self.g_proj(x)).float())
        return self.o_proj(o.transpose(1, 2).flatten(2).to(x.dtype))


class HigherOrderLinearAttention(Mixer):
    """HLA of second order and AHLA, decay gamma per head (docs/mixers.md#hla, #ahla)."""

    def __init__(self, c):
        super().__init__(c, c["head_dim"], int(c["head_dim"] * c["expand_v"]), "o_norm")
        if c["use_decay"]:
            self.decay_logit = nn.Parameter(torch.linspace(2.0, 7.0, self.heads))

    def queries_or_keys(self, name, x):
        y = self.project(name, x)
        y = {"none": lambda z: z, "elu1": lambda z: F.elu(z) + 1, "relu": F.relu}[self.c["qk_activation"]](y)
        if self.c["qk_norm"] == "l2":
            y = l2norm(y)
        return (y * (self.c["qk_scale"] or self.c["head_dim"] ** -0.5)).to(x.dtype)

    def decays(self, length, power):
        """[H, T, T]: gamma^(power (t - s)) where s <= t, else 0."""
        t = torch.arange(length, device=self.o_proj.weight.device)
        distance = t[:, None] - t
        log_gamma = F.logsigmoid(self.decay_logit.float()) if self.c["use_decay"] else \
            torch.zeros(self.heads, device=t.device)
        decay = torch.exp(power * log_gamma[:, None, None] * distance.clamp(min=0))
        return decay * (distance >= 0)

    def forward(self, x):
        q, k, v = self.queries_or_keys("q", x), self.queries_or_keys("k", x), self.project("v", x).to(x.dtype)
        if self.c["normalize"]:
            v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
        decay = self.decays(x.shape[1], 1)
        scores = ((q @ k.transpose(-1, -2)) * decay).to(x.dtype)
        if self.c["hla_variant"] == "asymmetric":
            o = scores @ (scores @ v)
        else:
            u = scores @ k
            o = ((q @ u.transpose(-1, -2)) * self.decays(x.shape[1], 2)).to(x.dtype) @ v
            if self.c["ridge_lambda"]:
                ridge = ((q @ q.transpose(-1, -2)) * decay).to(x.dtype) @ v
                o = o + self.c["ridge_lambda"] * ridge
        if self.c["normalize"]:
            o = o[..., :-1] / (o[..., -1:] + self.c.get("denom_eps", 1e-6))
        return self.finish(o, x)


def gla_chunked(q, k, v, log_decay, chunk):
    """o_t = q_t S_t, S_t = diag(e^{g_t}) S_{t-1} + outer(k_t, v_t).  q, k, g [B, H, T, D], v [B, H, T, E]."""
    split = lambda y: y.unflatten(2, (-1, chunk))
    q, k, v, log_decay = split(q), split(k), split(v), split(log_decay)
    b = log_decay.cumsum(3)                                  # B_t inside the chunk
    middle, last = b[..., chunk // 2:chunk // 2 + 1, :], b[..., -1:, :]
    near_q = (q * (b - middle).clamp(max=60).exp()).to(v.dtype)
    near_k = (k * (middle - b).clamp(max=60).exp()).to(v.dtype)
    mask = torch.ones(chunk, chunk, device=q.device, dtype=torch.bool).tril()
    o = (near_q @ near_k.transpose(-1, -2)).masked_fill(~mask, 0).to(v.dtype) @ v
    update = (k * (last - b).exp()).to(v.dtype).transpose(-1, -2) @ v
    state, states = torch.zeros_like(update[:, :, 0], dtype=torch.float32), []
    for n in range(q.shape[2]):                              # the state before each chunk
        states.append(state)
        state = last[:, :, n].transpose(-1, -2).exp() * state + update[:, :, n]
    far = (q * b.exp()).to(v.dtype) @ torch.stack(states, 2).to(v.dtype)
    return (o.float() + far.float()).flatten(2, 3)


class GatedLinearAttention(Mixer):
    """GLA with a data-dependent decay for every key channel (docs/mixers.md#gla)."""

    def __init__(self, c):
        dim = c["hidden_size"] // c["num_heads"]
        gate = c["use_output_gate"]
        super().__init__(c, int(dim * c["expand_k"]), int(dim * c["expand_v"]),
                         "g_norm_swish_gate" if gate else "g_norm")
        keys = self.heads * int(dim * c["expand_k"])
        self.gk_proj = nn.Sequential(nn.Linear(c["hidden_size"], 16, bias=False), nn.Linear(16, keys))

    def forward(self, x):
        q, k, v = (self.project(n, x) for n in "qkv")
        gates = self.split(self.gk_proj(x)).float()
        log_decay = F.logsigmoid(gates) / GATE_LOGIT_NORMALIZER
        q = q.float() * q.shape[-1] ** -0.5
        length, pad = x.shape[1], -x.shape[1] % GLA_CHUNK
        if pad:
            q, k, v, log_decay = (F.pad(y, (0, 0, 0, pad)) for y in (q, k, v, log_decay))
        o = gla_chunked(q, k.float(), v.to(x.dtype), log_decay, GLA_CHUNK)[:, :, :length]
        return self.finish(o, x)


class SoftmaxAttention(Mixer):
    """RoPE attention, for teachers."""

    def __init__(self, c):
        super().__init__(c, c["head_dim"], c["head_dim"], "o_norm")

    def rotate(self, x):
        half = x.shape[-1] // 2
        f = 10000.0 ** (-torch.arange(half, device=x.device) / half)
        angle = torch.arange(x.shape[2], device=x.device)[:, None] * f
        a, b = x.float().chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    def forward(self, x):
        q, k, v = (self.project(n, x) for n in "qkv")
        q, k = (self.rotate(l2norm(y) * y.shape[-1] ** 0.5).to(x.dtype) for y in (q, k))
        drop = self.c.get("attention_dropout", 0.0) if self.training else 0.0
        o = F.scaled_dot_product_attention(q, k, v.to(x.dtype), is_causal=True, dropout_p=drop)
        return self.finish(o, x)


MIXERS = {"hla": HigherOrderLinearAttention, "gla": GatedLinearAttention, "softmax": SoftmaxAttention}


class GatedMlp(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, c, dropout):
        super().__init__()
        self.attn_norm, self.attn = RMSNorm(c["hidden_size"], c["norm_eps"]), MIXERS[c["type"]](c)
        self.mlp_norm = RMSNorm(c["hidden_size"], c["norm_eps"])
        self.mlp = GatedMlp(c["hidden_size"], c["intermediate_size"])
        self.dropout = dropout

    def forward(self, x, dtype):
        x = x + F.dropout(self.attn(self.attn_norm(x).to(dtype)), self.dropout, self.training)
        return x + F.dropout(self.mlp(self.mlp_norm(x).to(dtype)), self.dropout, self.training)


class LanguageModel(nn.Module):
    """[B, T] token ids -> [B, T, V] logits. Residual stream in fp32, matrix products in `dtype`."""

    def __init__(self, config, dropout=0.0, dtype=torch.float32):
        super().__init__()
        c = {**DEFAULTS, **config}
        self.config, self.dropout, self.dtype = config, dropout, dtype
        self.embeddings = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(layer_config(config, i), dropout) for i in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["norm_eps"])
        self.initialise()

    def initialise(self):
        depth = 2 * len(self.layers)
        for name, p in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(p, std=0.5 / math.sqrt(p.shape[1] * depth))
            elif name.endswith("_proj.weight") or ".gk_proj." in name and p.ndim == 2:
                nn.init.normal_(p, std=0.5 / math.sqrt(p.shape[1]))
            elif name.endswith("gk_proj.1.bias"):
                with torch.no_grad():
                    p.uniform_(0.0, 6.0)                     # memories of about 20 to 6000 tokens
        nn.init.normal_(self.embeddings.weight, std=0.02)

    def forward(self, ids):
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            x = F.dropout(self.embeddings(ids), self.dropout, self.training)
            for layer in self.layers:
                x = layer(x, self.dtype)
            return F.linear(self.norm(x).to(self.dtype), self.embeddings.weight)


def num_parameters(model):
    return sum(p.numel() for p in model.parameters())
