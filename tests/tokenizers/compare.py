#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Compares our tokenizers with the `tokenizers` package on random and adversarial texts: ids, and text from ids.

    pip install tokenizers==0.23.3
    tests/tokenizers/make_tokenizers.py /tmp/tokenizers --vocabulary 8000
    tests/tokenizers/compare.py /tmp/tokenizers/* [--strings N] [--seed S] [--bench build/release/bin/rivulet-tokenizer-bench]

Each directory gets N random texts and as many random lists of ids, and some long and odd texts. Prints the first differences of each
and exits with 1 if there are any.
"""

import argparse
import pathlib
import random
import struct
import subprocess
import sys
import time

from tokenizers import Tokenizer

LINES = pathlib.Path(__file__).with_name("lines.txt").read_text(encoding="utf-8")
SCRIPTS = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xFFF),
           (0x1000, 0x109F), (0x1100, 0x11FF), (0x1E00, 0x20CF), (0x2100, 0x27BF), (0x2E80, 0x30FF), (0x3400, 0x9FFF), (0xA000, 0xABFF),
           (0xAC00, 0xD7A3), (0xF900, 0xFFFF), (0x10000, 0x10FFF), (0x11000, 0x12FFF), (0x16000, 0x18FFF), (0x1D000, 0x1DFFF),
           (0x1F000, 0x1FAFF), (0x20000, 0x323AF), (0xE0000, 0xE01EF)]
ODD = ["\0", "\r\n", "\n\n", "\n", "\r", "\t", "  ", "   ", " ", "\u00a0", "\u2028", "\u3000", "\u200b", "\u200d", "\ufe0f", "\ufeff", "\ufffd",
       "\u0301", "\u0345\u0334", "e\u0301", "\u212b", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0958", "\u2adc", "\U0001d15e", "'s", "'S", "'\u017f", "'LL", "'",
       "\u212a", "K", "\u2581", "\u2581\u2581", "<0x41>", "<unk>", "<s>", "</s>", "<mask>", " <mask> ", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>",
       "[BOS]", "[CLS]", "<|begin_of_text|>", "Fox", "fox", " the ", "dog ", "123", "12345678", "\u0660\u0661", "\u0130", "\u1e9e", "\u03a3", "\ufb01", "\ufb06", "\ufdfa",
       "\U0001f469\u200d\U0001f4bb", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "a\u0308\u0323", "\u0f71\u0f72\u0f74", "_", "\u0c0f\u0c41",
       "##", "Ab", "aB", "AB", "ABc", "yyz", "xyz", "a1B2", "\u00ad", "\u0600", "\u0600a", "\u110b", "\u4e00", "\u3042", "\uff21", "\U000e0041"]


def random_code(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.randint(0x20, 0x7E)
    if kind < 0.85:
        return rng.randint(*rng.choice(SCRIPTS))
    code = rng.randrange(0x110000 - 0x800)
    return code if code < 0xD800 else code + 0x800


def random_text(rng):
    kind = rng.random()
    length = int(rng.expovariate(1 / 12)) + 1
    if kind < 0.3:
        return "".join(chr(random_code(rng)) for _ in range(length))
    if kind < 0.5:
        start = rng.randrange(len(LINES) - length)
        return LINES[start:start + 2 * length]
    if kind < 0.6:
        low, high = rng.choice(SCRIPTS)
        return "".join(chr(rng.randint(low, high)) for _ in range(length))
    if kind < 0.7:
        return bytes(rng.randrange(256) for _ in range(length)).decode("utf-8", "replace")
    parts = []
    for _ in range(length // 2 + 1):
        choice = rng.random()
        if choice < 0.4:
            parts.append(rng.choice(ODD))
        elif choice < 0.7:
            start = rng.randrange(len(LINES) - 8)
            parts.append(LINES[start:start + rng.randint(1, 8)])
        else:
            parts.append(chr(random_code(rng)))
    return "".join(parts)


def long_texts(rng, size):
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
    yield "one letter", "a" * size
    yield "no space", "".join(rng.choice(letters) for _ in range(size))
    yield "spaces", " " * size
    yield "spaces, then a letter", " " * size + "x"
    yield "line ends", "\n" * size
    yield "spaces and line ends", " \n" * (size // 2)
    yield "capitals", "A" * size
    yield "digits", "7" * size
    yield "ideographs", "".join(chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(size // 3))
    yield "marks", "e" + "\u0301\u0323" * (size // 4)
    yield "emoji", "\U0001f469\u200d\U0001f469\u200d\U0001f467" * (size // 18)
    yield "punctuation", "!?" * (size // 2)
    yield "every character", "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    yield "every character with a space", " ".join(chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000)
    yield "every character after a letter", "".join("a" + chr(c) + "B" for c in range(0x110000) if not 0xD800 <= c < 0xE000)


class Ours:
    def __init__(self, bench, folder):
        self.command = [bench, "--model", str(folder), "--pipe"]

    def answers(self, requests):
        data = b"".join(kind + struct.pack("<I", len(payload)) + payload for kind, payload in requests)
        result = subprocess.run(self.command, input=data, stdout=subprocess.PIPE, check=True).stdout
        place = 0
        for _ in requests:
            kind, size = result[place:place + 1], struct.unpack_from("<I", result, place + 1)[0]
            payload = result[place + 5:place + 5 + size]
            place += 5 + size
            yield (list(struct.unpack(f"<{size // 4}I", payload)) if kind == b"I" else
                   payload.decode("utf-8") if kind == b"T" else "ERROR " + payload.decode("utf-8", "replace"))
        assert place == len(result)


class Comparison:
    def __init__(self, bench, folder, shown):
        self.name, self.shown, self.differences, self.compared = folder.name, shown, 0, 0
        self.ours = Ours(bench, folder)
        self.theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.theirs.no_padding()
        self.theirs.no_truncation()

    def check(self, what, given, ours, theirs):
        self.compared += 1
        if ours == theirs:
            return
        self.differences += 1
        if self.differences <= self.shown:
            print(f"{self.name}: {what} of {ascii(given)[:300]}\n  ours   {ascii(ours)[:300]}\n  theirs {ascii(theirs)[:300]}")

    def encode(self, texts, names=None):
        for kind, what in ((b"R", "special tokens in"), (b"E", "ids of")):
            self.theirs.encode_special_tokens = kind == b"E"
            requests = [(kind, text.encode("utf-8")) for text in texts]
            expected = self.theirs.encode_batch(texts, add_special_tokens=False)
            for i, ours in enumerate(self.ours.answers(requests)):
                self.check(what, names[i] if names else texts[i], ours, expected[i].ids)
        self.decode([encoding.ids for encoding in expected])

    def decode(self, lists):
        requests = [(b"D", struct.pack(f"<{len(ids)}I", *ids)) for ids in lists]
        for ids, ours in zip(lists, self.ours.answers(requests)):
            self.check("text of", ids[:40], ours, self.theirs.decode(ids, skip_special_tokens=True))

    def run(self, count, rng, size):
        named = list(long_texts(rng, size)) if size else []
        for name, text in named:
            self.encode([text], [name])
        end = self.theirs.get_vocab_size()
        while count > 0:
            batch = min(count, 20000)
            self.encode([random_text(rng) for _ in range(batch)])
            self.decode([[rng.randrange(end) for _ in range(rng.randint(1, 12))] for _ in range(batch)])
            count -= batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--long", type=int, default=20000, help="characters of the long texts; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shown", type=int, default=5)
    parser.add_argument("--bench", default="build/release/bin/rivulet-tokenizer-bench")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    differences = 0
    for folder in arguments.folders:
        begin = time.time()
        comparison = Comparison(arguments.bench, folder, arguments.shown)
        comparison.run(arguments.strings, random.Random(f"{arguments.seed} {folder.name}"), arguments.long)
        differences += comparison.differences
        print(f"{folder.name}: {comparison.differences} differences in {comparison.compared} comparisons, {time.time() - begin:.0f} s", flush=True)
    sys.exit(differences > 0)


if __name__ == "__main__":
    main()
