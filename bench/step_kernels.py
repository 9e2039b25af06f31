# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Where a decode step's time goes, from Nsight Compute's durations of its kernels: a table and a picture.

    ncu --profile-from-start off --clock-control none --cache-control none --graph-profiling node --csv --metrics gpu__time_duration.sum \
        rivulet-device-bench --config C --rows N --steps 1 --profile > step_N.csv
    python3 bench/step_kernels.py OUT.png OUT.md "1 row=step_1.csv" "256 rows=step_256.csv"

A kernel is measured alone, one after the other, while in a step each begins before the one before it has ended. So the sum is more than the
step. Needs matplotlib.
"""
import csv
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

# What a kernel does, by a part of its name. Products are told apart by their order in a layer.
PARTS = [("Embed", "embedding"), ("AddNorm", "residual and norm"), ("Prepare", "row preparation"), ("Decode", "state"), ("Stream", "state"),
         ("Recur", "state"), ("Finish", "gate and norm"), ("Sample", "sampling"), ("Attend", "attention"), ("Join", "attention")]
ORDER = ["residual and norm", "input product", "row preparation", "state", "gate and norm", "output product", "output map", "sampling", "embedding"]


def part_of(name, before):
    for fragment, part in PARTS:
        if fragment in name:
            return part
    return "input product" if before == "residual and norm" else "output product"


def milliseconds(file):
    """{part: milliseconds of a step}. The last product of a step is the output map."""
    with open(file, encoding="utf-8") as lines:
        rows = list(csv.DictReader(line for line in lines if line.startswith('"')))
    parts, before = [], ""
    for row in rows:
        before = part_of(row["Kernel Name"], before)
        parts.append(before)
    last = max(i for i, part in enumerate(parts) if part.endswith("product"))
    parts[last] = "output map"
    result = dict.fromkeys(ORDER, 0.0)
    for part, row in zip(parts, rows):
        result[part] = result.get(part, 0.0) + float(row["Metric Value"].replace(",", "")) * 1e-6
    return result


def main(picture, table, *sources):
    steps = {label: milliseconds(file) for label, file in (source.split("=", 1) for source in sources)}
    figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.55 * len(steps)), layout="constrained")
    left = dict.fromkeys(steps, 0.0)
    for part in ORDER:
        shares = [100 * step[part] / sum(step.values()) for step in steps.values()]
        axes.barh(list(steps), shares, left=list(left.values()), label=part)
        for label, share in zip(steps, shares):
            if share > 6:
                axes.text(left[label] + share / 2, label, f"{share:.0f}", ha="center", va="center", color="white", fontsize=8)
            left[label] += share
    axes.set_xlabel("share of the kernels' time, %")
    axes.set_xlim(0, 100)
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=5, fontsize=7, frameon=False)
    figure.savefig(picture, dpi=160)
    with open(table, "w", encoding="utf-8") as out:
        out.write("| kernels of a step, ms | " + " | ".join(steps) + " |\n|---|" + "---|" * len(steps) + "\n")
        for part in ORDER:
            out.write(f"| {part} | " + " | ".join(f"{step[part]:.3f}" for step in steps.values()) + " |\n")
        out.write("| sum | " + " | ".join(f"{sum(step.values()):.3f}" for step in steps.values()) + " |\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
