#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Measures a served model as its clients see it, in one run on one host:

    bench/serve/run.py --bin build/release/bin --model models/tales --out OUT [--threads 2]

Starts rivulet-server and drives it with `rivulet bench`: closed loop at 1, 8, 64 and 256 streams; running streams with and without a
long prompt beside them; overload at 0.5, 1, 2 and 5 times the capacity. Beside each run stands what the server's and the client's
processes cost. OUT gets results.json (everything, with each command and its report) and results.md (the tables).

Needs python3 (standard library) and the two programs with their ../lib. Every step can fail alone: its error stands in its place.
--quick shortens every step, to try the script out. --server-flag passes flags on.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """rivulet-server as a child, on two ports of the kernel's choice."""

    START_SECONDS = 300

    def __init__(self, options, log_path):
        self.command = [str(options.bin / "rivulet-server"), "--model", options.model, "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
                        f"--threads={options.threads}", f"--state-memory={options.state_memory}", *options.server_flag]
        self.log_path = log_path
        log = open(log_path, "w", encoding="utf-8")
        self.process = subprocess.Popen(pinned(options.server_cores, self.command), stdout=log, stderr=subprocess.STDOUT)
        self.address = self._wait_for_address()

    def _wait_for_address(self):
        deadline = time.monotonic() + self.START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            match = re.search(r"grpc listening on (\S+:\d+)", pathlib.Path(self.log_path).read_text(encoding="utf-8"))
            if match:
                return match.group(1)
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start; see {self.log_path}")

    def cpu_seconds(self):
        """User and system time of all its threads, so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def peak_memory_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)  # a server that died has none
        return int(peak.group(1)) / 1024 if peak else None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def pinned(cores, command):
    return ["taskset", "-c", cores, *command] if cores else command


def bench(options, server, flags, limit):
    """Runs `rivulet bench` and returns its report with the server's CPU time; a report with "error" when it failed."""
    command = pinned(options.client_cores, [str(options.bin / "rivulet"), "bench", "--server", server.address, "--json", *map(str, flags)])
    print("+", " ".join(command), file=sys.stderr, flush=True)
    cpu_before = server.cpu_seconds()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit, check=False)
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError, OSError) as error:
        text = done.stderr if isinstance(error, json.JSONDecodeError) else str(error)
        return {"command": " ".join(command), "error": text.strip()[-500:]}
    cpu = server.cpu_seconds() - cpu_before
    tokens = max(report["client"]["tokens"], 1)
    report["command"] = " ".join(command)
    report["server"] = {"cpu_seconds": cpu, "cpu_microseconds_per_token": 1e6 * cpu / tokens, "peak_memory_mb": server.peak_memory_mb()}
    return report


def closed_loop(options, server, streams):
    seconds = options.seconds
    flags = ["--concurrency", streams, "--duration", seconds, "--warmup", max(1, seconds / 5), "--connections", min(streams, 4),
             "--prompt-tokens", options.prompt_tokens, "--output-tokens", options.output_tokens, "--drain", 0]
    return bench(options, server, flags, 10 * seconds + 120)


def interference(options, server, streams):
    flags = ["--concurrency", streams, "--duration", options.seconds, "--warmup", 1, "--interfere-prompt", options.interfere_prompt,
             "--prompt-tokens", 16, "--connections", 2]
    return bench(options, server, flags, 12 * options.seconds + 240)


def overload(options, server, rate):
    flags = ["--rate", f"{rate:.4f}", "--duration", options.seconds, "--warmup", max(1, options.seconds / 5), "--drain", 60,
             "--connections", 4, "--prompt-tokens", options.prompt_tokens, "--output-tokens", options.output_tokens,
             "--slo-ttft-ms", options.slo_ttft_ms, "--slo-itl-ms", options.slo_itl_ms]
    return bench(options, server, flags, 10 * options.seconds + 240)


def cell(value, digits=1):
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else "-"


def quantiles(latency, digits=1):
    if not latency["count"]:
        return "- / - / -"
    return " / ".join(cell(latency[name], digits) for name in ("p50", "p95", "p99"))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def error_row(name, report, columns):
    return [name, "failed: " + report["error"].replace("\n", " ").replace("|", "/")] + [""] * (columns - 2)


