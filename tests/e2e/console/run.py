#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Runs console_test.py in Debian's Chromium, which `deploy/setup --test` installs.

Without it the test is skipped (exit code 77), and says so; with CI set in the environment it fails instead.
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import chromium  # noqa: E402
from support import pinned_tools  # noqa: E402


def main():
    if chromium.find() is None:
        return pinned_tools.skip("ConsoleTest", "there is no chromium: deploy/setup --test installs it")
    return subprocess.run([sys.executable, "-B", HERE / "console_test.py", *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
