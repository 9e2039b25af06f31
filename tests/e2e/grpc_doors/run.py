#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder with pinned clients, which are installed into build/grpc_doors_tools.

Where PyPI cannot be reached, the test is skipped (exit code 77), and says so; with CI set in the environment it fails instead.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from support import pinned_tools  # noqa: E402

if __name__ == "__main__":
    sys.exit(pinned_tools.run("GrpcDoors", "grpc_doors_tools", HERE / "requirements.txt",
                              ["-m", "unittest", "discover", "-s", HERE, "-p", "*_test.py"], options=["--no-deps"]))
