#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Runs console_test.py in Debian's Chromium, which `deploy/setup --test` installs.

Without it the test is skipped (exit code 77), and says so; with CI set in the environment it fails instead.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import chromium  # noqa: E402

SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def main():
    if chromium.find() is None:
        print("there is no chromium: deploy/setup --test installs it", file=sys.stderr)
        if os.environ.get("CI"):
            return 1
        print("[  SKIPPED ] ConsoleTest.everything")  # tests/run lists these lines
        return SKIPPED
    return subprocess.run([sys.executable, "-B", HERE / "console_test.py", *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
