#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""A server on a GPU as clients see it, beside the bare engine on the same machine:

    bench/serve/on_gpu.py --bin build/cuda/bin --model DIR --out OUT [--streams 1,32,256] [--state-dtype fp32] [--seconds 6]

First rivulet-device-bench decodes random weights of DIR's shape with as many rows as there are to be streams (config.json is all that it
reads of DIR). Then rivulet-server serves DIR with --device cuda, and rivulet bench measures twice for each number of streams, with prompts
of 16 tokens: streams that never end, so that no prompt is in the way, and outputs of 512 tokens, so that streams begin all the time. What
the server costs is the engine's tokens/s over those of the endless streams, less one.

DIR may be a random checkpoint of tests/parity/make_random_mamba2.py. Needs python3 (standard library) and the four programs.
"""

import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run as serve  # noqa: E402  (the server as a child, `rivulet bench`, tables)

HEAD = ["streams", "tokens/s", "bare engine", "cost", "inter-token ms p50/p95/p99", "server CPU us/token", "client CPU us/token", "failed",
        "outputs of 512: tokens/s", "TTFT ms p50/p95/p99"]
ENDLESS, SHORT = 1_000_000, 512  # tokens


def engine_rates(options):
    """The GPU, and tokens/s by rows. Its own process: it gives the GPU's memory back when it ends."""
    report = options.out / f"engine_{options.state_dtype}.json"
    command = [str(options.bin / "rivulet-device-bench"), "--config", str(pathlib.Path(options.model) / "config.json"), "--rows",
               options.streams, "--steps", "32", "--state_dtype", options.state_dtype, "--out", str(report)]
    print("+", " ".join(command), file=sys.stderr, flush=True)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    gpu = next(line for line in printed.splitlines() if "GB/s" in line)
    return gpu, {row["rows"]: row["rows"] / row["wall_seconds"] for row in json.loads(report.read_text())}


def served(options, server, streams, output_tokens):
    flags = ["--concurrency", streams, "--duration", options.seconds, "--warmup", 2, "--connections", min(streams, 8), "--prompt-tokens", 16,
             "--output-tokens", output_tokens, "--temperature", 0, "--drain", 0]
    return serve.bench(options, server, flags, 10 * options.seconds + 120)


def row(streams, endless, short, engine):
    for report in (endless, short):
        if "error" in report:
            return serve.error_row(str(streams), report, len(HEAD))
    phase, restarted = endless["phases"][0], short["phases"][0]
    rate = phase["output_tokens_per_second"]
    return [str(streams), serve.cell(rate, 0), serve.cell(engine, 0), f"{engine / rate - 1:+.1%}", serve.quantiles(phase["inter_token_ms"], 2),
            serve.cell(endless["server"]["cpu_microseconds_per_token"]), serve.cell(endless["client"]["cpu_microseconds_per_token"]),
            str(phase["failed"] + restarted["failed"]), serve.cell(restarted["output_tokens_per_second"], 0),
            serve.quantiles(restarted["first_token_ms"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--streams", default="1,32,256")
    parser.add_argument("--state-dtype", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--threads", type=int, default=4, help="of the server")
    options = parser.parse_args()
    options.server_cores = options.client_cores = ""
    options.state_memory, options.server_flag = "auto", ["--device=cuda", f"--state-dtype={options.state_dtype}"]
    options.out.mkdir(parents=True, exist_ok=True)
    about = serve.head(options)
    gpu, rates = engine_rates(options)
    server = serve.Server(options, options.out / f"server_{options.state_dtype}.log")
    try:
        counts = [int(count) for count in options.streams.split(",")]
        reports = {count: [served(options, server, count, tokens) for tokens in (ENDLESS, SHORT)] for count in counts}
    finally:
        server.stop()
    (options.out / f"served_{options.state_dtype}.json").write_text(json.dumps({"head": about, "gpu": gpu, "engine": rates, "served": reports}, indent=1))
    print(about["command"], about["date"], about["server_version"], gpu, sep="; ")
    print(f"{options.state_dtype} states; {about['machine']['usable_cpus']} CPUs ({about['machine']['processor']})\n")
    print(serve.table(HEAD, [row(count, *reports[count], rates[count]) for count in counts]), flush=True)


if __name__ == "__main__":
    main()
