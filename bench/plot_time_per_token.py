# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Time a token against context, from the --json of rivulet-engine-bench --contexts; a line and a band (10th to 90th percentile) a file.

    python3 bench/plot_time_per_token.py bench/plots/time_per_token.png "2 cores, EPYC=contexts_2.json" ...

Needs matplotlib.
"""
import json
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(out, *sources):
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    top = 0.0
    for source in sources:
        label, file = source.split("=", 1)
        with open(file) as opened:
            rows = json.load(opened)["contexts"]
        contexts = [row["context"] for row in rows]
        low, median, high = zip(*[[1e3 * s for s in row["token_seconds"]] for row in rows])
        line, = axes.plot(contexts, median, marker="o", label=label)
        axes.fill_between(contexts, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        top = max(top, *high)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.15 * top)
    axes.set_xlabel("tokens already in the session")
    axes.set_ylabel("ms a token, one stream")
    axes.set_title("models/tales: decode time against context (median; band: 10th to 90th percentile)", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    main(*sys.argv[1:])
