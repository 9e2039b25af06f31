# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""For the run.py of each folder of tests in Python: what they need, or a skip that is loud."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import virtual_environment  # noqa: E402

SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def skip(suite, why):
    """The exit code of a suite that cannot run here: skipped, or failed with CI set in the environment."""
    print(why, file=sys.stderr)
    if os.environ.get("CI"):
        return 1
    print(f"[  SKIPPED ] {suite}.everything")  # tests/run lists these lines
    return SKIPPED


def run(suite, name, requirements, arguments, options=(), prepare=lambda python: None):
    """Runs Python with `arguments` and the packages of the file `requirements`, which pip installs with its `options` into
    build/`name`; `prepare` is called with that Python before. The exit code."""
    directory = ROOT / "build" / name
    python = directory / "bin/python"
    try:
        virtual_environment.ensure(directory, {requirements: list(options)})
    except (OSError, subprocess.CalledProcessError) as error:
        return skip(suite, f"cannot install {requirements} into {directory}: {error}\nIs the network reachable?")
    prepare(python)
    return subprocess.run([python, "-B", *arguments, *sys.argv[1:]], check=False).returncode
