#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Installs client/python with pip into build/python_tools, checks its types, and runs client_test.py with it.

Where PyPI cannot be reached, the test is skipped (exit code 77), and says so; with CI set in the environment it fails instead.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))
from support import pinned_tools  # noqa: E402


def install(python):
    """Of a copy: setuptools writes beside the sources."""
    with tempfile.TemporaryDirectory() as copy:
        package = pathlib.Path(copy) / "client/python"
        shutil.copytree(ROOT / "client/python", package, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        shutil.copytree(ROOT / "proto", pathlib.Path(copy) / "proto")
        shutil.copyfile(ROOT / "CMakeLists.txt", pathlib.Path(copy) / "CMakeLists.txt")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--force-reinstall"]
        subprocess.run([*pip, package], check=True)
        subprocess.run([python, "-m", "mypy", "--cache-dir=/dev/null"], cwd=package, check=True)


if __name__ == "__main__":
    sys.exit(pinned_tools.run("PythonClient", "python_tools", HERE / "requirements.txt", [HERE / "client_test.py"], prepare=install))
