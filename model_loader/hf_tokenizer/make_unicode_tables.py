#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Writes unicode_{categories,words,sets,scripts}.cc: what the characters are to the `tokenizers` package.

Its parts know different versions of Unicode: its regular expressions 16.0, its lower case 17, its punctuation 8, its normal forms 11.
The ids of a text depend on all of them, so the tables are read from the package itself, by asking it about every code point.

    pip install tokenizers==0.23.3 unicodedata2==18.0.0
    model_loader/hf_tokenizer/make_unicode_tables.py
"""

import pathlib

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).parent
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
CHUNKS = ["".join(map(chr, CODES[i:i + 0x4000])) for i in range(0, len(CODES), 0x4000)]
# In the order of the enum in unicode_data.h.
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs".split()
SCRIPTS = ("Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana "
           "Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Sinhala Tamil Telugu Thai Tibetan").split()

HEADER = """// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Written by make_unicode_tables.py. Data of the Unicode Character Database (Unicode License v3).
#include "model_loader/hf_tokenizer/unicode_tables.h"

namespace rivulet::unicode_tables {
// clang-format off
"""
FOOTER = """// clang-format on
}  // namespace rivulet::unicode_tables
"""


def ranges(codes):
    found = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def surviving(normalizer):
    """The code points that the normalizer leaves in a text."""
    return {ord(c) for chunk in CHUNKS for c in normalizer.normalize_str(chunk)}


def matching(negated_class):
    return surviving(normalizers.Replace(Regex(negated_class), ""))


def removed(pre_tokenizer):
    kept = {ord(c) for chunk in CHUNKS for piece, _ in pre_tokenizer.pre_tokenize_str(chunk) for c in piece}
    return set(CODES) - kept


def isolated_digits():
    """What Digits puts apart from letters."""
    pieces = [piece for chunk in CHUNKS for piece, _ in pre_tokenizers.Digits(True).pre_tokenize_str("a".join(chunk))]
    return {ord(piece) for piece in pieces if len(piece) == 1 and piece != "a"}


def words():
    """What the word characters of Rust's regex crate are: Whitespace keeps them with a letter."""
    found = set()
    for chunk in CHUNKS:
        for piece, _ in pre_tokenizers.Whitespace().pre_tokenize_str(" ".join("a" + c for c in chunk)):
            if len(piece) == 2 and piece[0] == "a":
                found.add(ord(piece[1]))
    return found


def vanishing(normalizer):
    """What the normalizer removes after a letter."""
    return {code for code in CODES if normalizer.normalize_str("a" + chr(code)) == "a"}


def bert(**options):
    flags = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**flags, **options})


def newer_than_the_normal_forms():
    """Characters that the package's normal forms leave alone, because they are newer than its tables."""
    nfd, nfkd, nfc = normalizers.NFD(), normalizers.NFKD(), normalizers.NFC()
    inert = set()
    for code in CODES:
        c = chr(code)
        if nfkd.normalize_str(c) == c and unicodedata2.normalize("NFKD", c) != c:
            inert.add(code)
        moved = nfd.normalize_str("a\u0345" + c) != "a\u0345" + c
        if 0 < unicodedata2.combining(c) < 240 and not moved:
            inert.add(code)
    composed = {c: unicodedata2.decomposition(chr(c)) for c in CODES}
    pairs = {c: [int(x, 16) for x in d.split()] for c, d in composed.items() if d and "<" not in d and len(d.split()) == 2}
    for code, (first, second) in pairs.items():
        text = chr(first) + chr(second)
        if unicodedata2.normalize("NFC", text) != chr(code) or nfc.normalize_str(text) == chr(code):
            continue
        old = {c for other, pair in pairs.items() if other not in inert for c in pair}
        inert |= {c for c in (first, second) if c not in old}
    return inert


def lower_runs():
    """(first, last, step, difference) of the simple lower-case mappings, longest runs first found."""
    lower = normalizers.Lowercase()
    pairs = [(code, lower.normalize_str(chr(code))) for code in CODES]
    pairs = [(code, ord(text) - code) for code, text in pairs if text != chr(code) and len(text) == 1]
    runs = []
    for code, difference in pairs:
        last = runs[-1] if runs else None
        if last and last[3] == difference and code - last[1] in (1, 2) and last[2] in (0, code - last[1]):
            last[1], last[2] = code, code - last[1]
        else:
            runs.append([code, code, 0, difference])
    return [(a, b, step or 1, difference) for a, b, step, difference in runs]


def rows(items, width=98):
    line = ""
    for item in items:
        if len(line) + len(item) > width:
            yield line.rstrip()
            line = ""
        line += item + " "
    yield line.rstrip()


def array(kind, name, items):
    return f"\nconst {kind} {name}[] = {{\n" + "\n".join(rows(items)) + f"\n}};\nconst size_t {name}Size = std::size({name});\n"


def range_array(name, codes):
    return array("CodeRange", name, [f"{{{a:#x},{b:#x}}}," for a, b in ranges(codes)])


def category_runs():
    category = {}
    for name in CATEGORIES[1:-1]:
        category.update(dict.fromkeys(matching(rf"\P{{{name}}}"), CATEGORIES.index(name)))
    category.update(dict.fromkeys(range(0xD800, 0xE000), CATEGORIES.index("Cs")))
    last = None
    for code in range(0x110000):
        current = category.get(code, 0)
        if current != last:
            yield f"{code << 5 | current:#x},"
        last = current


def write(name, tables):
    (HERE / f"unicode_{name}.cc").write_text(HEADER + tables + FOOTER)


def main():
    write("categories", array("uint32_t", "kCategoryRuns", category_runs()))
    write("words", range_array("kRegexWord", matching(r"\W")) + range_array("kRustWord", words()))
    sets = {
        "kNumeric": isolated_digits(),
        "kPunctuation": removed(pre_tokenizers.Punctuation("removed")),
        "kControl": vanishing(bert(clean_text=True)),
        "kNonspacing": vanishing(bert(strip_accents=True)),
        "kAccents": set(CODES) - surviving(normalizers.StripAccents()),
        "kNewerThanNormalForms": newer_than_the_normal_forms(),
    }
    runs = [f"{{{a:#x},{b:#x},{s},{d}}}," for a, b, s, d in lower_runs()]
    write("sets", "".join(range_array(name, codes) for name, codes in sets.items()) + array("LowerRun", "kLowerRuns", runs))
    scripts = "".join(range_array(f"k{name}", matching(rf"\P{{{name}}}")) for name in SCRIPTS)
    scripts += array("ScriptTable", "kScripts", [f'{{"{n}", k{n}, k{n}Size}},' for n in SCRIPTS])
    write("scripts", scripts)


if __name__ == "__main__":
    main()
