# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Instructions of CUDA kernels that wait for loads which they do not use.

    cuobjdump -sass build/cuda/kernels/device/CMakeFiles/rivulet_kernels_device.dir/FILE.cu.o > FILE.sass
    python3 bench/false_waits.py FILE.sass [part of a kernel's mangled name]

A warp has six counters for loads that have not come. Each instruction names the counters that must be zero before it runs, and loads that share a
counter are waited for together. Where an early load and a late one share one, an instruction that needs the first waits for both, and what comes
behind it is asked for a memory's latency later. This lists such instructions: their number (from 0, in the order of Nsight Compute's source
page), the counter, the loads that they need and the others that they wait for.

The scan follows the order of the code and no branch, and takes every register that an instruction names for one that it needs. So it is a list of
places to look at, not of faults: a wait in a loop may be for loads of the turn before, and loads that are used together may as well be awaited
together. Waits for a store to have read its registers, and for uniform registers, are not told apart from those for loads. Nsight Compute's stall
samples say which places cost time.
"""
import re
import sys

KERNEL = re.compile(r"\s*Function : (\S+)")
FIRST_WORD = re.compile(r"\s*/\*[0-9a-f]{4,5}\*/\s+(.*?);?\s*/\* 0x[0-9a-f]{16} \*/")
SECOND_WORD = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")
DESTINATION = re.compile(r"(?:@!?U?P\w+ )?\S+ (?:P\w+, )?R(\d+)")
COUNTERS = 6
NEAR = 12  # instructions between loads that are used together


class Instruction:
    def __init__(self, text, second_word):
        control = second_word >> 41
        self.text = text
        self.counter = control >> 5 & 7  # of what it loads; none from COUNTERS on
        self.awaited = [i for i in range(COUNTERS) if control >> 11 + i & 1]
        self.loads = "LDG" in text and "LDGSTS" not in text and "DEPBAR" not in text

    def registers(self):
        """All that its operands may name: wide ones name the first of two or four."""
        wide = 4 if re.search(r"HMMA|\.128", self.text) else 2 if re.search(r"\.64|WIDE", self.text) else 1
        return {int(r) + i for r in re.findall(r"\bR(\d+)\b", self.text) for i in range(wide)}

    def destination(self):
        found = DESTINATION.match(self.text)
        operation = self.text.split(" R")[0]  # not the addresses
        wide = 4 if re.search(r"\.128|\.M88\.4", operation) else 2 if ".64" in operation else 1
        return {int(found.group(1)) + i for i in range(wide)} if found else set()


def kernels(lines):
    """{a kernel's name: its instructions}, each of which takes two lines."""
    found, instructions = {}, []
    for line, following in zip(lines, lines[1:] + [""]):
        name, first = KERNEL.match(line), FIRST_WORD.match(line)
        if name:
            instructions = found.setdefault(name.group(1), [])
        elif first:
            instructions.append(Instruction(first.group(1), int(SECOND_WORD.match(following).group(1), 16)))
    return found


def is_false(needed, others):
    """Whether loads are awaited without need: none is needed, or those that are came long before."""
    return bool(others) and max(others) > max(needed, default=-NEAR) + NEAR


def false_waits(instructions):
    """[(number, text, counter, needed loads, others)]"""
    pending, found = [[] for _ in range(COUNTERS)], []
    for number, instruction in enumerate(instructions):
        for counter in instruction.awaited:
            needed = [n for n, registers, _ in pending[counter] if registers & instruction.registers()]
            others = [n for n, _, loads in pending[counter] if loads and n not in needed]
            if is_false(needed, others):
                found.append((number, instruction.text, counter, needed, others))
            pending[counter] = []
        if instruction.counter < COUNTERS:
            pending[instruction.counter].append((number, instruction.destination(), instruction.loads))
    return found


def main():
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    with open(sys.argv[1], encoding="utf-8") as file:
        found = kernels(file.read().split("\n"))
    for name, instructions in found.items():
        waits = false_waits(instructions) if part in name else []
        if waits:
            print(f"{name}: {len(instructions)} instructions")
        for number, text, counter, needed, others in waits:
            print(f"  {number} {text[:48]:48} counter {counter} needs {needed or 'none'}, also waits for {others[:8]}")


if __name__ == "__main__":
    main()
