#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What the server costs over the bare engine, in one run on one host:

    bench/serve/against_engine.py --bin build/release/bin --model models/tales --out OUT [--threads 2] [--streams 64]

Rounds (a first one to warm up is not counted) of two measurements of the same work, decoding with so many streams: rivulet-engine-bench, which calls the engine's Step in a
loop, and rivulet-server under a closed loop of streams that never end, so that no prompt is in the way. Both sample at temperature 1 from
the whole vocabulary: the server gets the model without its generation_config.json. They alternate, so that what
changes on the machine meets both. The cost is the median of the engine's tokens/s over the server's, less one.

Needs python3 (standard library) and the three programs with their ../lib.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run as serve  # noqa: E402  (the server as a child, pinning, the machine's description)


def engine_tokens_per_second(options):
    report = options.out / "engine.json"
    command = [str(options.bin / "rivulet-engine-bench"), "--model", options.model, f"--threads={options.threads}",
               f"--streams={options.streams}", "--prefill=0", f"--tokens={options.tokens}", f"--json={report}"]
    subprocess.run(serve.pinned(options.server_cores, command), check=True, stdout=subprocess.DEVNULL, timeout=300)
    return json.loads(report.read_text())["decode"][0]["tokens_per_second"]


def server_tokens_per_second(options, server):
    command = [str(options.bin / "rivulet"), "bench", f"--server={server.address}", f"--concurrency={options.streams}", "--prompt-tokens=16",
               "--output-tokens=1000000", f"--duration={options.seconds}", "--warmup=3", "--drain=0", "--json"]
    before = server.cpu_seconds()
    done = subprocess.run(serve.pinned(options.client_cores, command), capture_output=True, text=True, timeout=300)
    report = json.loads(done.stdout)
    return report["phases"][0]["output_tokens_per_second"], server.cpu_seconds() - before


def without_generation_config(model, folder):
    """The same checkpoint without its recommended sampling."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in pathlib.Path(model).resolve().iterdir():
        link = folder / file.name
        if file.name != "generation_config.json" and not link.exists():
            link.symlink_to(file)
    return str(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6, help="of the server's part of a round")
    parser.add_argument("--tokens", type=int, default=512, help="of each stream in the engine's part of a round")
    parser.add_argument("--server-cores", default="", help="taskset list for server and engine")
    parser.add_argument("--client-cores", default="", help="taskset list for the client")
    options = parser.parse_args()
    options.state_memory, options.server_flag = "4GiB", []
    options.out.mkdir(parents=True, exist_ok=True)
    options.model = without_generation_config(options.model, options.out / "model")
    print(" ".join(sys.argv), serve.version(options.bin / "rivulet-server"), serve.machine(), sep="\n")
    server = serve.Server(options, options.out / "server.log")
    rows = []
    try:
        for number in range(options.rounds + 1):
            engine = engine_tokens_per_second(options)
            served, _ = server_tokens_per_second(options, server)
            if number == 0:
                continue
            rows.append((engine, served))
            print(f"round {number}: engine {engine:.0f} tokens/s, server {served:.0f}, cost {engine / served - 1:+.1%}", flush=True)
    finally:
        server.stop()
    engine, served = (statistics.median(column) for column in zip(*rows))
    cost = statistics.median(e / s - 1 for e, s in rows)
    print(f"median of {options.rounds}: engine {engine:.0f} tokens/s, server {served:.0f}, cost {cost:+.1%}")
    (options.out / "against_engine.json").write_text(json.dumps({"rows": rows, "cost": cost, "streams": options.streams}, indent=1))


if __name__ == "__main__":
    main()
