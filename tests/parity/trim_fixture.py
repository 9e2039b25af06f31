#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Makes a fixture smaller without computing anything: what its own library computed stays.

    python3 tests/parity/trim_fixture.py NAME TOKENS GREEDY VOCABULARY        needs NumPy

Keeps the first TOKENS positions and GREEDY steps: models are causal, so the rest does not reach them. Keeps VOCABULARY tokens, all that
occur among them, by dropping rows of the embedding and output matrices: a token's logit does not depend on which others there are.
"""
import json
import os
import sys

import numpy as np

import safetensors_file

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
SPECIAL = 3  # bos, eos and pad keep their ids


def kept_tokens(used, vocabulary, size):
    """`size` ids in order: the special ones, those used, and the lowest others."""
    needed = sorted({*range(SPECIAL), *used})
    others = [i for i in range(vocabulary) if i not in needed]
    return np.array(sorted(needed + others[:size - len(needed)]))


def trim(name, tokens, greedy, size):
    folder = f"{FOLDER}/{name}"
    config = json.load(open(folder + "/config.json"))
    expected = safetensors_file.read(folder + "/expected.safetensors")
    stored = safetensors_file.read_typed(folder + "/model.safetensors")
    expected["input_ids"], expected["logits"] = expected["input_ids"][:, :tokens], expected["logits"][:, :tokens]
    expected["greedy_ids"] = expected["greedy_ids"][:greedy]
    ids = [key for key in expected if key.endswith("_ids")]
    kept = kept_tokens(np.concatenate([expected[key].ravel() for key in ids]), config["vocab_size"], size)
    assert len(kept) == size, f"{len(kept)} tokens occur"
    assert expected["prompt_ids"].size <= tokens
    for key in ids:
        expected[key] = np.searchsorted(kept, expected[key])
    expected["logits"] = expected["logits"][:, :, kept]
    tables = [key for key, (_, x) in stored.items() if x.ndim == 2 and ("embed" in key or key == "lm_head.weight")]
    weights = {key: x[kept] if key in tables else x for key, (_, x) in stored.items()}
    config["vocab_size"] = size
    json.dump(config, open(folder + "/config.json", "w"), indent=1)
    safetensors_file.write(folder + "/model.safetensors", weights, lambda key: stored[key][0])
    expected.pop("greedy_margins", None)
    safetensors_file.write(folder + "/expected.safetensors", expected, lambda n: "F32" if n == "logits" else "I32")
    print(f"{name}: {tables} cut to {size} rows, {sum(e.stat().st_size for e in os.scandir(folder)) // 1024} KiB")


if __name__ == "__main__":
    trim(sys.argv[1], *map(int, sys.argv[2:]))
