#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Runs client_test.py with the official `openai` package, which is installed into build/openai_tools.

Where PyPI cannot be reached, the test is skipped (exit code 77), and says so; with CI set in the environment it fails instead.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from support import pinned_tools  # noqa: E402

if __name__ == "__main__":
    sys.exit(pinned_tools.run("OpenAiClient", "openai_tools", HERE / "requirements.txt", [HERE / "client_test.py"]))
