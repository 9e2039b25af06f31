# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Build the training text from Project Gutenberg: one paragraph per line, a blank line between books.

    python3 fetch_books.py --out fairy_tales.txt            (43 books, about 17 MB, needs network)
    python3 fetch_books.py --out my.txt --ids 11 16 55      (any other books by their Gutenberg number)

All 43 are in the public domain in the USA. tales was trained on a text made the same way from the GITenberg
copies of these books; Gutenberg revises its files, so a text fetched today may differ in places and its
sha256 need not be the one in tales/split.json.
"""
import argparse
import re
import time
import urllib.request

URL = "https://www.gutenberg.org/cache/epub/{0}/pg{0}.txt"
BOOKS = {
    "Alice's Adventures in Wonderland": 11, "Andersen's Fairy Tales": 1597, "Anne of Green Gables": 45,
    "At the Back of the North Wind": 225, "Black Beauty": 271, "Celtic Fairy Tales": 7885,
    "Dorothy and the Wizard in Oz": 420, "English Fairy Tales": 7439, "Five Children and It": 778,
    "Grimms' Fairy Tales": 2591, "Heidi": 1448, "Just So Stories": 2781, "Little Women": 514,
    "Old Mother West Wind": 2557, "Ozma of Oz": 486, "Peter Pan": 16, "The Adventures of Pinocchio": 500,
    "The Adventures of Tom Sawyer": 74, "The Blue Fairy Book": 503, "The Brown Fairy Book": 3282,
    "The Crimson Fairy Book": 2435, "The Emerald City of Oz": 517, "The Enchanted Castle": 3536,
    "The Green Fairy Book": 7277, "The Grey Fairy Book": 6746, "The Jungle Book": 236,
    "The Lilac Fairy Book": 3454, "The Marvelous Land of Oz": 54, "The Olive Fairy Book": 27826,
    "The Orange Fairy Book": 3027, "The Phoenix and the Carpet": 836, "The Pink Fairy Book": 5615,
    "The Princess and the Goblin": 708, "The Railway Children": 1874, "The Red Fairy Book": 540,
    "The Scarecrow of Oz": 957, "The Secret Garden": 17396, "The Violet Fairy Book": 641,
    "The Wind in the Willows": 289, "The Wonderful Wizard of Oz": 55, "The Yellow Fairy Book": 640,
    "Tik-Tok of Oz": 956, "Treasure Island": 120}


def between_markers(text):
    """The book without Gutenberg's header and footer."""
    start = re.search(r"^\*\*\* ?START OF TH.*$", text, re.M)
    end = re.search(r"^(\*\*\* ?END OF TH|End of (the )?Project Gutenberg).*$", text, re.M)
    return text[start.end() if start else 0:end.start() if end else len(text)]


def paragraphs(text):
    """Line wrapping, illustrations, rules and emphasis marks removed; one string per paragraph."""
    text = re.sub(r"\[Illustration.*?\]", "", text.replace("\r\n", "\n"), flags=re.S)
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    cleaned = (re.sub(r"_([^_]+)_", r"\1", block) for block in blocks)
    return [p for p in cleaned if re.search(r"\w", p)]


def fetch(book_id, pause):
    time.sleep(pause)                                        # be polite: Gutenberg is run by volunteers
    with urllib.request.urlopen(URL.format(book_id), timeout=60) as reply:
        return reply.read().decode("utf-8-sig", errors="replace")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True)
    p.add_argument("--ids", nargs="*", type=int, default=list(BOOKS.values()))
    p.add_argument("--pause", type=float, default=2.0, help="seconds between two downloads")
    args = p.parse_args()
    books = []
    for book_id in args.ids:
        books.append("\n".join(paragraphs(between_markers(fetch(book_id, args.pause)))))
        print(book_id, len(books[-1]), "characters", flush=True)
    with open(args.out, "w", encoding="utf-8") as f:
        f.write("\n\n".join(books) + "\n")


if __name__ == "__main__":
    main()
