# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""How long the kernels of a layer take in a recorded step, as they overlap: a table and, on request, a picture.

    cmake --preset cuda -B build/timeline -DRIVULET_TIMELINE=ON && ninja -C build/timeline rivulet-device-bench
    rivulet-device-bench --config C --rows 32 --steps 16 2> step_32.txt
    python3 bench/step_timeline.py [--picture OUT.png] "32 rows=step_32.txt" ...

A kernel's time is from the moment when the kernels before it have ended, as it sees it, to that moment of the next kernel that leaves stamps.
cuBLASLt's leave none: theirs is in the time of the kernel before. A layer begins with row preparation, or with what --first names. Medians over
layers. The picture needs matplotlib.
"""
import argparse
import collections
import pathlib
import statistics

AWAITED = 1


def instances(file):
    """[(nanoseconds, unit)]: when the kernels before each kernel had ended, in order."""
    units, waits = {}, []
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("UNIT"):
                _, number, source = line.split()
                units[int(number)] = pathlib.Path(source).stem
            elif line.startswith("STAMP"):
                _, nanoseconds, event, unit, _ = line.split()
                if int(event) == AWAITED:
                    waits.append((int(nanoseconds), units[int(unit)]))
    waits.sort()
    # Every warp of a block leaves a stamp, and one that has little to wait for leaves it at once.
    return [wait for before, wait in zip([(0, "")] + waits, waits) if wait[1] != before[1]]


def layers(waits, first):
    """{the kernels of a layer: [their times in microseconds, a list for each layer]}"""
    begins = [i for i, (_, unit) in enumerate(waits) if unit == first]
    found = collections.defaultdict(list)
    for begin, end in zip(begins, begins[1:]):
        times = [(waits[i + 1][0] - waits[i][0]) / 1000 for i in range(begin, end)]
        found[tuple(unit for _, unit in waits[begin:end])].append(times)
    return found


def medians(file, first):
    """[(kernel, microseconds)] of the layers that most layers are like."""
    waits = instances(file)
    found = layers(waits, first)
    if not found:
        raise SystemExit(f"{file}: no two kernels of {first}; --first takes one of: {', '.join(sorted({unit for _, unit in waits}))}")
    units, times = max(found.items(), key=lambda item: len(item[1]))
    return [(unit, statistics.median(time)) for unit, time in zip(units, zip(*times))]


def draw(picture, steps):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.6 * len(steps)), layout="constrained")
    for label, kernels in steps.items():
        left, total = 0.0, sum(time for _, time in kernels)
        for index, (unit, time) in enumerate(kernels):
            share = 100 * time / total
            name = unit.replace("_", " ") + "\n" if share > 0.8 * len(unit) else ""  # where it fits
            axes.barh(label, share, left=left, color=f"C{index}", edgecolor="white")
            axes.text(left + share / 2, label, f"{name}{time:.1f}", ha="center", va="center", color="white", fontsize=6)
            left += share
        axes.text(101, label, f"{total:.0f} µs", va="center", fontsize=8)
    axes.set_xlim(0, 108)
    axes.set_xlabel("share of a layer's time, %; µs in the bars")
    axes.invert_yaxis()
    figure.savefig(picture, dpi=160)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", default="prepare")
    parser.add_argument("--picture")
    parser.add_argument("steps", nargs="+", metavar="LABEL=FILE")
    arguments = parser.parse_args()
    steps = {label: medians(file, arguments.first) for label, file in (step.rsplit("=", 1) for step in arguments.steps)}
    for label, kernels in steps.items():
        print(f"{label}: " + ", ".join(f"{unit} {time:.1f}" for unit, time in kernels) + f"; {sum(time for _, time in kernels):.1f} µs")
    if arguments.picture:
        draw(arguments.picture, steps)


if __name__ == "__main__":
    main()
