#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json, which vectors_test.cc compares with: what transformers and jinja2 make of every snippet, and of a few random
conversations with every test template. Needs transformers 5. compare_with_transformers.py tries many more.

    TZ=UTC model_loader/jinja/make_vectors.py
"""

import json
import pathlib
import random

import compare_with_transformers
import conversations
import reference
import snippets

CONVERSATIONS = 6  # of each template; the refused ones among them stay


def main():
    source = random.Random(5)
    cases = [{"template": template, **reference.render(template, snippets.INPUT)} for template in snippets.SNIPPETS + snippets.LAYOUTS]
    for name, template in conversations.TEMPLATES.items():
        for _ in range(CONVERSATIONS):
            variables = compare_with_transformers.variables_of(*conversations.request(source))
            cases.append({"file": f"{name}.jinja", "input": variables, **reference.render(template, variables)})
    vectors = {"now": reference.NOW, "snippet_input": snippets.INPUT, "cases": cases}
    lines = json.dumps(vectors, ensure_ascii=True, indent=0)
    pathlib.Path(__file__).with_name("vectors.json").write_text(lines + "\n", encoding="utf-8")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} of them refused, {len(lines)} bytes")


if __name__ == "__main__":
    main()
