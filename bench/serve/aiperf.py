#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Drives a served model by aiperf, NVIDIA's load generator for the OpenAI API, and prints a table:

    bench/serve/aiperf.py --bin build/release/bin --model models/tales

It installs aiperf (1.2 GB) into build/aiperf_tools and starts rivulet-server. Prompts are made with a tokenizer of tests/tokenizers;
tokens are counted by the server.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import virtual_environment  # noqa: E402

REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "aiperf_requirements.txt"


def start_server(options):
    """The process, and the address of its HTTP port."""
    server = subprocess.Popen([options.bin / "rivulet-server", f"--model={options.model}", "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
                               "--log-level=warning"], stdout=subprocess.PIPE, text=True)
    address = None
    for line in server.stdout:
        if line.startswith("http listening on "):
            address = line.removeprefix("http listening on ").strip()
        if line.startswith("grpc listening on "):
            return server, address
    raise RuntimeError("the server did not start")


def measure(aiperf, address, streams, options):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([aiperf, "profile", "--model", pathlib.Path(options.model).name, "--url", f"http://{address}", "--endpoint-type", "completions",
                        "--streaming", "--concurrency", str(streams), "--request-count", str(8 * streams), "--warmup-request-count", str(streams),
                        "--isl", "64", "--osl", str(options.tokens), "--tokenizer", ROOT / "tests/tokenizers/fixtures/qwen2",
                        "--use-server-token-count", "--extra-inputs", "ignore_eos:true", "--random-seed", "1", "--ui", "none",
                        "--artifact-dir", out], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads((pathlib.Path(out) / "profile_export_aiperf.json").read_text(encoding="utf-8"))


def row(streams, report):
    def both(name):
        return f"{report[name]['p50']:.1f} / {report[name]['p99']:.1f}"
    return (f"| {streams} | {report['request_count']['avg']:.0f} | {report['request_error_rate']['avg']:.0f} % "
            f"| {report['output_token_throughput']['avg']:.0f} | {both('time_to_first_token')} | {both('inter_token_latency')} "
            f"| {both('request_latency')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", default=str(ROOT / "models/tales"))
    parser.add_argument("--streams", default="1,16,64")
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    tools = ROOT / "build/aiperf_tools"
    virtual_environment.ensure(tools, {REQUIREMENTS: []})
    server, address = start_server(options)
    try:
        print("| streams | requests | failed | tokens/s | first token p50 / p99, ms | inter-token p50 / p99, ms | request p50 / p99, ms |\n"
              "|---|---|---|---|---|---|---|")
        for streams in map(int, options.streams.split(",")):
            print(row(streams, measure(tools / "bin/aiperf", address, streams, options)), flush=True)
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
