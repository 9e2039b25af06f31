# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""A Qwen3.5 text model with its head that predicts a further token, under the published names of tensors
(docs/mixers.md#gated-deltanet, #softmax-attention; docs/models.md#heads-that-predict-a-further-token).

Letters: B windows, T tokens, H heads, D key dim, E value dim, C tokens of a chunk, N chunks.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from model import GatedMlp, ShortConv, l2norm

CHUNK = 64
TALES = {  # a small one with the tokenizer of tales
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "vocab_size": 4096, "hidden_size": 320,
    "intermediate_size": 832, "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 5, "linear_num_value_heads": 5, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 64,
    "attention_bias": False, "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "mtp_num_hidden_layers": 1, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "dtype": "bfloat16"}


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    """RMSNorm with a weight of 1 + w."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight.float())


class GatedNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, o, gate):
        o = o.float()
        return o * torch.rsqrt(o.square().mean(-1, keepdim=True) + self.eps) * self.weight.float() * F.silu(gate.float())


def delta_chunked(q, k, v, beta, log_decay):
    """o_t = q_t S_t of the gated delta rule.  q, k [B, H, T, D], v [B, H, T, E], beta and log_decay [B, H, T]; fp32.
    T is a multiple of CHUNK or less than it."""
    split = lambda y: y.unflatten(2, (-1, min(CHUNK, y.shape[2])))
    q, k, v, beta, c = split(q), split(k), split(v), split(beta)[..., None], split(log_decay).cumsum(-1)[..., None]
    size = q.shape[3]
    below = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()
    decay = torch.where(below, c - c.transpose(-1, -2), -torch.inf).exp()        # [B, H, N, C, C]
    system = (beta * (k @ k.transpose(-1, -2)) * decay).tril(-1) + torch.eye(size, device=q.device)
    rows = torch.cat([beta * v, beta * c.exp() * k], -1)
    u, w = torch.linalg.solve_triangular(system, rows, upper=False, unitriangular=True).split(
        [v.shape[-1], k.shape[-1]], -1)
    scores, far_q, last = (q @ k.transpose(-1, -2)) * decay, c.exp() * q, c[..., -1:, :]
    far_k = (last - c).exp() * k
    state, out = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for n in range(q.shape[2]):
        row = u[:, :, n] - w[:, :, n] @ state
        out.append(far_q[:, :, n] @ state + scores[:, :, n] @ row)
        state = last[:, :, n].exp() * state + far_k[:, :, n].transpose(-1, -2) @ row
    return torch.stack(out, 2).flatten(2, 3)


class GatedDeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.key_heads, self.heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
        keys, values = self.key_heads * c["linear_key_head_dim"], self.heads * c["linear_value_head_dim"]
        self.widths, hidden = [keys, keys, values], c["hidden_size"]
        self.in_proj_qkv, self.in_proj_z = linear(hidden, 2 * keys + values), linear(hidden, values)
        self.in_proj_b, self.in_proj_a = linear(hidden, self.heads), linear(hidden, self.heads)
        self.conv1d = ShortConv(sum(self.widths), c["linear_conv_kernel_dim"])
        step = torch.exp(torch.empty(self.heads).uniform_(math.log(0.001), math.log(0.1)))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))       # softplus of it is the step
        self.A_log = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
        self.norm = GatedNorm(c["linear_value_head_dim"], c["rms_norm_eps"])
        self.out_proj = linear(values, hidden)

    def forward(self, x):
        length, pad = x.shape[1], -x.shape[1] % CHUNK if x.shape[1] > CHUNK else 0
        q, k, v = self.conv1d(self.in_proj_qkv(x)).split(self.widths, -1)
        q, k = (l2norm(y.unflatten(-1, (self.key_heads, -1))).repeat_interleave(self.heads // self.key_heads, 2)
                for y in (q, k))
        v, z = (y.unflatten(-1, (self.heads, -1)) for y in (v, self.in_proj_z(x)))
        beta = self.in_proj_b(x).float().sigmoid()
        log_decay = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        rows = [F.pad(y, (0, 0) * (y.ndim - 2) + (0, pad)).transpose(1, 2)
                for y in (q * q.shape[-1] ** -0.5, k, v, beta, log_decay)]
        with torch.autocast(x.device.type, enabled=False):
            o = delta_chunked(*rows)[:, :, :length].transpose(1, 2)
        return self.out_proj(self.norm(o, z).flatten(2))


class Attention(nn.Module):
    """Grouped queries, a gate on the output, rotary positions on the first part of a head."""

    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.rope = c["rope_parameters"]
        hidden = c["hidden_size"]
        self.q_proj = linear(hidden, 2 * self.heads * self.dim)
        self.k_proj, self.v_proj = (linear(hidden, self.kv_heads * self.dim) for _ in range(2))
        self.o_proj = linear(self.heads * self.dim, hidden)
        self.q_norm, self.k_norm = (Norm(self.dim, c["rms_norm_eps"]) for _ in range(2))

    def rotate(self, x, first):
        """x [B, H, T, D]; the position of its first token."""
        width = int(self.dim * self.rope["partial_rotary_factor"])
        f = self.rope["rope_theta"] ** (-torch.arange(0, width, 2, device=x.device) / width)
        angle = torch.arange(first, first + x.shape[2], device=x.device)[:, None] * f
        a, b, rest = x.split([width // 2, width // 2, self.dim - width], -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def forward(self, x, first=0):
        q, gate = self.q_proj(x).unflatten(-1, (self.heads, -1)).chunk(2, -1)
        k, v = (y(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2) for y in (self.k_proj, self.v_proj))
        q, k = self.rotate(self.q_norm(q).transpose(1, 2), first), self.rotate(self.k_norm(k), first)
        k, v = (y.to(v.dtype).repeat_interleave(self.heads // self.kv_heads, 1) for y in (k, v))
        o = F.scaled_dot_product_attention(q.to(v.dtype), k, v, is_causal=True).transpose(1, 2)
        return self.o_proj((o * gate.sigmoid()).flatten(2))


class Layer(nn.Module):
    def __init__(self, c, kind, dropout):
        super().__init__()
        if kind == "linear_attention":
            self.linear_attn = GatedDeltaNet(c)
        else:
            self.self_attn = Attention(c)
        self.input_layernorm, self.post_attention_layernorm = (Norm(c["hidden_size"], c["rms_norm_eps"]) for _ in range(2))
        self.mlp, self.dropout = GatedMlp(c["hidden_size"], c["intermediate_size"]), dropout

    def forward(self, x, first=0):
        y = self.input_layernorm(x)
        y = self.linear_attn(y) if hasattr(self, "linear_attn") else self.self_attn(y, first)
        x = x + F.dropout(y, self.dropout, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), self.dropout, self.training)


class Decoder(nn.Module):
    def __init__(self, c, dropout):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, kind, dropout) for kind in c["layer_types"])
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])


class Predictor(nn.Module):
    def __init__(self, c, dropout):
        super().__init__()
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (Norm(hidden, eps) for _ in range(3))
        self.fc = linear(2 * hidden, hidden)
        self.layers = nn.ModuleList([Layer(c, "full_attention", dropout)])

    def forward(self, embedded, stream, first):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(stream)], -1))
        return self.norm(self.layers[0](x, first))


class QwenWithPredictor(nn.Module):
    """state_dict() has the published names."""

    def __init__(self, config, dropout=0.0):
        super().__init__()
        self.config = config
        self.model, self.mtp = Decoder(config, dropout), Predictor(config, dropout)
        if not config["tie_word_embeddings"]:
            self.lm_head = linear(config["hidden_size"], config["vocab_size"])
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02 if "embed" in name else 0.5 / math.sqrt(p.shape[1]))

    def streams(self, ids, guesses=0):
        """[B, T] -> the stream behind the final norm [B, T, hidden], and for each guess after it [B, T - i, hidden]:
        the first reads the stream, each further one the guess before it."""
        x = self.model.embed_tokens(ids).float()
        for layer in self.model.layers:
            x = layer(x)
        out = [self.model.norm(x)]
        for i in range(1, guesses + 1):
            embedded = self.model.embed_tokens(ids[:, i:]).float()
            out.append(self.mtp(embedded, out[-1][:, :-1], i))
        return out

    def logits(self, stream):
        return F.linear(stream, (self.model.embed_tokens if self.config["tie_word_embeddings"] else self.lm_head).weight)