CLOSED_HEAD = ["streams", "output tokens/s", "all tokens/s", "TTFT ms p50/p95/p99", "inter-token ms p50/p95/p99", "inter-token max",
               "failed", "server CPU us/token", "client CPU us/token"]


def closed_notes(report):
    if "error" in report or report["phases"][0]["first_token_ms"]["count"]:
        return []
    return [f"no request began within the measured {report['phases'][0]['seconds']:.1f} s and got its first token (the streams were busy with "
            "those before): so TTFT is -; measure longer (--seconds)"]


def closed_row(streams, report):
    if "error" in report:
        return error_row(str(streams), report, len(CLOSED_HEAD))
    phase = report["phases"][0]
    return [str(streams), cell(phase["output_tokens_per_second"], 0), cell(phase["tokens_per_second"], 0),
            quantiles(phase["first_token_ms"]), quantiles(phase["inter_token_ms"], 2), cell(phase["inter_token_ms"]["max"]),
            str(phase["failed"]), cell(report["server"]["cpu_microseconds_per_token"]),
            cell(report["client"]["cpu_microseconds_per_token"])]


INTERFERENCE_HEAD = ["streams", "inter-token ms without, p50/p95/p99", "with", "p99 with / without", "message gap p99 with / without",
                     "prompts done", "TTFT of the prompt, ms (mean)"]


def interference_row(streams, report):
    if "error" in report or not report.get("interference"):
        return error_row(str(streams), {"error": report.get("error", report.get("ending", ""))}, len(INTERFERENCE_HEAD))
    without, with_prompt = report["phases"]
    found = report["interference"]
    return [str(streams), quantiles(without["inter_token_ms"], 2), quantiles(with_prompt["inter_token_ms"], 2),
            cell(found["inter_token_ratio"]["p99"], 2) + "x", cell(found["message_gap_ratio"]["p99"], 2) + "x",
            str(found["succeeded"]), cell(found["first_token_ms"]["mean"], 0)]


OVERLOAD_HEAD = ["offered", "requests/s", "completed/s", "goodput/s", "output tokens/s", "admitted: TTFT ms p50/p95/p99",
                 "inter-token ms p50/p95/p99", "end to end p99, ms", "errors by code", "not finished"]


def overload_row(factor, report):
    if "error" in report:
        return error_row(f"{factor}x", report, len(OVERLOAD_HEAD))
    phase = report["phases"][0]
    errors = ", ".join(f"{code} {count}" for code, count in phase["errors"]["by_code"].items()) or "none"
    return [f"{factor}x", cell(report["settings"]["rate"], 2), cell(phase["requests_per_second"], 2), cell(phase["goodput_per_second"], 2),
            cell(phase["output_tokens_per_second"], 0), quantiles(phase["first_token_ms"]), quantiles(phase["inter_token_ms"], 2),
            cell(phase["end_to_end_ms"]["p99"], 0), errors, str(phase["cut_off"] + phase["not_sent"])]


def machine():
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", cpu)
    return {"processor": model.group(1) if model else "unknown", "cpus": os.cpu_count(), "usable_cpus": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1), "kernel": os.uname().release,
            "load_average_before": os.getloadavg()}


