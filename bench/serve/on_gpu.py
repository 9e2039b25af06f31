#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""A server on a GPU as clients see it, beside the bare engine on the same machine:

    bench/serve/on_gpu.py --bin build/cuda/bin --model DIR --out OUT [--streams 1,32,256] [--state-dtype fp32] [--seconds 10] [--rounds 2]

In each round rivulet-device-bench decodes with random weights of the same shape; of DIR it reads only config.json. Then rivulet-server
serves DIR with --device cuda, and rivulet bench runs twice for each number of streams, with prompts of 16 tokens: with endless outputs, so
that no prompt is in the way, and with outputs of 512 tokens. The cost of the server is the engine's tokens/s over those of the endless
streams, less one. Rounds start both programs anew, since the algorithms that cuBLASLt gets are chosen by trials at the start.

DIR may be a random checkpoint of tests/parity/make_random_mamba2.py. Needs python3 (standard library) and the three programs. Exit codes:
0, every run succeeded; 1, one failed, and the tables say which.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run as serve  # noqa: E402  (the server as a child, `rivulet bench`, tables)

ENDLESS, FINITE = 1_000_000, 512  # output tokens
HEAD = ["streams", "bare engine, tokens/s", "endless streams: tokens/s", "cost", "inter-token ms p50/p95/p99", "server CPU us/token",
        "client CPU us/token", f"outputs of {FINITE}: tokens/s", "TTFT ms p50/p95/p99", "failed"]


def engine_rates(options):
    """The GPU, and tokens/s by rows. The process ends, and the GPU's memory is free for the server."""
    path = options.out / f"engine_{options.state_dtype}.json"
    command = [str(options.bin / "rivulet-device-bench"), "--config", str(pathlib.Path(options.model) / "config.json"), "--rows",
               ",".join(map(str, options.streams)), "--steps", "32", "--state_dtype", options.state_dtype, "--out", str(path)]
    print("+", " ".join(command), file=sys.stderr, flush=True)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    gpu = next((line for line in printed.splitlines() if "GB/s" in line), "unknown GPU")
    return gpu, {found["rows"]: found["rows"] / found["wall_seconds"] for found in json.loads(path.read_text())}


def load(options, server, streams, output_tokens):
    flags = ["--concurrency", streams, "--duration", options.seconds, "--warmup", 2, "--connections", min(streams, 8), "--prompt-tokens", 16,
             "--output-tokens", output_tokens, "--temperature", 0, "--drain", 0]
    return serve.bench(options, server, flags, 10 * options.seconds + 120)


def cost(engine, endless):
    """None: the run failed."""
    rate = 0 if "error" in endless else endless["phases"][0]["output_tokens_per_second"]
    return engine / rate - 1 if rate else None


def row(streams, engine, endless, finite):
    for report in (endless, finite):
        if "error" in report:
            return serve.error_row(str(streams), report, len(HEAD))
    phase, restarted = endless["phases"][0], finite["phases"][0]
    found = cost(engine, endless)
    return [str(streams), serve.cell(engine, 0), serve.cell(phase["output_tokens_per_second"], 0), "-" if found is None else f"{found:+.1%}",
            serve.quantiles(phase["inter_token_ms"], 2), serve.cell(endless["server"]["cpu_microseconds_per_token"]),
            serve.cell(endless["client"]["cpu_microseconds_per_token"]), serve.cell(restarted["output_tokens_per_second"], 0),
            serve.quantiles(restarted["first_token_ms"]), str(phase["failed"] + restarted["failed"])]


def one_round(options, number):
    gpu, rates = engine_rates(options)
    server = serve.Server(options, options.out / f"server_{options.state_dtype}_{number}.log")
    reports = {}
    try:
        for streams in options.streams:
            reports[streams] = [load(options, server, streams, tokens) for tokens in (ENDLESS, FINITE)]
    finally:
        server.stop()
        found = {"gpu": gpu, "engine": rates, "served": reports}
        (options.out / f"round_{options.state_dtype}_{number}.json").write_text(json.dumps(found, indent=1))
    print(f"round {number}; {gpu}\n")
    print(serve.table(HEAD, [row(streams, rates[streams], *reports[streams]) for streams in options.streams]))
    for streams in options.streams:
        print("".join(f"{streams} streams: {note}\n" for note in serve.closed_notes(reports[streams][1])), end="", flush=True)
    return {streams: cost(rates[streams], reports[streams][0]) for streams in options.streams}, any(
        "error" in report or report["phases"][0]["failed"] for pair in reports.values() for report in pair)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--streams", type=serve.numbers(int), default=[1, 32, 256])
    parser.add_argument("--state-dtype", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--seconds", type=float, default=10, help="of each run; where an output takes longer, no first token is seen")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=4, help="of the server")
    options = parser.parse_args()
    options.server_cores = options.client_cores = ""
    options.state_memory = "auto"
    queue = 2 * max(options.streams)  # all may begin anew at once
    options.server_flag = ["--device=cuda", f"--state-dtype={options.state_dtype}", f"--max-queue={queue}"]
    options.out.mkdir(parents=True, exist_ok=True)
    about = serve.head(options)
    print(about["command"], about["date"], about["server_version"], f"{options.state_dtype} states",
          f"{about['machine']['usable_cpus']} CPUs ({about['machine']['processor']})", sep="; ")
    rounds = [one_round(options, number + 1) for number in range(options.rounds)]
    for streams in options.streams:
        costs = [costs[streams] for costs, _ in rounds if costs[streams] is not None]
        print(f"{streams} streams: cost {statistics.median(costs):+.1%}, median of {len(costs)} rounds" if costs else f"{streams} streams: failed")
    return int(any(failed for _, failed in rounds))


if __name__ == "__main__":
    sys.exit(main())
