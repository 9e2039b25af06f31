# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Where the warps of a CUDA kernel are, function by function: Nsight Compute's samples, and the instructions that were executed.

    ncu --clock-control none -k regex:ProgramStream -s 30 -c 1 --set full --section SourceCounters --warp-sampling-interval 0 \
        -o k rivulet-device-recurrence-bench --rows 1024 --only "masked 16 x 64"       # on the GPU machine
    ncu -i k.ncu-rep --page source --csv > k.csv
    cuobjdump -xelf all build/cuda/kernels/device/CMakeFiles/rivulet_kernels_device.dir/sum_program_stream.cu.o
    nvdisasm -g -c sum_program_stream.sm_90a.cubin > k.sass                            # of the same build, where it was built
    python3 bench/kernel_samples.py k.csv k.sass ILb1ELi4E [--files sum_program_consumer.cuh,...] [--units 16384]

ILb1ELi4E is a part of the kernel's mangled name. An instruction counts for the innermost function that it was inlined from, of the files named with
--files (without it, of all files in kernels/): so with the kernel's own files, helpers count for their callers. The compiler mixes the
instructions of functions, so shares are approximate. `moves` are copies from register to register. With --units, instructions are given for each
unit of work instead of in total.
"""
import argparse
import collections
import csv
import pathlib
import re

LOCATION = re.compile(r'//## File "([^"]+)", line (\d+)(?: inlined at "([^"]+)", line (\d+))?')
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?(\S+)")
FUNCTION = re.compile(r"\s*(?:static )?__(?:device|global)__ .*?(\w+)\(")
MOVES = ("MOV", "IMAD.MOV")


def machine_code(file, part):
    """[(operation, [(source file, line)], innermost first)] of the kernel whose name has `part` in it."""
    code, frames, inside, complete = [], [], False, True
    for line in pathlib.Path(file).read_text(encoding="utf-8").split("\n"):
        if line.startswith(".text."):  # the code of a kernel follows
            inside = part in line
        location, instruction = LOCATION.search(line), INSTRUCTION.match(line)
        if location:
            file_of, line_of, caller, line_of_caller = location.groups()
            frames = ([] if complete else frames) + [(file_of, int(line_of))]
            frames += [(caller, int(line_of_caller))] if caller else []
        elif instruction and inside:
            code.append((instruction.group(1), frames))
        complete = not location
    return code


def samples(file):
    """[(samples, times executed)], an item for each instruction."""
    with open(file, encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if len(row) > 20]
    sampled = rows[0].index("Warp Stall Sampling (All Samples)")
    executed = rows[0].index("Instructions Executed")
    return [(int(row[sampled]), int(row[executed])) for row in rows[1:]]


class Functions:
    """Which function a line of a source file is in: the last one that begins before it."""

    def __init__(self):
        self.begins = {}

    def at(self, file, line):
        if file not in self.begins:
            text = pathlib.Path(file).read_text(encoding="utf-8").split("\n") if pathlib.Path(file).exists() else []
            self.begins[file] = [(n, found.group(1)) for n, x in enumerate(text, 1) if (found := FUNCTION.match(x))]
        return next((name for n, name in reversed(self.begins[file]) if n <= line), "?")


def by_function(code, counts, files):
    """{function: [samples, instructions, moves]}"""
    functions, found, last = Functions(), collections.defaultdict(lambda: [0, 0, 0]), "?"
    for (operation, frames), (sampled, executed) in zip(code, counts):
        wanted = [f for f in frames if (f[0].split("/")[-1] in files if files else "/kernels/" in f[0])]
        last = f"{wanted[0][0].split('/')[-1]} {functions.at(*wanted[0])}" if wanted else last
        moves = executed if operation.startswith(MOVES) else 0
        found[last] = [a + b for a, b in zip(found[last], (sampled, executed, moves))]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("sass")
    parser.add_argument("kernel")
    parser.add_argument("--files", default="", help="names of source files, with commas")
    parser.add_argument("--units", type=int, default=1, help="of work that the kernel did")
    options = parser.parse_args()
    code, counts = machine_code(options.sass, options.kernel), samples(options.csv)
    if len(code) != len(counts):
        raise SystemExit(f"{len(counts)} instructions were sampled, and {options.kernel} has {len(code)}: another build, or another kernel")
    found = by_function(code, counts, [name for name in options.files.split(",") if name])
    total = sum(sampled for sampled, _ in counts)
    print("| function | samples | instructions | of these moves |\n|---|---|---|---|")
    for name, (sampled, executed, moves) in sorted(found.items(), key=lambda item: -item[1][0]):
        print(f"| {name} | {100 * sampled / total:.1f} % | {executed / options.units:.0f} | {moves / options.units:.0f} |")


if __name__ == "__main__":
    main()
