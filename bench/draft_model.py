#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Tokens a second of one stream with drafts of a model and without, through the server.

    python3 bench/draft_model.py --bin build/release/bin --model models/tales --draft models/tales-draft
    python3 bench/draft_model.py --bin build/release/bin --model FOLDER        the drafts of its own head (mtp)

Two servers run, and each request goes to both in turn, so that a busy machine disturbs both alike. The texts must
be the same. Printed: medians of tokens a second and of the ratios of neighbouring runs, the ratio of the servers'
processor time for all requests, and how many drafts were right.
"""
import argparse
import os
import re
import socket
import statistics
import subprocess
import time
import urllib.request

PROMPTS = ["Once upon a time", "The king said to", "A fox and a wolf", "There was a poor woman who",
           "In the middle of the forest", "The youngest of the three brothers", "\"Come in,\" said the witch,",
           "Far away, where the sea"]
SAMPLING = {"greedy": ["--temperature", "0", "--top-p", "1", "--repetition-penalty", "1"],
            "0.8": ["--temperature", "0.8", "--top-p", "1", "--repetition-penalty", "1"],
            "model's": []}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, args, flags):
        self.source = "model" if args.draft else "mtp"
        self.grpc, self.http, self.client = free_port(), free_port(), os.path.join(args.bin, "rivulet")
        self.process = subprocess.Popen(
            [os.path.join(args.bin, "rivulet-server"), "--model", args.model, "--threads", str(args.threads),
             "--device", args.device, "--listen", f"127.0.0.1:{self.grpc}", "--http", f"127.0.0.1:{self.http}", *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.ready():
            time.sleep(0.2)

    def ready(self):
        if self.process.poll() is not None:
            raise SystemExit("a server did not start")
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz").status == 200
        except OSError:
            return False

    def metric(self, name):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics").read().decode()
        found = re.search(rf"^rivulet_{name}{{source=\"{self.source}\"}} (\S+)", text, re.M)
        return float(found.group(1)) if found else 0.0

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def generate(self, prompt, seed, tokens, sampling):
        """(text, seconds)"""
        begin = time.monotonic()
        text = subprocess.run(
            [self.client, "generate", "--server", f"127.0.0.1:{self.grpc}", "-p", prompt, "-m", str(tokens),
             "--seed", str(seed), "--ignore-eos", *sampling], check=True, capture_output=True).stdout
        return text, time.monotonic() - begin


def measure(plain, drafted, name, args):
    cpu, times = [plain.cpu_seconds(), drafted.cpu_seconds()], []
    counts = [drafted.metric("draft_tokens_total"), drafted.metric("draft_tokens_accepted_total")]
    for i in range(args.requests):
        pair = [None, None]
        for which in ((0, 1), (1, 0))[i % 2]:
            pair[which] = (plain, drafted)[which].generate(PROMPTS[i % len(PROMPTS)], i, args.tokens, SAMPLING[name])
        if pair[0][0] != pair[1][0]:
            raise SystemExit("the texts differ")
        times.append((pair[0][1], pair[1][1]))
    without, with_drafts = (statistics.median(args.tokens / t[i] for t in times) for i in (0, 1))
    ratio = statistics.median(a / b for a, b in times)
    saved = (plain.cpu_seconds() - cpu[0]) / (drafted.cpu_seconds() - cpu[1])
    made, right = (drafted.metric(f"draft_tokens{kind}_total") - before
                   for kind, before in zip(("", "_accepted"), counts))
    print(f"{name}: without {without:.1f}, with {with_drafts:.1f} tokens/s, ratio {ratio:.2f}, by CPU time {saved:.2f}, "
          f"{right:.0f} of {made:.0f} drafts right ({100 * right / max(made, 1):.0f} %), load {os.getloadavg()[0]:.1f}",
          flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--draft", help="the draft model; without one, --model's own head drafts")
    p.add_argument("--device", default="cpu")
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--requests", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--draft-tokens", type=int, default=15)
    p.add_argument("--sampling", nargs="*", default=list(SAMPLING))
    args = p.parse_args()
    speculate = ["--speculate", "draft", "--draft-model", args.draft] if args.draft else ["--speculate", "mtp"]
    servers = []
    try:
        for flags in ([], [*speculate, "--draft-tokens", str(args.draft_tokens)]):
            servers.append(Server(args, flags))
        for name in args.sampling:
            measure(*servers, name, args)
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
