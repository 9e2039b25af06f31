# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The peer of rivulet-engine-bench on a CPU: transformers' Mamba-2 (eager PyTorch) on the same checkpoint.

    python3 bench/peer_transformers.py MODEL_DIR --threads 2 --dtypes bf16,fp32 --json out.json

Decode: greedy, one token a step for each row of a batch, from the model's own cache. Prefill: one prompt, once
untimed and then timed. Needs PyTorch and transformers; not part of the build.
"""
import argparse
import json
import time

import torch
import transformers


def set_chunk_size(model, size):
    for block in model.backbone.layers:
        block.mixer.chunk_size = size


@torch.no_grad()
def decode_rate(model, batch, tokens):
    set_chunk_size(model, 8)  # of the prompt alone, which would be padded to a whole chunk
    ids = torch.randint(0, model.config.vocab_size, (batch, 8))
    out = model(ids, use_cache=True)
    cache, token = out.cache_params, out.logits[:, -1:].argmax(-1)

    def step(token):
        out = model(token, cache_params=cache, use_cache=True)
        return out.logits[:, -1:].argmax(-1)

    for _ in range(4):
        token = step(token)
    start = time.perf_counter()
    for _ in range(tokens):
        token = step(token)
    return batch * tokens / (time.perf_counter() - start)


@torch.no_grad()
def prefill_rate(model, tokens, chunk_size):
    set_chunk_size(model, chunk_size)
    ids = torch.randint(0, model.config.vocab_size, (1, tokens))
    for _ in range(2):
        start = time.perf_counter()
        model(ids, use_cache=True, logits_to_keep=1)
        rate = tokens / (time.perf_counter() - start)
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", default="bf16,fp32")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--chunk-sizes", default="32,256", help="of the scan at prefill; the model's own is 256")
    parser.add_argument("--json")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    rows = []
    for name in a.dtypes.split(","):
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[name]
        model = transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=dtype).eval()
        row = {"dtype": name, "threads": a.threads}
        for batch in map(int, a.batches.split(",")):
            row[f"decode_{batch}"] = decode_rate(model, batch, a.tokens)
        for size in map(int, a.chunk_sizes.split(",")):
            row[f"prefill_chunk_{size}"] = prefill_rate(model, a.prefill, size)
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    if a.json:
        with open(a.json, "w") as file:
            json.dump({"transformers": transformers.__version__, "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
