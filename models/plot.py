# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Loss curves:  python3 plot.py OUT.png train_log.csv NAME=model_dir/train_log.csv ...

One CSV with a `run` column, or one per run named on the command line; --merge writes them into one CSV."""
import argparse
import csv

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read(spec):
    """[rows], each with its run's name."""
    name, path = spec.split("=", 1) if "=" in spec else (None, spec)
    with open(path) as f:
        return [{"run": name or row.get("run", "run"), **{k: v for k, v in row.items() if k != "run"}}
                for row in csv.DictReader(f)]


def merge(rows, path):
    with open(path, "w", newline="") as f:
        writer = csv.DictWriter(f, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def curve(axis, rows, key, **style):
    axis.plot([float(r["tokens"]) / 1e6 for r in rows], [float(r[key]) for r in rows], **style)


def draw(rows, out, student, marks):
    runs = list(dict.fromkeys(r["run"] for r in rows))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    for run in runs:
        mine = [r for r in rows if r["run"] == run]
        heavy = {"linewidth": 2.5, "color": "black"} if run == student else {"linewidth": 1.2}
        curve(left, mine, "validation_bits_per_char", label=run, marker=".", **heavy)
        if run == student:
            curve(right, mine, "train_nats", label="training batches", color="tab:orange")
            curve(right, mine, "validation_nats", label="validation blocks", color="black", linewidth=2)
    for text, value in marks:
        left.axhline(value, linestyle=":", color="gray")
        left.text(1, value, text, ha="left", va="bottom", fontsize=8, color="gray")
    left.set(xlabel="tokens seen (millions)", ylabel="bits per character, validation blocks", ylim=(1.15, 1.55))
    right.set(xlabel="tokens seen (millions)", ylabel="nats per token", title=f"{student}: next-token loss")
    left.set_title("student and teachers")
    for axis in (left, right):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out")
    p.add_argument("logs", nargs="+")
    p.add_argument("--student", default="student")
    p.add_argument("--merge")
    p.add_argument("--mark", nargs="*", default=[], help="TEXT=BITS, a horizontal line")
    args = p.parse_args()
    rows = [row for spec in args.logs for row in read(spec)]
    if args.merge:
        merge(rows, args.merge)
    draw(rows, args.out, args.student, [(m.split("=")[0], float(m.split("=")[1])) for m in args.mark])


if __name__ == "__main__":
    main()
