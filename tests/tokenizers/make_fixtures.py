#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes fixtures/: small tokenizers of each family, and what the `tokenizers` package makes of some texts with them.

    pip install tokenizers==0.23.3
    tests/tokenizers/make_fixtures.py
"""

import json
import pathlib
import random
import shutil

from tokenizers import Tokenizer

import compare
import make_tokenizers

OUT = pathlib.Path(__file__).with_name("fixtures")
LEFT_OUT = {"xlmr"}  # its table of replacements has 240 kB
TEXTS, ID_LISTS = 30, 20


def texts():
    rng = random.Random(1)
    lines = compare.LINES.splitlines()
    return ["", "".join(compare.ODD), *lines, "a" * 300, " " * 300 + "x", "\n \n" * 20, *(compare.random_text(rng) for _ in range(TEXTS))]


def vectors(tokenizer, given):
    rng = random.Random(2)
    cases = []
    for text in given:
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        rendered = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"ids": plain, "text": tokenizer.decode(plain)}
        if rendered != plain:
            case["rendered"] = rendered
        cases.append(case)
    lists = [[rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randint(1, 12))] for _ in range(ID_LISTS)]
    encoding = tokenizer.encode("a")
    before = encoding.ids[:encoding.special_tokens_mask.index(0)]
    return {"cases": cases, "decoded": [[ids, tokenizer.decode(ids)] for ids in lists], "before": before}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    given = texts()
    write(OUT / "texts.json", given)
    lines = make_tokenizers.LINES.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, family in make_tokenizers.families().items():
        if name in LEFT_OUT:
            continue
        (OUT / name).mkdir()
        write(OUT / name / "tokenizer.json", family.train(700 if name == "unigram" else 330, lines))
        if family.config is not None:
            write(OUT / name / "tokenizer_config.json", family.config)
        write(OUT / name / "vectors.json", vectors(Tokenizer.from_file(str(OUT / name / "tokenizer.json")), given))


if __name__ == "__main__":
    main()
