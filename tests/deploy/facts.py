# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The facts that the manifests must agree with, read from the sources, the Dockerfile and the running server."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(os.environ.get("RIVULET_SOURCE_DIR", pathlib.Path(__file__).resolve().parent.parent.parent))
SERVER = pathlib.Path(os.environ.get("RIVULET_BIN_DIR", ROOT / "build/release/bin")) / "rivulet-server"
MODEL = ROOT / "models/tales"
# Where deploy/Dockerfile installs what CMake installs below share/.
SHARE = "/opt/rivulet/share/rivulet/"


@dataclasses.dataclass
class Facts:
    dockerfile: str
    cuda_dockerfile: str
    version: str  # of the project
    flush_seconds: int  # after a drain, server/main.cc
    grpc_port: int  # the server's defaults
    http_port: int
    gauges: set  # names that /metrics gives
    paths: dict  # HTTP path → status, of a server that is ready
    weight_bytes: int  # of the bundled model


def found(pattern, text, what):
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ValueError(f"tests/deploy/facts.py: {what} was not found; has it moved?")
    return match.group(1)


def http_status(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


@contextlib.contextmanager
def running_server(*arguments):
    """The HTTP address of a server with free ports that is ready. It must end with 0 on SIGTERM."""
    command = [SERVER, "--listen=127.0.0.1:0", "--http=127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        output = ""
        for line in process.stdout:
            output += line
            if "grpc listening on" in line:
                break
        else:
            raise RuntimeError(f"{' '.join(map(str, command))} ended: {output}")
        try:
            yield found(r"http listening on (\S+)", output, "the HTTP address")
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
    if process.returncode != 0:
        raise RuntimeError(f"rivulet-server ended with {process.returncode} after SIGTERM")


def config_error(text):
    """Why the server does not take this config file, or an empty string. It stops before it loads: the model is not there."""
    # A build without CUDA refuses that device; flags win over the file, so everything else is still checked.
    config = json.loads(text)
    device = ["--device=cpu"] if config.get("device") == "cuda" else []
    # The hosts of the file, at ports that are free here.
    addresses = [f"--{flag}={config.get(flag, '127.0.0.1:0').rpartition(':')[0]}:0" for flag in ("listen", "http")]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        result = subprocess.run([SERVER, f"--config={file.name}", "--model=/nonexistent", *addresses, *device], capture_output=True, text=True, check=False)
    # 2: wrong flags. 1: they were right and there is no such model.
    return "" if result.returncode == 1 else result.stderr.strip() or f"exit code {result.returncode}"


def read_server(config):
    """The names of the gauges and the paths of a server with the base's config file, on this machine's copy of its model."""
    settings = {**json.loads(config), "model": str(MODEL)}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(settings, file)
        file.flush()
        with running_server(f"--config={file.name}") as address:
            page = urllib.request.urlopen(f"http://{address}/metrics", timeout=30).read().decode()
            paths = {path: http_status(f"http://{address}{path}") for path in ("/metrics", "/healthz", "/readyz")}
    return set(re.findall(r"^# TYPE (\S+) gauge$", page, re.MULTILINE)), paths


def gather(config):
    usage = subprocess.run([SERVER, "--help"], capture_output=True, text=True, check=True).stdout
    gauges, paths = read_server(config)
    return Facts(
        dockerfile=(ROOT / "deploy/Dockerfile").read_text(encoding="utf-8"),
        cuda_dockerfile=(ROOT / "deploy/Dockerfile.cuda").read_text(encoding="utf-8"),
        version=found(r"^project\(rivulet VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), "the version"),
        flush_seconds=int(found(r"kFlushTime\{(\d+)\}", (ROOT / "server/main.cc").read_text(encoding="utf-8"), "kFlushTime")),
        grpc_port=int(found(r"--listen .*default \S+:(\d+)\)", usage, "--listen")),
        http_port=int(found(r"--http .*default \S+:(\d+)\)", usage, "--http")),
        gauges=gauges,
        paths=paths,
        weight_bytes=(MODEL / "model.safetensors").stat().st_size)
