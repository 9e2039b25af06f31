# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""One token at a time, from a state of fixed size: what the server does, in PyTorch, for reading samples and
for letting a teacher write text. Layers: hla (symmetric masked, or asymmetric) and gla.

Letters: B rows, H heads, D key dim, E value dim."""
import torch
import torch.nn.functional as F

from data import BOS, EOS
from model import GATE_LOGIT_NORMALIZER, GatedLinearAttention, HigherOrderLinearAttention, l2norm


class Decoder:
    """Holds the states of `rows` sequences, updated in place. step(ids [B]) -> logits [B, V]."""

    def __init__(self, model, rows):
        self.model, self.states = model, []
        device = model.embeddings.weight.device
        for layer in model.layers:
            self.states.append(self.new_state(layer.attn, rows, device))

    @staticmethod
    def new_state(mixer, rows, device):
        if not isinstance(mixer, (HigherOrderLinearAttention, GatedLinearAttention)) or mixer.c["normalize"] \
                or mixer.c["ridge_lambda"]:
            raise ValueError("decode.py knows unnormalised hla without ridge, and gla")
        keys, values = (getattr(mixer, n + "_proj").weight.shape[0] // mixer.heads for n in "kv")
        state = {n: torch.zeros(rows, mixer.c["conv_size"], getattr(mixer, n + "_proj").weight.shape[0],
                                device=device) for n in "qkv"}
        first = keys if mixer.c["hla_variant"] == "symmetric" else values
        state["S"] = torch.zeros(rows, mixer.heads, keys, first, device=device)
        state["F"] = torch.zeros(rows, mixer.heads, keys, values, device=device)
        return state

    def reset(self):
        for state in self.states:
            for tensor in state.values():
                tensor.zero_()

    @torch.no_grad()
    def step(self, ids):
        x = self.model.embeddings(ids)
        for layer, state in zip(self.model.layers, self.states):
            x = x + mix(layer.attn, layer.attn_norm(x), state)
            x = x + layer.mlp(layer.mlp_norm(x))
        return F.linear(self.model.norm(x), self.model.embeddings.weight)


def convolved(mixer, name, x, state):
    """Projection, short convolution over the last inputs, heads: [B, H, D]."""
    y, window = getattr(mixer, name + "_proj")(x), state[name]
    if mixer.c["use_short_conv"]:
        window.copy_(torch.cat([window[:, 1:], y[:, None]], 1))
        y = F.silu((window * getattr(mixer, name + "_conv1d").weight[:, 0].T).sum(1))
    return y.unflatten(-1, (mixer.heads, -1))


def add_outer(memory, decay, a, b):
    """memory <- decay memory + outer(a, b), in place."""
    return memory.mul_(decay).addcmul_(a[..., None], b[..., None, :])


def read(q, memory):
    return (q[..., None, :] @ memory)[..., 0, :]


def mix(mixer, x, state):
    q, k, v = (convolved(mixer, n, x, state) for n in "qkv")
    rule = hla_rule if isinstance(mixer, HigherOrderLinearAttention) else gla_rule
    o = getattr(mixer, mixer.norm_name)(rule(mixer, q, k, v, x, state))
    if mixer.c["use_output_gate"]:
        o = o * F.silu(mixer.g_proj(x)).unflatten(-1, (mixer.heads, -1))
    return mixer.o_proj(o.flatten(1))


def hla_rule(mixer, q, k, v, x, state):
    c = mixer.c
    act = {"none": lambda z: z, "elu1": lambda z: F.elu(z) + 1, "relu": F.relu}[c["qk_activation"]]
    q, k = act(q), act(k)
    if c["qk_norm"] == "l2":
        q, k = l2norm(q), l2norm(k)
    scale = c["qk_scale"] or c["head_dim"] ** -0.5
    q, k = q * scale, k * scale
    gamma = torch.sigmoid(mixer.decay_logit)[:, None, None] if c["use_decay"] else 1.0
    if c["hla_variant"] == "asymmetric":
        partial = read(q, add_outer(state["S"], gamma, k, v))
        return read(q, add_outer(state["F"], gamma, k, partial))
    key = read(q, add_outer(state["S"], gamma, k, k))
    return read(q, add_outer(state["F"], gamma * gamma, key, v))


def gla_rule(mixer, q, k, v, x, state):
    gates = mixer.gk_proj(x).unflatten(-1, (mixer.heads, -1))
    decay = torch.exp(F.logsigmoid(gates) / GATE_LOGIT_NORMALIZER)[..., None]
    return read(q * q.shape[-1] ** -0.5, add_outer(state["F"], decay, k, v))


# ---------------------------------------------------------------- generating with a teacher
class Writer:
    """Samples many sequences as one CUDA graph per token. Without a GPU, the same in eager mode. Row i has
    temperatures[i % their number]; 0 is greedy."""

    def __init__(self, model, rows, temperatures=(1.0,)):
        self.decoder = Decoder(model, rows)
        self.ids = torch.full((rows,), BOS, device=model.embeddings.weight.device)
        self.temperature = torch.tensor(temperatures, device=self.ids.device).repeat(rows)[:rows, None]
        self.next = torch.zeros_like(self.ids)
        self.graph = self.capture() if self.ids.is_cuda else None

    def advance(self):
        logits = self.decoder.step(self.ids)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-20, 1 - 1e-7)))
        self.next.copy_((logits + self.temperature * noise).argmax(-1))    # Gumbel: a sample of softmax(logits / T)

    def capture(self):
        for _ in range(3):
            self.advance()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.advance()
        return graph

    def write(self, prompts, length):
        """prompts [B, P] -> [B, length]; after </s> comes <s>: the next document."""
        self.decoder.reset()
        out = [prompts[:, i] for i in range(prompts.shape[1])]
        for t in range(length - 1):
            self.ids.copy_(out[t])
            if self.graph:
                self.graph.replay()
            else:
                self.advance()
            if t + 1 >= len(out):
                out.append(torch.where(out[t] == EOS, BOS, self.next))
        return torch.stack(out, 1)
