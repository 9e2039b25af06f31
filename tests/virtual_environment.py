# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Virtual environments for tests that need packages of PyPI, made once and kept in the build folder."""

import fcntl
import hashlib
import shutil
import subprocess
import sys


def _wanted(requirements):
    """A hash that changes when the environment must be made again."""
    content = sys.version.encode() + b"".join(file.read_bytes() for file in requirements)
    return hashlib.sha256(content).hexdigest()


def _make(directory, requirements):
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    pip = [directory / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    for file, options in requirements.items():
        subprocess.run([*pip, *options, "-r", file], check=True)


def ensure(directory, requirements):
    """Installs `requirements`, {file: pip's options}, into `directory`, unless they are there. OSError or CalledProcessError when it fails."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Several build folders share it, and their tests may run at the same time.
    with open(directory.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = directory / "made_of"
        if stamp.exists() and stamp.read_text(encoding="utf-8") == _wanted(requirements):
            return
        _make(directory, requirements)
        stamp.write_text(_wanted(requirements), encoding="utf-8")
