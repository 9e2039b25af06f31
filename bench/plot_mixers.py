# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""State and decode time of every mixer against context, from the --json of rivulet-context-bench.

    python3 bench/plot_mixers.py bench/plots/mixers_against_context.png bench/results/mixers_xeon_16_8_sessions.json

Grey: states of fixed size. Coloured lines: those that grow; of a log-linear one the typical number of pages, and as a band the fewest
and the most. Needs matplotlib.
"""
import json
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"softmax_attention": "tab:red", "softmax_attention (window 4096)": "tab:orange", "log_linear_mamba2": "tab:blue",
           "h_gated_deltanet": "tab:green"}
# What each log-linear mixer extends is drawn in its colour too.
EXTENDED = {"mamba2": "tab:blue", "gated_deltanet": "tab:green"}


def state(row):
    return row["state_bytes"]


def decode(row):
    return row["decode_us"]["mean"]


def by_context(rows, place, value):
    return zip(*[(row["context"], value(row)) for row in rows if row["place"] == place])


def draw(axis, rows, value):
    for mixer in dict.fromkeys(row["mixer"] for row in rows):
        mine = [row for row in rows if row["mixer"] == mixer]
        paged = any(row["place"] for row in mine)
        contexts, values = by_context(mine, "typical" if paged else "", value)
        if mixer in COLOURS:
            axis.plot(contexts, values, color=COLOURS[mixer], marker="o", label=mixer, zorder=3)
        elif mixer in EXTENDED:
            axis.plot(contexts, values, color=EXTENDED[mixer], linestyle="--", label=mixer, zorder=2)
        else:
            axis.plot(contexts, values, color="gray", linewidth=0.8, zorder=1)
        if paged:
            low, high = (list(by_context(mine, place, value))[1] for place in ("fewest", "most"))
            axis.fill_between(contexts, low, high, color=COLOURS[mixer], alpha=0.15, linewidth=0)
    others = [row for row in rows if row["mixer"] not in COLOURS and row["mixer"] not in EXTENDED]
    if others:
        sizes = [state(row) / 1e6 for row in others]
        axis.plot([], [], color="gray", linewidth=0.8, label=f"{len({row['mixer'] for row in others})} others of fixed size, "
                  f"{min(sizes):.1f} to {max(sizes):.1f} MB")


def main(out, source):
    with open(source) as opened:
        results = json.load(opened)
    rows, machine = results["rows"], results["machine"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    draw(left, rows, state)
    draw(right, rows, decode)
    for axis, title in ((left, "bytes of state, one layer"), (right, "decode, microseconds a token and layer")):
        axis.set(xscale="log", yscale="log", xlabel="tokens already in the session", title=title)
        contexts = sorted({row["context"] for row in rows})
        axis.set_xticks(contexts, [f"{c // 1024}k" if c < 1 << 20 else f"{c >> 20}M" for c in contexts])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.suptitle(f"hidden size 1024; {machine['processor']}, {machine['threads']} threads, {rows[0]['sessions']} sessions; "
                    f"band: fewest to most pages", fontsize=9)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
