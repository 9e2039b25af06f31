# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Text file -> SentencePiece tokenizer, token stream, and a recorded split.

    python3 data.py --text fairy_tales.txt.xz --out work        (takes any UTF-8 text, plain or .xz)

The text has one paragraph a line and a blank line between books. A heading starts a document (a tale or
a chapter). The stream holds each document as  <s> heading \\n paragraph \\n ... </s>.

The stream is cut into blocks of `--block` tokens. A random 5 % of the blocks is held out (the reported
number), a further 2 % validates (every choice is made on it); the rest trains. split.json records all of it.
"""
import argparse
import hashlib
import json
import lzma
import os
import re

import numpy as np
import sentencepiece

UNK, BOS, EOS, NEWLINE = 0, 1, 2, 3
SMALL_WORDS = set("a an the of and in to or who with for from on by at his her how was that into".split())


def read_text(path):
    opener = lzma.open if path.endswith(".xz") else open
    with opener(path, "rt", encoding="utf-8") as f:
        return f.read()


# ---------------------------------------------------------------- documents
def looks_like_title(line):
    """All capitals, or every important word capitalised."""
    if not 3 <= len(line) <= 75 or line[0] in "\"'(*_[-`" or line[-1] in ",;:-\"'!?":
        return False
    if re.search(r"CONTENTS|^by |edition|language:", line, re.I) or not re.search("[A-Z]", line):
        return False
    if not re.search("[a-z]", re.sub(r"\(.*?\)|\b(or|of|and)\b|^Chapter", "", line)):
        return True
    words = re.findall(r"[A-Za-z][A-Za-z']*", line)
    return len(words) > 1 and line[-1] != "." and all(w[0].isupper() or w in SMALL_WORDS for w in words)


def is_heading(lines, i):
    """A title line after a finished paragraph and shortly before a real one."""
    if not looks_like_title(lines[i].strip()):
        return False
    after = max([len(line) for line in lines[i + 1:i + 3]], default=0)
    before = lines[i - 1].rstrip() if i else "."
    return after >= 160 and (before[-1:] in ".!?\"')]*" or len(before) < 75)


def documents(text):
    """[(heading lines, body lines)]; consecutive headings (chapter number, chapter title) belong together."""
    out = []
    for book in text.split("\n\n"):
        lines = book.strip("\n").split("\n")
        flags = [is_heading(lines, i) for i in range(len(lines))]
        out.append(([], []))
        for line, flag in zip(lines, flags):
            if flag and out[-1][1]:
                out.append(([], []))
            out[-1][0 if flag and not out[-1][1] else 1].append(line)
    return [doc for doc in out if doc[1]]


# ---------------------------------------------------------------- tokens
def train_tokenizer(text, prefix, vocab_size):
    """BPE with byte fallback. No normalisation and no dummy prefix, so that decode(encode(x)) == x."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in text.split("\n") if line]), model_prefix=prefix,
        model_type="bpe", vocab_size=vocab_size, byte_fallback=True, character_coverage=0.9995,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
        user_defined_symbols=["\n"], max_sentence_length=1 << 20, num_threads=8, minloglevel=1)
    os.remove(prefix + ".vocab")


def token_stream(docs, tokenizer):
    """(token ids, positions of each document's <s>, positions where its body starts)."""
    ids, starts, bodies = [], [], []
    for heading, body in docs:
        starts.append(len(ids))
        ids.append(BOS)
        ids += tokenizer.encode("".join(line + "\n" for line in heading))
        bodies.append(len(ids))
        ids += tokenizer.encode("".join(line + "\n" for line in body))
        ids.append(EOS)
    return np.array(ids, np.uint16), np.array(starts), np.array(bodies)


def token_chars(tokenizer):
    """Characters of each piece, for bits per character. Special pieces have none, a byte piece one unless it
    continues a UTF-8 sequence."""
    def chars(i):
        piece = tokenizer.id_to_piece(i)
        if tokenizer.is_byte(i):
            return int((int(piece[3:5], 16) & 0xC0) != 0x80)
        return 0 if tokenizer.is_control(i) or tokenizer.is_unknown(i) else len(piece)
    return np.array([chars(i) for i in range(tokenizer.vocab_size())], np.int64)


