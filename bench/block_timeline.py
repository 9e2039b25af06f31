# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What the blocks of a kernel wait for in a recorded step, and how many are there at once.

    cmake --preset cuda -B build/timeline -DRIVULET_TIMELINE=ON && ninja -C build/timeline rivulet-device-bench
    rivulet-device-bench --config C --rows 32 --steps 16 2> step_32.txt
    python3 bench/block_timeline.py [--unit sums_decode] [--launch 4] [--step 1] step_32.txt

A unit is a source file of kernels; without --unit the program lists those whose blocks left stamps. It reports one launch, the --launch-th
from the end. Microseconds count from the moment when the first of its blocks has seen the kernels before end or, of a kernel that does not
say when, has its first numbers. The first table has the times of each event. The second has, for each --step, how many blocks have begun and
ended, and what those between wait for: the kernels before, their first numbers, or the rest of their work. Blocks that rehearse are left out.
"""
import argparse
import collections
import pathlib
import statistics

BEGINS, AWAITED, LOADED, MULTIPLIED, ENDS = range(5)  # BlockEvent in kernels/device/timeline.cuh
NAMES = ["begin", "kernels before ended", "first numbers came", "products there", "end"]


def read(file):
    """{unit: [(events in ns, block, blocks of the launch)] in order of beginning}"""
    units, blocks = {}, collections.defaultdict(list)
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("UNIT"):
                _, number, source = line.split()
                units[number] = pathlib.Path(source).stem
            elif line.startswith("BLOCK"):
                _, _, unit, block, count, *events = line.split()
                blocks[units[unit]].append(([int(event) for event in events], int(block), int(count)))
    return {unit: sorted(stamped) for unit, stamped in blocks.items()}


def launches(blocks):
    """The events of blocks, by launch. A launch has each number once, and blocks of the next one begin behind it."""
    found, numbers, size = [], set(), None
    for events, number, count in blocks:
        if number in numbers or count != size:
            found.append([])
            numbers, size = set(), count
        found[-1].append(events)
        numbers.add(number)
    return found


def working(blocks):
    """Blocks with all stamps. Where a kernel says when those before have ended, blocks that rehearse do not."""
    ended = [events for events in blocks if events[LOADED] > 0 and events[ENDS] > 0]
    awaited = [events for events in ended if events[AWAITED] > 0]
    return awaited or ended


def between(blocks, first, second, time):
    """How many are between two events at that time."""
    return sum(1 for events in blocks if 0 < events[first] <= time and not 0 < events[second] <= time)


def print_events(blocks, zero):
    print(f"{len(blocks)} blocks; µs: minimum, 10 %, median, 90 %, maximum")
    for event, name in enumerate(NAMES):
        times = sorted((events[event] - zero) / 1000 for events in blocks if events[event] > 0)
        if not times:
            continue
        tenths = statistics.quantiles(times, n=10, method="inclusive") if len(times) > 1 else times * 9
        print(f"{name:22}" + "".join(f"{time:9.1f}" for time in (times[0], tenths[0], tenths[4], tenths[8], times[-1])))


def print_counts(blocks, zero, first, step):
    print(f"\n{'µs':>7} {'begun':>6} {'ended':>6} {'there':>6} {'before the wait':>16} {'for numbers':>12} {'rest':>6}")
    end = max(events[ENDS] for events in blocks)
    for time in range(min(events[BEGINS] for events in blocks), end + step, step):
        begun = sum(1 for events in blocks if events[BEGINS] <= time)
        ended = sum(1 for events in blocks if events[ENDS] <= time)
        before, numbers = between(blocks, BEGINS, first, time), between(blocks, first, LOADED, time)
        print(f"{(time - zero) / 1000:7.1f} {begun:6} {ended:6} {begun - ended:6} {before:16} {numbers:12} {begun - ended - before - numbers:6}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit")
    parser.add_argument("--launch", type=int, default=4)
    parser.add_argument("--step", type=float, default=1, help="µs")
    parser.add_argument("file")
    arguments = parser.parse_args()
    units = read(arguments.file)
    if arguments.unit not in units:
        found = ", ".join(f"{unit} ({len(launches(blocks))} launches)" for unit, blocks in sorted(units.items()))
        raise SystemExit(f"{arguments.file}: --unit takes one of: {found or 'none, it has no stamps of blocks'}")
    found = launches(units[arguments.unit])
    if not 1 <= arguments.launch <= len(found):
        raise SystemExit(f"--launch is 1 to {len(found)}")
    blocks = working(found[-arguments.launch])
    if not blocks:
        raise SystemExit("no block of the launch has left all stamps")
    first = AWAITED if any(events[AWAITED] > 0 for events in blocks) else LOADED
    zero = min(events[first] for events in blocks)
    print_events(blocks, zero)
    print_counts(blocks, zero, first, max(1, round(arguments.step * 1000)))


if __name__ == "__main__":
    main()