def version(program):
    done = subprocess.run([str(program), "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.strip()


def head(options):
    return {"command": " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "machine": machine(),
            "server_version": version(options.bin / "rivulet-server"), "client_version": version(options.bin / "rivulet")}


def pins(options):
    places = [f"{name} on cores {cores}" for name, cores in (("server", options.server_cores), ("client", options.client_cores)) if cores]
    return "; ".join(places) or "not pinned"


def markdown(options, results):
    at, where = results["head"], results["head"]["machine"]
    out = [f"# Serving {options.model}\n", f"- command: `{at['command']}`", f"- date: {at['date']}",
           f"- machine: {where['processor']}, {where['usable_cpus']} of {where['cpus']} processors, {where['memory_gb']} GB, Linux "
           f"{where['kernel']}; load average before {where['load_average_before'][0]:.2f}; {pins(options)}",
           f"- server: {at['server_version']}, client: {at['client_version']}", f"- started as `{results['server_command']}`\n",
           f"Prompts of {options.prompt_tokens} random tokens, outputs of {options.output_tokens}; {options.seconds:g} s measured each. "
           "CPU time is that of the whole run, prompts and warm-up too, over its output tokens.\n",
           "## Closed loop\n",
           table(CLOSED_HEAD, [closed_row(streams, report) for streams, report in results["closed_loop"].items()])]
    out += [f"## Running streams beside prompts of {options.interfere_prompt} tokens\n",
            table(INTERFERENCE_HEAD, [interference_row(streams, report) for streams, report in results["interference"].items()])]
    if results["overload"]:
        out += [f"## Overload\n\nCapacity: {results['capacity']:.2f} requests/s, the best of the closed loop. Good: first token within "
                f"{options.slo_ttft_ms:g} ms, 99 % of the tokens within {options.slo_itl_ms:g} ms.\n",
                table(OVERLOAD_HEAD, [overload_row(factor, report) for factor, report in results["overload"].items()])]
    notes = [f"- {name}, {key}: {note}" for name in ("closed_loop", "interference", "overload")
             for key, report in results[name].items()
             for note in report.get("notes", []) + (closed_notes(report) if name == "closed_loop" else [])]
    return "\n".join(out + (["## Notes\n"] + notes if notes else [])) + "\n"


def capacity(closed):
    """Requests/s: output tokens/s over the mean output length, since a short run completes few long requests."""
    rates = [0.0]
    for report in closed.values():
        if "error" not in report:
            low, _, high = report["settings"]["output_tokens"].partition(":")
            rates.append(report["phases"][0]["output_tokens_per_second"] / ((int(low) + int(high or low)) / 2))
    return max(rates)


def measure(options, server, results, save):
    for streams in options.streams:
        results["closed_loop"][streams] = closed_loop(options, server, streams)
        save()
    for streams in options.interfere_streams:
        results["interference"][streams] = interference(options, server, streams)
        save()
    results["capacity"] = options.capacity or capacity(results["closed_loop"])
    if results["capacity"] > 0:
        for factor in options.factors:
            results["overload"][factor] = overload(options, server, factor * results["capacity"])
            save()


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",") if part]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of rivulet-server and rivulet")
    parser.add_argument("--model", required=True, help="directory of the checkpoint")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the results")
    parser.add_argument("--threads", type=int, default=0, help="of the server; 0: one for each core")
    parser.add_argument("--state-memory", default="4GiB")
    parser.add_argument("--server-flag", action="append", default=[], help="one more flag of the server, as --name=value; repeatable")
    parser.add_argument("--server-cores", default="", help="taskset list for the server, for example 0-7")
    parser.add_argument("--client-cores", default="", help="taskset list for the client")
    parser.add_argument("--seconds", type=float, default=20, help="measured in each step")
    parser.add_argument("--streams", type=numbers(int), default=[1, 8, 64, 256], help="of the closed loop, separated by commas")
    parser.add_argument("--interfere-streams", type=numbers(int), default=[8, 64])
    parser.add_argument("--interfere-prompt", type=int, default=20000)
    parser.add_argument("--factors", type=numbers(float), default=[0.5, 1.0, 2.0, 5.0], help="of the capacity")
    parser.add_argument("--capacity", type=float, default=0, help="requests/s; 0: the best of the closed loop")
    parser.add_argument("--prompt-tokens", default="128")
    parser.add_argument("--output-tokens", default="128")
    parser.add_argument("--slo-ttft-ms", type=float, default=2000)
    parser.add_argument("--slo-itl-ms", type=float, default=200)
    parser.add_argument("--quick", action="store_true", help="1 s a step and a prompt of 500 tokens, to try the script out")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.interfere_prompt = 1, 500
    if (options.server_cores or options.client_cores) and not shutil.which("taskset"):
        parser.error("--server-cores and --client-cores need taskset")
    return options


def main():
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"head": head(options), "closed_loop": {}, "interference": {}, "overload": {}, "capacity": 0}

    def save():
        (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (options.out / "results.md").write_text(markdown(options, results), encoding="utf-8")

    server = Server(options, options.out / "server.log")
    results["server_command"] = " ".join(server.command)
    try:
        measure(options, server, results, save)
    finally:
        code = server.stop()
    results["server_exit_code"] = code
    save()
    print((options.out / "results.md").read_text(encoding="utf-8"))
    failed = [r for name in ("closed_loop", "interference", "overload") for r in results[name].values() if "error" in r]
    return 1 if failed or code != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
