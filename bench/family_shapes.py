#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Tokens per second of published shapes on one core of this CPU: the table of docs/models.md.

    python3 -m venv build/hf && build/hf/bin/pip install torch transformers==5.23.0 numpy
    build/hf/bin/python bench/family_shapes.py OUT --bin build/release/bin [NAME ...]

For each shape: writes a checkpoint with random weights in bf16 to OUT/NAME (names and shapes of its tensors from transformers, on the
meta device; RWKV-6's and -7's are written out here), starts rivulet-server on it with one thread, runs `rivulet bench` with 1 and with 8 streams, and
prints a row: tokens for a second of the server's processor time, which other programs on the machine change less than its clock. The
best of --rounds counts. Folders stay, so a second run is faster. What such a model says is noise.
"""
import argparse
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import time

import numpy as np

ROPE = {"rope_theta": 10000.0, "rope_type": "default"}


def layers(count, attention, other, name="full_attention"):
    return [name if i in attention else other for i in range(count)]


# Class of transformers and the keys of config.json that differ from its defaults.
SHAPES = {
    "Qwen3.5-0.8B": ("Qwen3_5", dict(
        vocab_size=248320, hidden_size=1024, intermediate_size=3584, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2,
        head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128,
        tie_word_embeddings=True)),
    "LFM2-350M": ("Lfm2", dict(
        vocab_size=65536, hidden_size=1024, intermediate_size=4608, block_auto_adjust_ff_dim=False, num_hidden_layers=16,
        num_attention_heads=16, num_key_value_heads=8, layer_types=layers(16, (2, 5, 8, 10, 12, 14), "conv"))),
    "Granite-4.0-H-350M": ("GraniteMoeHybrid", dict(
        vocab_size=100352, hidden_size=768, num_hidden_layers=32, layer_types=layers(32, (10, 13, 17, 27), "mamba", "attention"),
        num_attention_heads=12, num_key_value_heads=4, shared_intermediate_size=2048, intermediate_size=2048, num_local_experts=0,
        num_experts_per_tok=0, mamba_n_heads=48, mamba_d_head=32, mamba_d_state=128, mamba_n_groups=1, tie_word_embeddings=True)),
    "Falcon-H1-0.5B": ("FalconH1", dict(
        vocab_size=32784, hidden_size=1024, intermediate_size=2048, num_hidden_layers=36, num_attention_heads=8, num_key_value_heads=2,
        head_dim=64, mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1)),
    "RecurrentGemma-2B": ("RecurrentGemma", dict(num_key_value_heads=1, intermediate_size=15360)),
    "Zamba2-1.2B": ("Zamba2", dict(
        hidden_size=2048, num_hidden_layers=38, layers_block_type=layers(38, (5, 11, 17, 23, 29, 35), "linear_attention", "hybrid"),
        intermediate_size=8192, n_mamba_heads=64, mamba_headdim=64, mamba_d_state=128, attention_hidden_size=4096, attention_head_dim=128,
        num_mem_blocks=1, adapter_rank=128, use_mem_rope=True, use_shared_attention_adapter=True)),
    "Jamba-Reasoning-3B": ("Jamba", dict(
        hidden_size=2560, intermediate_size=8192, num_hidden_layers=28, attn_layer_period=14, attn_layer_offset=7, num_experts=1,
        num_experts_per_tok=1, num_attention_heads=20, num_key_value_heads=1, mamba_dt_rank=160, tie_word_embeddings=True)),
    # What is larger has fewer layers than the published model (and fewer experts and tokens, where one layer is too large).
    "Nemotron-H-8B, 14 of 52 blocks": ("NemotronH", dict(
        layers_block_type=[{"M": "linear_attention", "-": "mlp", "*": "full_attention"}[c] for c in "M-M-M-M*-M-M-M"])),
    "OLMo-Hybrid-7B, 4 of 32 layers": ("OlmoHybrid", dict(
        num_hidden_layers=4, layer_types=layers(4, (3,), "linear_attention"))),
    "Kimi-Linear-48B-A3B, 2 of 27 layers": ("KimiLinear", dict(
        num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], mlp_layer_types=["dense", "sparse"])),
    "MiniMax-Text-01, 2 of 80 layers, 4 of 32 experts, 32 000 of 200 064 tokens": ("MiniMax", dict(
        hidden_size=6144, intermediate_size=9216, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
        num_attention_heads=64, num_key_value_heads=8, head_dim=128, num_local_experts=4)),
    "Bamba-9B, 6 of 32 layers": ("Bamba", dict(num_hidden_layers=6, attn_layer_indices=[3])),
    "Qwen3-Next-80B-A3B, 2 of 48 layers": ("Qwen3Next", dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])),
    "Qwen3.5-35B-A3B (text), 2 of 40 layers": ("Qwen3_5Moe", dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])),
    "Granite-4.0-H-Tiny, 16 of 40 layers": ("GraniteMoeHybrid", dict(
        vocab_size=100352, hidden_size=1536, num_hidden_layers=16, layer_types=layers(16, (5, 15), "mamba", "attention"), num_attention_heads=12,
        num_key_value_heads=4, shared_intermediate_size=1024, intermediate_size=512, num_local_experts=64, num_experts_per_tok=6,
        mamba_n_heads=48, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, tie_word_embeddings=True)),
    "LFM2-8B-A1B, 8 of 24 layers": ("Lfm2Moe", dict(num_hidden_layers=8, layer_types=layers(8, (2, 6), "conv"))),
    "Nemotron-3-Nano-30B-A3B, 5 of 52 blocks": ("NemotronH", dict(
        hidden_size=2688, layers_block_type=["linear_attention", "moe", "linear_attention", "full_attention", "moe"], num_attention_heads=32,
        num_key_value_heads=2, head_dim=128, mamba_num_heads=64, n_routed_experts=128, num_experts_per_tok=6, moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712, routed_scaling_factor=2.5)),
    "RWKV-6-World-1.6B": (None, dict(
        model_type="rwkv6", vocab_size=65536, hidden_size=2048, intermediate_size=7168, num_hidden_layers=24, num_heads=32, expand_k=1.0,
        expand_v=1.0, proj_low_rank_dim=32, gate_low_rank_dim=64, norm_eps=1e-5, attn=None, fuse_norm=False, eos_token_id=0)),
    "RWKV-7-World-0.4B": (None, dict(
        model_type="rwkv7", vocab_size=65536, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, head_dim=64, norm_eps=1e-5,
        decay_low_rank_dim=64, a_low_rank_dim=64, v_low_rank_dim=32, gate_low_rank_dim=128, attn=None, fuse_norm=False, eos_token_id=0,
        value_dim=[1024] * 24)),
}


def rwkv7_tensors(c):
    d, heads = c["hidden_size"], c["hidden_size"] // c["head_dim"]
    yield "model.embeddings.weight", (c["vocab_size"], d)
    yield "lm_head.weight", (c["vocab_size"], d)
    ranks = {"w": c["decay_low_rank_dim"], "a": c["a_low_rank_dim"], "v": c["v_low_rank_dim"], "g": c["gate_low_rank_dim"]}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for norm in ("attn_norm", "ffn_norm", "attn.g_norm") + (("pre_norm",) if i == 0 else ()):
            yield from ((p + f"{norm}.{part}", (d,)) for part in ("weight", "bias"))
        yield from ((p + f"attn.{name}_proj.weight", (d, d)) for name in "rkvo")
        yield from ((p + f"attn.x_{name}", (1, 1, d)) for name in "rwkvag")
        for name, rank in ranks.items():
            if name == "v" and i == 0:
                continue
            yield p + f"attn.{name}_lora.lora.0.weight", (rank, d)
            yield p + f"attn.{name}_lora.lora.2.weight", (d, rank)
            if name != "g":
                yield p + f"attn.{name}_lora.lora.2.bias", (d,)
        yield from ((p + f"attn.{name}", (d,)) for name in ("k_a", "k_k"))
        yield p + "attn.r_k", (heads, c["head_dim"])
        yield p + "ffn.x_k", (d,)
        yield p + "ffn.key.weight", (c["intermediate_size"], d)
        yield p + "ffn.value.weight", (d, c["intermediate_size"])
    yield from ((f"model.norm.{part}", (d,)) for part in ("weight", "bias"))


def rwkv6_tensors(c):
    d, rank, decay = c["hidden_size"], c["proj_low_rank_dim"], c["gate_low_rank_dim"]
    yield "model.embeddings.weight", (c["vocab_size"], d)
    yield "lm_head.weight", (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for norm in ("attn_norm", "ffn_norm", "attn.g_norm") + (("pre_norm",) if i == 0 else ()):
            yield from ((p + f"{norm}.{part}", (d,)) for part in ("weight", "bias"))
        yield from ((p + f"attn.{name}_proj.linear.weight", (d, d)) for name in "rkvg")
        yield p + "attn.o_proj.weight", (d, d)
        yield p + "attn.x_proj.0.mu", (d,)
        yield p + "attn.x_proj.0.linear.weight", (5 * rank, d)
        yield p + "attn.x_proj.2.weight", (d, 5 * rank)
        yield p + "attn.x_bias", (5, d)
        yield p + "attn.w_proj.linear.lora.0.weight", (decay, d)
        yield p + "attn.w_proj.linear.lora.2.weight", (d, decay)
        yield p + "attn.w_proj.linear.lora.2.bias", (d,)
        yield p + "attn.bonus", (c["num_heads"], d // c["num_heads"])
        yield from ((p + f"ffn.{name}.mu", (d,)) for name in ("key", "receptance"))
        yield p + "ffn.key.linear.weight", (c["intermediate_size"], d)
        yield p + "ffn.receptance.linear.weight", (d, d)
        yield p + "ffn.value.weight", (d, c["intermediate_size"])
    yield from ((f"model.norm.{part}", (d,)) for part in ("weight", "bias"))


def transformers_tensors(family, keys):
    """The config that transformers writes and (name, shape) of each tensor, without tied ones."""
    import torch
    import transformers
    text = family in ("Qwen3_5", "Qwen3_5Moe")
    config = getattr(transformers, family + ("TextConfig" if text else "Config"))(**keys)
    with torch.device("meta"):
        model = getattr(transformers, family + "ForCausalLM")(config)
    tied = keys.get("tie_word_embeddings", config.tie_word_embeddings)
    shared = {}  # parameter → its first name: Zamba2's blocks that layers share have several
    for name, parameter in model.state_dict(keep_vars=True).items():
        if not (tied and name == "lm_head.weight"):
            shared.setdefault(id(parameter), (name, tuple(parameter.shape)))
    tensors = list(published(family, shared.values()))
    return json.loads(config.to_json_string(use_diff=False)), tensors


def published(family, tensors):
    """Names as in published files, where transformers has others in memory."""
    for name, shape in tensors:
        if family == "KimiLinear" and name.endswith("self_attn.conv1d.weight"):
            yield from ((name.replace("conv1d", part + "_conv1d"), (shape[0] // 3, *shape[1:])) for part in "qkv")
        elif family == "KimiLinear" and re.search(r"mlp\.(experts|gate|shared_experts)\.", name):
            yield name.replace("mlp", "block_sparse_moe"), shape
        else:
            yield name.replace("forget_gate.", ""), shape


def value_of(name, shape):
    """(mean, deviation) that keep a random model's numbers finite."""
    if name.endswith("A_log"):
        return 1.0, 0.5
    if "dt_bias" in name:
        return -4.6, 1.0
    if "norm" in name and name.endswith("weight"):
        return 1.0, 0.1
    return 0.0, 0.3 / math.sqrt(shape[-1]) if len(shape) > 1 else 0.1


