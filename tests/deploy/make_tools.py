#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Makes the virtual environment that tests/deploy runs in, unless it is already there.

    make_tools.py DIRECTORY

If pip cannot install the tools, this script and every test that needs them fail: skipping them silently would look like a pass.
Without a network, `tests/run -LE deploy` excludes these tests.
"""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = {HERE / "requirements.txt": [], HERE / "kubectl.txt": ["--require-hashes", "--no-deps"]}


def wanted():
    """A hash that changes when the environment must be made again."""
    content = sys.version.encode() + b"".join(file.read_bytes() for file in REQUIREMENTS)
    return hashlib.sha256(content).hexdigest()


def make(directory):
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    pip = [directory / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    for file, options in REQUIREMENTS.items():
        subprocess.run([*pip, *options, "-r", file], check=True)


def main(directory):
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Several build folders share it, and their tests may run at the same time.
    with open(directory.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = directory / "made_of"
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted():
            return 0
        try:
            make(directory)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"tests/deploy: cannot install its tools into {directory}: {error}\n"
                  "They come from PyPI (python3-venv must be installed, deploy/setup does it). Is the network reachable? "
                  "'tests/run -LE deploy' runs everything else.", file=sys.stderr)
            return 1
        stamp.write_text(wanted(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
