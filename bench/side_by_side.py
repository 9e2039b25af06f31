#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Compares the speed of two builds on one quiet machine:

    bench/side_by_side.py --old DIR --new DIR --out OUT [--threads 16] [--rounds 5] [--seconds 400]

DIR holds the programs of a build (rivulet, rivulet-server, rivulet-engine-bench, rivulet-context-bench) with their libraries in DIR/../lib.
Each case runs once per build and round; the order alternates, so that changes of the machine's speed meet both builds alike. The result is the
median over the rounds and the ratio new / old, where more than 1 is faster. A case that does not finish in the given time is left out and named.

Needs python3 (standard library). Writes OUT/side_by_side.json and a Markdown table to standard output.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time



def engine_case(model, threads, streams, tokens, prefill):
    def run(bin_dir, report):
        subprocess.run([bin_dir / "rivulet-engine-bench", f"--model={model}", f"--threads={threads}", f"--streams={streams}",
                        f"--tokens={tokens}", f"--prefill={prefill}", f"--json={report}"], check=True, stdout=subprocess.DEVNULL, timeout=120)
        result = json.loads(report.read_text())
        speeds = {f"decode, {row['streams']} streams": row["tokens_per_second"] for row in result["decode"]}
        speeds["prefill"] = result["prefill"]["tokens_per_second"]
        return speeds
    return run


def mixers_case(threads, sessions, working_set):
    def run(bin_dir, report):
        subprocess.run([bin_dir / "rivulet-context-bench", "--contexts=4096", f"--threads={threads}", f"--sessions={sessions}", "--prefill=2",
                        "--steps=64", f"--working_set={working_set}", f"--json={report}"], check=True, stdout=subprocess.DEVNULL, timeout=240)
        speeds = {}
        for row in json.loads(report.read_text())["rows"]:
            name = row["mixer"] + (f" ({row['place']})" if row["place"] else "")
            speeds[f"{name}, decode"] = 1e6 / row["decode_us"]["mean"]
            if row.get("prefill_tokens_per_second"):
                speeds[f"{name}, prefill"] = row["prefill_tokens_per_second"]
        return speeds
    return run


def serve_case(model, threads, concurrency, seconds):
    def run(bin_dir, report):
        log = report.with_suffix(".log")
        with log.open("w") as out:
            server = subprocess.Popen([bin_dir / "rivulet-server", f"--model={model}", "--listen=127.0.0.1:18590", "--http=127.0.0.1:18591",
                                       f"--threads={threads}"], stdout=out, stderr=subprocess.STDOUT)
        try:
            time.sleep(2)
            done = subprocess.run([bin_dir / "rivulet", "bench", "--server=127.0.0.1:18590", f"--concurrency={concurrency}",
                                   "--prompt-tokens=64", "--output-tokens=200", f"--duration={seconds}", "--warmup=2", "--drain=0", "--json"],
                                  capture_output=True, text=True, timeout=120)
            return {"output tokens": json.loads(done.stdout)["phases"][0]["output_tokens_per_second"]}
        finally:
            server.terminate()
            server.wait(30)
    return run


def measure(cases, builds, options):
    """{case: {quantity: {build: [speed of each round]}}}"""
    samples, failed, start = {}, set(), time.monotonic()
    for round_number in range(options.rounds):
        for name, run in cases.items():
            for build in list(builds)[:: 1 if round_number % 2 == 0 else -1]:
                if time.monotonic() - start > options.seconds:
                    return samples, failed
                try:
                    speeds = run(builds[build], options.out / "report.json")
                except (subprocess.SubprocessError, json.JSONDecodeError, KeyError) as error:
                    print(f"{name}, {build}: {error}", file=sys.stderr)
                    failed.add(f"{name}, {build}")
                    continue
                for quantity, speed in speeds.items():
                    samples.setdefault(name, {}).setdefault(quantity, {}).setdefault(build, []).append(speed)
    return samples, failed


def print_table(samples):
    print("| case | quantity | old | new | new / old | rounds |\n|---|---|---|---|---|---|")
    for name, quantities in samples.items():
        for quantity, builds in quantities.items():
            if len(builds) < 2:
                continue
            old, new = statistics.median(builds["old"]), statistics.median(builds["new"])
            print(f"| {name} | {quantity} | {old:.0f} | {new:.0f} | {new / old:.3f} | {len(builds['old'])} + {len(builds['new'])} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--new", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--model", default="models/tales")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=400, help="start no run after this")
    parser.add_argument("--cases", default="engine,mixers,serve")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted, cases = options.cases.split(","), {}
    if "engine" in wanted:
        for threads in sorted({2, options.threads}):
            cases[f"engine, {threads} threads"] = engine_case(options.model, threads, "1,8,64", 256, 2048)
    if "mixers" in wanted:
        cases[f"layer, 8 sessions, {options.threads} threads"] = mixers_case(options.threads, 8, 1 << 29)
        cases["layer, 1 session, 1 thread"] = mixers_case(1, 1, 1 << 28)
    if "serve" in wanted:
        cases[f"server, 64 streams, {options.threads} threads"] = serve_case(options.model, options.threads, 64, 6)
    samples, failed = measure(cases, {"old": options.old, "new": options.new}, options)
    (options.out / "side_by_side.json").write_text(json.dumps(samples, indent=1))
    print_table(samples)
    if failed:
        print(f"failed: {', '.join(sorted(failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
