#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the folder of a chat model, as one is downloaded: OUT/{config.json, shards with an index, tokenizer.json,
tokenizer_config.json, chat_template.jinja, generation_config.json}.

    tests/e2e/make_chat_model.py OUT

It is the Qwen3.5 fixture of tests/parity (with its vision and multi-token-prediction tensors), the tokenizer of
tests/tokenizers/fixtures/qwen2 and the Qwen3 template of model_loader/jinja/test_templates. Embeddings and output map are new: the
largest logit after a token of SAYS is the next one's, so a greedy answer to any message is SAYS without its first token. Needs no
package.
"""

import json
import pathlib
import random
import shutil
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests/parity/fixtures/upstream_hf_qwen3_5"
TOKENIZER = ROOT / "tests/tokenizers/fixtures/qwen2"
TEMPLATE = ROOT / "model_loader/jinja/test_templates/qwen3.jinja"
EMBEDDINGS = "model.language_model.embed_tokens.weight"
LM_HEAD = "lm_head.weight"
SIZE = 20.0  # of the embeddings: the layers add little to it
SAYS = ["\u010a", "<think>", "a", "</think>", "b", "<|im_end|>"]  # "\u010a" is how the tokenizer writes a line's end


def read(path):
    """{name: (dtype, shape, bytes)}"""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def floats(rows):
    return "F32", [len(rows), len(rows[0])], b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)


def vocabulary():
    tokenizer = json.loads((TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"))
    return {**tokenizer["model"]["vocab"], **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}


def make_ends(ids, hidden):
    """Embeddings of random signs, and an output map that answers each of SAYS with the next."""
    rng = random.Random(1)
    count = max(ids.values()) + 1
    embeddings = [[rng.choice((-SIZE, SIZE)) for _ in range(hidden)] for _ in range(count)]
    lm_head = [[0.0] * hidden for _ in range(count)]
    for token, following in zip(SAYS, SAYS[1:]):
        lm_head[ids[following]] = [value / SIZE for value in embeddings[ids[token]]]
    return embeddings, lm_head


def write_weights(out, ids, hidden):
    embeddings, lm_head = make_ends(ids, hidden)
    index = json.loads((FIXTURE / "model.safetensors.index.json").read_text())
    weight_map = index["weight_map"]
    last = max(set(weight_map.values()))
    weight_map[LM_HEAD] = last
    for shard in set(weight_map.values()):
        tensors = read(FIXTURE / shard)
        if EMBEDDINGS in tensors:
            tensors[EMBEDDINGS] = floats(embeddings)
        if shard == last:
            tensors[LM_HEAD] = floats(lm_head)
        write(out / shard, tensors)
    (out / "model.safetensors.index.json").write_text(json.dumps(index))


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    ids = vocabulary()
    config = json.loads((FIXTURE / "config.json").read_text())
    text = config["text_config"]
    text.update(vocab_size=max(ids.values()) + 1, tie_word_embeddings=False, bos_token_id=None, eos_token_id=ids["<|endoftext|>"])
    config["tie_word_embeddings"] = False
    write_weights(out, ids, text["hidden_size"])
    (out / "config.json").write_text(json.dumps(config, indent=2))
    shutil.copy(TOKENIZER / "tokenizer.json", out)
    shutil.copy(TEMPLATE, out / "chat_template.jinja")
    (out / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}))
    stops = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": stops, "temperature": 0, "max_new_tokens": 30}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
