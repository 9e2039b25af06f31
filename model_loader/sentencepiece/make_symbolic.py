#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""make_symbolic.py IN OUT: copies a 64-bit ELF shared library and sets DF_SYMBOLIC in the copy's dynamic section, so that the copy
binds its symbols to itself first. A build tool: Debian's libsentencepiece carries protobuf-lite 3.14 with public symbols, and beside
gRPC's libprotobuf 3.21 one of the two would otherwise call into the other and abort."""
import struct
import sys

PT_DYNAMIC, DT_NULL, DT_FLAGS, DF_SYMBOLIC = 2, 0, 30, 2
ENTRY = struct.Struct("<QQ")  # tag, value


def dynamic_section(file):
    """(offset, size)"""
    headers, = struct.unpack_from("<Q", file, 32)
    size, count = struct.unpack_from("<HH", file, 54)
    for i in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", file, headers + i * size)
        if kind == PT_DYNAMIC:
            return offset, length
    sys.exit("make_symbolic: no dynamic section")


def set_symbolic(file):
    """In DT_FLAGS; without a DT_FLAGS, in one of the spare entries that linkers leave after DT_NULL."""
    offset, length = dynamic_section(file)
    for place in range(offset, offset + length, ENTRY.size):
        tag, value = ENTRY.unpack_from(file, place)
        spare = tag == DT_NULL and place + ENTRY.size < offset + length
        if tag == DT_FLAGS or spare:
            return ENTRY.pack_into(file, place, DT_FLAGS, value | DF_SYMBOLIC)
    sys.exit("make_symbolic: no room for DT_FLAGS")


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as source:
        library = bytearray(source.read())
    if library[:6] != b"\x7fELF\x02\x01":
        sys.exit(f"make_symbolic: {sys.argv[1]} is not a 64-bit little-endian ELF file")
    set_symbolic(library)
    with open(sys.argv[2], "wb") as target:
        target.write(library)
