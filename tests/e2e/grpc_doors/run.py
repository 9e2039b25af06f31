#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder with pinned clients, which are installed into build/grpc_doors_tools.

Where PyPI cannot be reached, the test is skipped (exit code 77), and says so; with CI set in the environment it fails instead.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
import virtual_environment  # noqa: E402

SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def main():
    directory = HERE.parents[2] / "build/grpc_doors_tools"
    try:
        virtual_environment.ensure(directory, {HERE / "requirements.txt": ["--no-deps"]})
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cannot install smg, tritonclient and others into {directory}: {error}\nIs the network reachable?", file=sys.stderr)
        if os.environ.get("CI"):
            return 1
        print("[  SKIPPED ] GrpcDoors.everything")  # tests/run lists these lines
        return SKIPPED
    return subprocess.run([directory / "bin/python", "-B", "-m", "unittest", "discover", "-s", HERE, "-p", "*_test.py", *sys.argv[1:]],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