def write(folder, name):
    family, keys = SHAPES[name]
    if family is None:
        config, tensors = keys, list({"rwkv6": rwkv6_tensors, "rwkv7": rwkv7_tensors}[keys["model_type"]](keys))
    else:
        config, tensors = transformers_tensors(family, keys)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, end = {}, 0
    for tensor, shape in tensors:
        size = 2 * math.prod(shape)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    noise = np.random.default_rng(1).standard_normal((1 << 20) + 7, dtype=np.float32)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors.part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor, shape in tensors:
            mean, deviation = value_of(tensor, shape)
            values = ((noise * np.float32(deviation) + np.float32(mean)).view(np.uint32) >> 16).astype(np.uint16)
            left = math.prod(shape)
            while left > 0:  # the same noise again: its length is odd, so rows differ
                file.write(values[:left].tobytes())
                left -= min(left, len(values))
    (folder / "model.safetensors.part").rename(folder / "model.safetensors")


def start(options, folder):
    log = folder / "server.log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen([options.bin / "rivulet-server", f"--model={folder}", "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
                                    "--threads=1", "--state-memory=2GiB"], stdout=file, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 1200
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(r"grpc listening on (\S+:\d+)", log.read_text(encoding="utf-8"))
        if match:
            return process, match.group(1)
        time.sleep(0.1)
    process.kill()
    raise RuntimeError(log.read_text(encoding="utf-8")[-2000:])


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(options, process, address, streams):
    """Tokens for a second of the server's processor time."""
    before = cpu_seconds(process)
    command = [options.bin / "rivulet", "bench", "--server", address, "--json", "--concurrency", str(streams), "--requests", str(streams),
               "--prompt-tokens", "1", "--output-tokens", str(options.tokens), "--warmup", "0", "--drain", "600"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return streams * options.tokens / (cpu_seconds(process) - before)


def served(options, address):
    command = [options.bin / "rivulet", "model", "--server", address, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def measure(options, name):
    folder = options.out / name.split(",")[0]
    if not (folder / "model.safetensors").exists():
        write(folder, name)
    process, address = start(options, folder)
    try:
        model, best = served(options, address), {1: 0.0, 8: 0.0}
        for streams in list(best) * options.rounds:
            best[streams] = max(best[streams], rate(options, process, address, streams))
    finally:
        process.terminate()
        process.wait()
    size = (folder / "model.safetensors").stat().st_size
    state, token = (int(model.get(key, 0)) for key in ("state_bytes_per_session", "state_bytes_per_token"))
    print(f"| {name} | {size / 1e9:.2f} GB | {state / 2**20:.1f} MiB | {token / 1024:.0f} KiB | {best[1]:.1f} | {best[8]:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(SHAPES))
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    for name in options.names:
        measure(options, name)


if __name__ == "__main__":
    main()
