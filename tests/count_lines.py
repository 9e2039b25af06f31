#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Lines of each folder in two commits, as a Markdown table.

    tests/count_lines.py BEFORE AFTER [--files]     for example be18514 main; --files lists what changed in each file instead

A line is a physical line, comments and blank ones included. Each tracked file is of one kind, the first that fits:
    data     vectors.json, fixtures, results, plots, model files, anything that is not text
    docs     *.md
    bench    bench/, *_bench.*
    test     tests/, *_test.*, scripts in kernels/, and what only tests and benchmarks link or include (TEST_FILES)
    product  everything else: sources, protos, scripts, CMake files, deployment
"""

import collections
import io
import pathlib
import re
import subprocess
import sys
import tarfile

KINDS = ["product", "test", "bench", "docs"]
DATA = re.compile(r"/vectors\.json$|^tests/parity/fixtures/|/(results|plots)/|^models/(tales|configs)/|\.(json|png|xz|model|safetensors)$")
TEST_FILES = re.compile(r"(_test|_testing|_fixture|_reference|_subject|subject_checks|core_subject|mixer_suite\w*|suite_slots|allocation_counter|"
                        r"test_support|test_seed|test_models|slot_bytes|testing|fake_\w+|random_(model|parameters)|\w*_fuzz)\.(cc|h|py)$|^kernels/.*\.py$")
BENCH_FILES = re.compile(r"^bench/|_bench\.(cc|h)$|/bench_sessions\.(cc|h)$|/context_(bench|cases)\.(cc|h)$|^kernels/.*plot\w*\.py$")
# Their subfolders are counted apart.
SPLIT = {"kernels", "server", "client"}


def kind_of(path):
    if DATA.search(path):
        return "data"
    if path.endswith(".md"):
        return "docs"
    if BENCH_FILES.search(path):
        return "bench"
    return "test" if path.startswith("tests/") or TEST_FILES.search(path) else "product"


def folder_of(path):
    parts = pathlib.PurePosixPath(path).parts
    if len(parts) == 1:
        return "(root)"
    return "/".join(parts[:2]) if parts[0] in SPLIT and len(parts) > 2 else parts[0]


def lines_of(commit):
    """{path: lines} of the text files of a commit."""
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
    counts = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for entry in files:
            data = files.extractfile(entry).read() if entry.isfile() else b"\0"
            if b"\0" not in data:
                counts[entry.name] = data.count(b"\n")
    return counts


def by_folder(counts):
    """{folder: {kind: lines}}"""
    folders = collections.defaultdict(collections.Counter)
    for path, lines in counts.items():
        folders[folder_of(path)][kind_of(path)] += lines
        folders["**all**"][kind_of(path)] += lines
    return folders


def print_folders(before, after):
    before, after = by_folder(before), by_folder(after)
    print("| folder | " + " | ".join(KINDS) + " |\n" + "|---" * (len(KINDS) + 1) + "|")
    for folder in sorted({*before, *after}, key=lambda f: (f == "**all**", f)):
        old, new = before.get(folder, {}), after.get(folder, {})
        cell = lambda kind: f"{old.get(kind, 0)} → {new.get(kind, 0)} ({new.get(kind, 0) - old.get(kind, 0):+})"
        cells = [cell(kind) if old.get(kind, 0) or new.get(kind, 0) else "" for kind in KINDS]
        if any(cells):
            print(f"| {folder} | " + " | ".join(cells) + " |")


def print_files(before, after):
    changed = [(after.get(p, 0) - before.get(p, 0), kind_of(p), p) for p in {*before, *after} if before.get(p) != after.get(p)]
    for difference, kind, path in sorted(changed):
        print(f"{difference:+6} {kind:8} {path}")


if __name__ == "__main__":
    commits = [argument for argument in sys.argv[1:] if argument != "--files"]
    (print_files if "--files" in sys.argv else print_folders)(*map(lines_of, commits))
