#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Checks that what the repository cites exists.

In every Markdown file, relative links lead to a file or folder and, with #anchor, to a heading there. In every source and Markdown
file, a citation docs/x.md#heading names a heading of that page. Anchors are GitHub's.

    tests/check_links.py [ROOT]       prints each broken link as path:line: reason, and exits 1 when there is one
    tests/check_links.py --self-test  plants broken links in a temporary tree and checks that each is found
"""

import collections
import pathlib
import re
import sys
import tempfile

SUFFIXES = {".md", ".cc", ".h", ".cu", ".cuh", ".py", ".proto", ".cmake", ".txt", ".sh", ".in", ".yaml"}
NAMES = {"run", "setup", "quickstart", "Dockerfile"}
SKIPPED_FOLDERS = {"build", "__pycache__", "venv", "node_modules", "fixtures", "results"}

LINK = re.compile(r"\]\(([^()\s]+)\)")
CITATION = re.compile(r"\b(docs/[\w-]+\.md)#([\w-]+)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchor_of(heading):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # a link's text
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(text):
    """The anchors of a Markdown page; the second heading of the same name is name-1, and so on."""
    found, count = set(), collections.Counter()
    for heading in HEADING.findall(CODE_BLOCK.sub("", text)):
        name = anchor_of(heading)
        found.add(f"{name}-{count[name]}" if count[name] else name)
        count[name] += 1
    return found


def check_target(target, anchor):
    """Yields why a citation of `anchor` ("" for none) in the path `target` is broken."""
    if not target.exists():
        yield "does not exist"
    elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
        yield f"has no heading #{anchor}"


def citations(root, file, line):
    """Yields (text, target, anchor) of each citation in a line."""
    for path, anchor in CITATION.findall(line):
        yield f"{path}#{anchor}", root / path, anchor
    if file.suffix != ".md":
        return
    for link in LINK.findall(line):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            yield link, file.parent / path if path else file, anchor


def files_of(root):
    for path in sorted(root.iterdir()):
        if path.is_symlink() or path.name.startswith(".") and path.name != ".ci":
            continue
        if path.is_dir() and path.name not in SKIPPED_FOLDERS:
            yield from files_of(path)
        elif path.is_file() and (path.suffix in SUFFIXES or path.name in NAMES) and path.name != "check_links.py":
            yield path


def check_tree(root):
    """All broken links below root, as printable lines."""
    broken = []
    for file in files_of(root):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for text, target, anchor in citations(root, file, line):
                broken += [f"{file.relative_to(root)}:{number}: {text}: {reason}" for reason in check_target(target, anchor)]
    return broken


# Files without and with broken links, and what must be reported of each of the latter.
GOOD = {
    "docs/a.md": "# A page\n## Log-linear Mamba-2\n## `Code` and, more\n## Twice\n## Twice\n```\n# no heading\n```\n[b](b/c.md#c)",
    "docs/b/c.md": "# C\n[up](../a.md#log-linear-mamba-2) [here](#c) [second](../a.md#twice-1) [out](https://example.org/#x)",
    "x.cc": "// docs/a.md#code-and-more",
}
BAD = {
    "docs/d.md": ("[gone](e.md)", "e.md: does not exist"),
    "docs/f.md": ("# F\n[no](#g)", "#g: has no heading #g"),
    "y.h": ("// docs/a.md#no-heading", "has no heading #no-heading"),
    "z.py": ("# docs/h.md#a", "docs/h.md#a: does not exist"),
    "w.md": ("[third](docs/a.md#twice-2)", "has no heading #twice-2"),
}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in [*GOOD.items(), *[(path, text) for path, (text, _) in BAD.items()]]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        found = check_tree(root)
    failures = [f"not found: {path}: {reason}" for path, (_, reason) in BAD.items()
                if not any(line.startswith(path + ":") and reason in line for line in found)]
    failures += [f"should pass: {line}" for line in found if line.split(":")[0] in GOOD]
    return failures


def main(arguments):
    if arguments == ["--self-test"]:
        problems = self_test()
    else:
        root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).parent.parent
        problems = check_tree(root.resolve())
    print("\n".join(problems) if problems else "check_links: all good")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
