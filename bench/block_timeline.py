# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What the blocks of a kernel wait for in a recorded step, and how many are there at once.

    cmake --preset cuda -B build/timeline -DRIVULET_TIMELINE=ON && ninja -C build/timeline rivulet-device-bench
    rivulet-device-bench --config C --rows 32 --steps 16 2> step_32.txt
    python3 bench/block_timeline.py [--unit sums_decode] [--launch 4] [--step 1] step_32.txt

Of one launch of the kernels of a source file (--unit; without it, a list of those that leave stamps, tens_of_tokens for example), the
--launch-th from the end. Microseconds count from the moment when the first of its blocks has seen the kernels before end. First the times of
each event, then for each --step how many blocks have begun and ended, and what those between wait for.
"""
import argparse
import collections
import pathlib
import statistics

BEGINS, AWAITED, LOADED, MULTIPLIED, ENDS = range(5)
NAMES = ["begin", "kernels before ended", "first numbers came", "products there", "end"]


def read(file):
    """{unit: [(events in ns, block)] in order of beginning}"""
    units, blocks = {}, collections.defaultdict(list)
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("UNIT"):
                _, number, source = line.split()
                units[number] = pathlib.Path(source).stem
            elif line.startswith("BLOCK"):
                _, _, unit, block, *events = line.split()
                blocks[units[unit]].append(([int(event) for event in events], int(block)))
    return {unit: sorted(stamped) for unit, stamped in blocks.items()}


def launches(blocks):
    """Blocks by launch. In a launch no number comes twice; those of the next one begin behind it."""
    found, numbers = [], set()
    for events, number in blocks:
        if not found or number in numbers:
            found.append([])
            numbers = set()
        found[-1].append(events)
        numbers.add(number)
    return found


def between(blocks, first, second, time):
    """How many are between two events at that time."""
    return sum(1 for events in blocks if 0 < events[first] <= time and not 0 < events[second] <= time)


def report(blocks, step):
    real = [events for events in blocks if events[AWAITED] > 0 and events[ENDS] > 0]
    if not real:
        raise SystemExit("no block of the launch has left all stamps")
    # Blocks that rehearse wait for no kernel. They are few, and the first of the grid.
    waits = sorted(events[AWAITED] for events in real)
    zero = waits[len(waits) // 20]
    print(f"{len(real)} blocks; µs: minimum, 10 %, median, 90 %, maximum")
    for event, name in enumerate(NAMES):
        times = sorted((events[event] - zero) / 1000 for events in real if events[event] > 0)
        if not times:
            continue
        tenths = statistics.quantiles(times, n=10) if len(times) > 1 else times * 9
        print(f"{name:22}" + "".join(f"{time:9.1f}" for time in (times[0], tenths[0], tenths[4], tenths[8], times[-1])))
    print(f"\n{'µs':>7} {'begun':>6} {'ended':>6} {'there':>6} {'before the wait':>16} {'for numbers':>12} {'rest':>6}")
    time, end = min(events[BEGINS] for events in real), max(events[ENDS] for events in real)
    while time < end + step * 1000:
        begun = sum(1 for events in real if events[BEGINS] <= time)
        ended = sum(1 for events in real if events[ENDS] <= time)
        before, numbers = between(real, BEGINS, AWAITED, time), between(real, AWAITED, LOADED, time)
        print(f"{(time - zero) / 1000:7.1f} {begun:6} {ended:6} {begun - ended:6} {before:16} {numbers:12} {begun - ended - before - numbers:6}")
        time += round(step * 1000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit")
    parser.add_argument("--launch", type=int, default=4)
    parser.add_argument("--step", type=float, default=1)
    parser.add_argument("file")
    arguments = parser.parse_args()
    units = read(arguments.file)
    if arguments.unit not in units:
        found = ", ".join(f"{unit} ({len(launches(blocks))} launches)" for unit, blocks in sorted(units.items()))
        raise SystemExit(f"{arguments.file}: --unit takes one of: {found or 'none, it has no stamps of blocks'}")
    found = launches(units[arguments.unit])
    if not 1 <= arguments.launch <= len(found):
        raise SystemExit(f"--launch is 1 to {len(found)}")
    report(found[-arguments.launch], arguments.step)


if __name__ == "__main__":
    main()
