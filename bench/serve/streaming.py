#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What streaming costs the server's process, by thread, in microseconds of CPU time a token:

    bench/serve/streaming.py --bin build/release/bin [--bin OTHER] [--streams 1024] [--step-ms 10.7] [--rounds 3]
    bench/serve/streaming.py --bin build/cuda/bin --server "rivulet-server --device cuda --model DIR --listen 127.0.0.1:0 --http 127.0.0.1:0"

By default the server is rivulet-paced-server, whose engine takes a given time for each step and computes nothing; --server names another
program of --bin. It runs under a closed loop of `rivulet bench`. With several --bin, for example before and after a change, each round
runs all of them, since a machine is seldom quiet. CPU time and switches are those of /proc/PID/task over the measured seconds; messages
and their delays are what the client saw. A switch: a thread had to wait, and another thread had to wake it.

Needs python3 (standard library) and the programs of each --bin; the client is always that of the first.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import time

CONNECTIONS = 8  # each carries an eighth of the streams
WARM_UP_SECONDS = 3.0


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if match := re.search(r"grpc listening on (\S+)", line):
                self.address = match.group(1)
                return
        raise RuntimeError("the server did not start: " + shlex.join(command))

    def by_thread(self):
        """CPU seconds and voluntary switches so far, by the names of threads without their numbers."""
        seconds, switches = collections.Counter(), collections.Counter()
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                name = (task / "comm").read_text().strip().rstrip("0123456789")
                seconds[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
                switches[name] += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M).group(1))
            except OSError:
                continue  # it has ended
        return seconds, switches

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def server_command(folder, options):
    if options.server:
        program, *flags = shlex.split(options.server)
        return [str(folder / program), *flags]
    return [str(folder / "rivulet-paced-server"), f"--step_ms={options.step_ms}", f"--sessions={options.streams}"]


def start_load(options, address):
    client = [options.bin[0] / "rivulet", "bench", "--server", address, "-c", options.streams, "--connections", CONNECTIONS,
              "--prompt-tokens", 16, "--output-tokens", options.output_tokens, "--temperature", 0, "--warmup", WARM_UP_SECONDS,
              "-d", options.seconds, "--drain", 1, "--json"]
    return subprocess.Popen([str(word) for word in client], stdout=subprocess.PIPE, text=True)


def wait(options, server):
    """For the measured seconds."""
    if not options.perf:
        return time.sleep(options.seconds)
    return subprocess.run(["perf", "record", "-q", "--call-graph", "dwarf,16384", "-F", "797", "-p", str(server.process.pid),
                           "-o", options.perf, "--", "sleep", str(options.seconds)], check=True)


def measure(folder, options):
    """One run: microseconds a token and switches a message by thread, and the client's report."""
    server = Server(server_command(folder, options))
    load = start_load(options, server.address)
    time.sleep(WARM_UP_SECONDS)
    before = server.by_thread()
    wait(options, server)
    after = server.by_thread()
    report = json.loads(load.communicate()[0])["phases"][0]
    server.stop()
    micros = {thread: 1e6 * (seconds - before[0][thread]) / report["output_tokens"] for thread, seconds in after[0].items()}
    switches = {thread: (count - before[1][thread]) / report["messages"] for thread, count in after[1].items()}
    return micros, switches, report


def show(folder, runs):
    """Medians over the rounds."""
    def of_thread(part, thread):
        return statistics.median(run[part].get(thread, 0.0) for run in runs)

    def of_client(value):
        return statistics.median(value(run[2]) for run in runs)

    totals = [sum(micros.values()) for micros, _, _ in runs]
    print(f"{folder}: {statistics.median(totals):.2f} us a token ({min(totals):.2f} to {max(totals):.2f}); "
          f"{of_client(lambda r: r['output_tokens_per_second']):.0f} tokens/s, "
          f"{of_client(lambda r: r['output_tokens'] / r['messages']):.1f} tokens a message; p50 / p99 of the "
          f"first token {of_client(lambda r: r['first_token_ms']['p50']):.1f} / {of_client(lambda r: r['first_token_ms']['p99']):.1f} ms, "
          f"between messages {of_client(lambda r: r['message_gap_ms']['p50']):.1f} / {of_client(lambda r: r['message_gap_ms']['p99']):.1f} ms")
    threads = collections.Counter({thread: of_thread(0, thread) for run in runs for thread in run[0]})
    print("    us a token (switches a message): " +
          ", ".join(f"{thread} {micros:.2f} ({of_thread(1, thread):.2f})" for thread, micros in threads.most_common() if micros >= 0.01))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--server", default="", help="program and flags in place of rivulet-paced-server")
    parser.add_argument("--streams", type=int, default=1024)
    parser.add_argument("--step-ms", type=float, default=10.7, help="1024 streams then get 96 000 tokens/s")
    parser.add_argument("--output-tokens", default="512", help="or LOW:HIGH")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--perf", default="", help="the file for a profile of the last run")
    options = parser.parse_args()
    runs = collections.defaultdict(list)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    for _ in range(options.rounds):
        for folder in options.bin:
            runs[folder].append(measure(folder, options))
    for folder in options.bin:
        show(folder, runs[folder])
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
