#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Compares the engine with transformers and jinja2: every snippet, and random conversations with every test template.

    compare_with_transformers.py [--count 20000] [--seed 1] [--renderer build/release/bin/rivulet-render-lines]

Needs transformers 5 and jinja2. Prints each difference and exits 1 if there is one. A text must be equal byte for byte; where one of
the two refuses, so must the other (the wording of errors is not compared, except for raise_exception's).
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys

import conversations
import reference
import snippets

ROOT = pathlib.Path(__file__).parent.parent.parent


def variables_of(messages, tools, others):
    """What transformers gives a template (render_jinja_template)."""
    plain = [{key: value for key, value in message.items() if value is not None} for message in messages]
    return {"messages": reference.chat_template_utils._alias_reasoning_fields(plain), "tools": tools, "documents": None, **others}


def make_jobs(count, seed):
    jobs = [(source, snippets.INPUT) for source in snippets.SNIPPETS + snippets.LAYOUTS]
    source = random.Random(seed)
    names = list(conversations.TEMPLATES)
    for i in range(count):
        jobs.append((conversations.TEMPLATES[names[i % len(names)]], variables_of(*conversations.request(source))))
    return jobs


def same(wanted, got):
    if "text" in wanted:
        return wanted == got
    if wanted["error"].startswith("TemplateError: "):
        return got.get("error", "").endswith(wanted["error"].removeprefix("TemplateError: "))
    return "error" in got


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--renderer", default=str(ROOT / "build/release/bin/rivulet-render-lines"))
    options = parser.parse_args()
    jobs = make_jobs(options.count, options.seed)
    lines = "".join(json.dumps({"template": template, "input": variables, "now": reference.NOW}) + "\n" for template, variables in jobs)
    answers = subprocess.run([options.renderer], input=lines, capture_output=True, text=True, check=True,
                             env={**os.environ, "TZ": "UTC"}).stdout.split("\n")[:-1]
    differences = refused = 0
    for (template, variables), answer in zip(jobs, answers, strict=True):
        wanted, got = reference.render(template, variables), json.loads(answer)
        refused += "error" in wanted
        if not same(wanted, got):
            differences += 1
            print(f"template {template[:300]!r}\n  input {json.dumps(variables)[:3000]}\n  wanted {wanted}\n  got    {got}")
    print(f"seed {options.seed}: {len(jobs)} renderings, {refused} refused by both, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    sys.exit(main())