# ---------------------------------------------------------------- split
def draw_split(num_blocks, seed, held_out=0.05, validation=0.02):
    order = np.random.default_rng(seed).permutation(num_blocks)
    n, m = round(held_out * num_blocks), round(validation * num_blocks)
    return np.sort(order[:n]), np.sort(order[n:n + m])


def prepare(args):
    os.makedirs(args.out, exist_ok=True)
    text = read_text(args.text)
    model = os.path.join(args.out, "tokenizer.model")
    if not os.path.exists(model):
        train_tokenizer(text, model[:-len(".model")], args.vocab_size)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=model)
    docs = documents(text)
    ids, starts, bodies = token_stream(docs, tokenizer)
    num_blocks = len(ids) // args.block
    held_out, validation = draw_split(num_blocks, args.seed)
    np.savez(os.path.join(args.out, "stream.npz"), ids=ids, starts=starts, bodies=bodies,
             chars=token_chars(tokenizer))
    record = {
        "text_sha256": hashlib.sha256(text.encode()).hexdigest(), "characters": len(text),
        "documents": len(docs), "tokens": len(ids), "block_tokens": args.block, "blocks": num_blocks,
        "drawn_by": "numpy.random.default_rng(seed).permutation(blocks): first 5 % held out, next 2 % validation",
        "seed": args.seed, "held_out": held_out.tolist(), "validation": validation.tolist()}
    with open(os.path.join(args.out, "split.json"), "w") as f:
        json.dump(record, f)
    print(f"{len(text)} characters, {len(docs)} documents, {len(ids)} tokens "
          f"({len(text) / len(ids):.3f} characters each), {num_blocks} blocks: "
          f"{len(held_out)} held out, {len(validation)} validation")


# ---------------------------------------------------------------- reading it back
class Corpus:
    """The stream and its split. Training windows contain no held-out or validation token."""

    def __init__(self, folder):
        stream = np.load(os.path.join(folder, "stream.npz"))
        with open(os.path.join(folder, "split.json")) as f:
            self.split = json.load(f)
        self.ids, self.chars = stream["ids"].astype(np.int64), stream["chars"]
        self.entries = np.concatenate([stream["starts"], stream["bodies"] - 1])
        self.block = self.split["block_tokens"]
        self._valid = {}

    def blocks(self, name):
        """[n, block] token ids of "held_out" or "validation"."""
        return np.stack([self.ids[b * self.block:(b + 1) * self.block] for b in self.split[name]])

    def valid_starts(self, length):
        if length not in self._valid:
            closed = np.zeros(len(self.ids) + 1, np.int64)
            for b in self.split["held_out"] + self.split["validation"]:
                closed[b * self.block + 1:(b + 1) * self.block + 1] = 1
            total = np.cumsum(closed)
            free = np.flatnonzero(total[length:] == total[:-length])
            self._valid[length] = free, np.intersect1d(self.entries, free)
        return self._valid[length]

    def windows(self, rng, batch, length, entry_share=0.1):
        """[batch, length] random windows; a share of them starts where a document or its body starts, with
        <s> as first token, so that the model learns to open a tale."""
        anywhere, entries = self.valid_starts(length)
        start = rng.choice(anywhere, batch)
        entry = rng.random(batch) < (entry_share if len(entries) else 0)
        if entry.any():
            start[entry] = rng.choice(entries, entry.sum())
        window = self.ids[start[:, None] + np.arange(length)]
        window[entry, 0] = BOS
        return window


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", required=True, help="UTF-8 text, one paragraph a line; .xz is unpacked")
    p.add_argument("--out", required=True, help="folder for tokenizer.model, stream.npz and split.json")
    p.add_argument("--vocab-size", type=int, default=4096)
    p.add_argument("--block", type=int, default=512)
    p.add_argument("--seed", type=int, default=20261121)
    prepare(p.parse_args())


if __name__ == "__main__":
    main()
