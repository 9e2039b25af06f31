#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a tokenizer of each family that model folders have, with the `tokenizers` package.

    pip install tokenizers==0.23.3
    tests/tokenizers/make_tokenizers.py OUT [--vocabulary N] [--text FILE ...]

Writes OUT/NAME/tokenizer.json (and tokenizer_config.json where it matters). The regular expressions are those that the families publish.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = pathlib.Path(__file__).with_name("lines.txt")

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT4 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = CONTRACTIONS + (r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
O200K = (f"{CASED}{CONTRACTIONS}?|{UPPER}{CONTRACTIONS}?" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = f"{CASED}|{UPPER}" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        + CONTRACTIONS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def byte_level(pattern=None, add_prefix_space=False):
    last = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=pattern is None)
    if pattern is None:
        return last
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), last])


def llama_decoder(strip=True):
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def template(before=(), after=()):
    return lambda t: processors.TemplateProcessing(
        single=" ".join([*before, "$A", *after]),
        special_tokens=[(token, t.token_to_id(token)) for token in dict.fromkeys([*before, *after])])


class Family:
    """A tokenizer to be trained: `options` are attributes of Tokenizer, set before training or (`late`) after it."""

    def __init__(self, model, added=(), late=(), post=None, config=None, alphabet=None, change=None, **options):
        self.model, self.added, self.post, self.options = model, added, post, options
        self.late, self.config, self.alphabet, self.change = late, config, alphabet, change

    def trainer(self, vocabulary):
        alphabet = pre_tokenizers.ByteLevel.alphabet() if self.alphabet is None else self.alphabet
        shared = dict(vocab_size=vocabulary, show_progress=False, initial_alphabet=alphabet)
        if isinstance(self.model, models.Unigram):
            unknown = "<unk>"
            return trainers.UnigramTrainer(special_tokens=list(self.added), unk_token=unknown, **shared)
        if isinstance(self.model, models.WordPiece):
            return trainers.WordPieceTrainer(special_tokens=list(self.added), **shared)
        if isinstance(self.model, models.WordLevel):
            return trainers.WordLevelTrainer(vocab_size=vocabulary, show_progress=False, special_tokens=list(self.added))
        suffix = self.model.end_of_word_suffix
        return trainers.BpeTrainer(special_tokens=list(self.added), **shared, **({"end_of_word_suffix": suffix} if suffix else {}))

    def train(self, vocabulary, texts):
        tokenizer = Tokenizer(self.model)
        for name, value in self.options.items():
            setattr(tokenizer, name, value)
        tokenizer.train_from_iterator(texts, self.trainer(vocabulary))
        if self.late:
            tokenizer.add_tokens(list(self.late))
        if self.post:
            tokenizer.post_processor = self.post(tokenizer)
        data = json.loads(tokenizer.to_str())
        if self.change:
            self.change(data)
        return data


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA = ["<unk>", "<s>", "</s>", *BYTES]


def without_added(contents):
    """Byte tokens are in the vocabulary and not added tokens."""
    def change(data):
        data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] not in contents]
    return change


def ignore_merges(data):
    data["model"]["ignore_merges"] = True


def bpe_bytes():
    return models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)


# Code points to code points; a large table would make large fixtures.
RULES = "41\t61\nFB01\t66 69\n65 301\tE9\nE9\t65 301\n3000\t20\nAD\t\nFDFA\t635 644 649\n1100 1161\tAC00\n2460\t31\nD A\tA\n"


def charsmap(rule=None):
    """SentencePiece's table of a normalization rule, or of RULES, out of a model that spm_train makes."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "text").write_text("a b c d e\n" * 20)
        pathlib.Path(folder, "rules").write_text(RULES)
        option = f"--normalization_rule_name={rule}" if rule else f"--normalization_rule_tsv={folder}/rules"
        rule = rule or "user_defined"
        subprocess.run(["spm_train", f"--input={folder}/text", f"--model_prefix={folder}/m", "--vocab_size=12", "--minloglevel=2",
                        "--hard_vocab_limit=false", option], check=True)
        model = pathlib.Path(folder, "m.model").read_bytes()
    # normalizer_spec is field 3 of the model, precompiled_charsmap field 2 of it: look for the rule's name, then the table.
    start = model.index(rule.encode()) + len(rule)
    assert model[start] == 0x12
    size, shift, place = 0, 0, start + 1
    while True:
        byte = model[place]
        size |= (byte & 127) << shift
        shift, place = shift + 7, place + 1
        if byte < 128:
            return model[place:place + size]


def families():
    level = decoders.ByteLevel()
    metaspace = pre_tokenizers.Metaspace
    return {
        "gpt2": Family(models.BPE(), special("<|endoftext|>"), pre_tokenizer=byte_level(), decoder=level,
                       post=lambda t: processors.ByteLevel(trim_offsets=False)),
        "gpt4": Family(models.BPE(), special("<|endoftext|>"), pre_tokenizer=byte_level(GPT4), decoder=level),
        "possessive": Family(models.BPE(), special("<|endoftext|>"), pre_tokenizer=byte_level(POSSESSIVE), decoder=level),
        "qwen2": Family(models.BPE(), special(*CHAT), late=[AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)],
                        normalizer=normalizers.NFC(), pre_tokenizer=byte_level(QWEN2), decoder=level,
                        config={"bos_token": None, "eos_token": "<|im_end|>", "add_bos_token": False}),
        "qwen35": Family(models.BPE(), special(*CHAT), normalizer=normalizers.NFC(), pre_tokenizer=byte_level(QWEN35), decoder=level),
        "llama3": Family(models.BPE(), special("<|begin_of_text|>", "<|eot_id|>"), pre_tokenizer=byte_level(GPT4), decoder=level,
                         post=lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), template(["<|begin_of_text|>"])(t)]),
                         change=ignore_merges, config={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
        "o200k": Family(models.BPE(), special("<|endoftext|>"), pre_tokenizer=byte_level(O200K), decoder=level),
        "tekken": Family(models.BPE(), special("<s>", "[INST]"), pre_tokenizer=byte_level(TEKKEN), decoder=level,
                         post=template(["<s>"]), change=ignore_merges),
        "kimi": Family(models.BPE(), special("[BOS]", "<|im_end|>"), pre_tokenizer=byte_level(KIMI), decoder=level),
        "deepseek": Family(models.BPE(), special("<\uff5cbegin\u2581of\u2581sentence\uff5c>"), pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
            pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), decoder=level),
        "falcon": Family(models.BPE(), special("<|endoftext|>"), pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]), decoder=level),
        "neox": Family(models.BPE(), special("<|endoftext|>", "<|padding|>"), normalizer=normalizers.NFC(), pre_tokenizer=byte_level(),
                       decoder=level, late=[AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)]),
        "roberta": Family(models.BPE(), [*special("<s>", "</s>"), AddedToken("<mask>", special=True, lstrip=True, normalized=False)],
                          pre_tokenizer=byte_level(add_prefix_space=True), decoder=level,
                          post=lambda t: processors.RobertaProcessing(("</s>", 1), ("<s>", 0))),
        "llama2": Family(bpe_bytes(), LLAMA, alphabet=[], pre_tokenizer=metaspace(prepend_scheme="always"),
                         decoder=llama_decoder(), post=template(["<s>"]), change=lambda d: (without_added(BYTES)(d), d.update(
                             pre_tokenizer=None, normalizer=json.loads(
                                 '{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},'
                                 '{"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]}'))),
                         config={"bos_token": {"content": "<s>"}, "eos_token": {"content": "</s>"}, "add_bos_token": True}),
        "mistral": Family(bpe_bytes(), LLAMA, alphabet=[], pre_tokenizer=metaspace(prepend_scheme="first"), decoder=llama_decoder(),
                          post=template(["<s>"]), change=lambda d: (without_added(BYTES)(d), d["pre_tokenizer"].update(split=False))),
        "gemma": Family(bpe_bytes(), ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", *BYTES], alphabet=[],
                        normalizer=normalizers.Replace(" ", "\u2581"), pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
                        decoder=llama_decoder(False), post=template(["<bos>"]), change=without_added(BYTES),
                        late=[AddedToken("\n" * n, normalized=False) for n in range(1, 8)]),
        "xlmr": Family(models.Unigram(), special("<s>", "<pad>", "</s>", "<unk>"), alphabet=[],
                       normalizer=normalizers.Precompiled(charsmap("nmt_nfkc")),
                       pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]),
                       decoder=decoders.Metaspace(), post=template(["<s>"], ["</s>"])),
        "unigram": Family(models.Unigram(), [*special("<unk>", "<s>"), *BYTES], alphabet=[], normalizer=normalizers.Sequence([
            normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), "\u2581")]),
            pre_tokenizer=metaspace(prepend_scheme="first"), decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
            change=lambda d: (without_added(BYTES)(d), d["model"].update(byte_fallback=True))),
        "bert": Family(models.WordPiece(unk_token="[UNK]"), special("[PAD]", "[UNK]", "[CLS]", "[SEP]"), alphabet=[],
                       normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
                       decoder=decoders.WordPiece(), post=lambda t: processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))),
        "bert_cased": Family(models.WordPiece(unk_token="[UNK]"), special("[UNK]"), alphabet=[], pre_tokenizer=pre_tokenizers.Whitespace(),
                             normalizer=normalizers.BertNormalizer(lowercase=False, strip_accents=True), decoder=decoders.WordPiece(cleanup=False)),
        "clip": Family(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), special("<unk>"), alphabet=[],
                       normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
                       pre_tokenizer=pre_tokenizers.Sequence([
                           pre_tokenizers.Split(Regex(r"<\|startoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                                                "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                       decoder=decoders.BPEDecoder("</w>")),
        "words": Family(models.WordLevel(unk_token="[UNK]"), special("[UNK]"), late=[
            AddedToken("Fox", single_word=True), AddedToken("the", lstrip=True, rstrip=True), AddedToken("dog", rstrip=True, normalized=False)],
            normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                             normalizers.Nmt()]), pre_tokenizer=pre_tokenizers.Sequence([
                                                 pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next"),
                                                 pre_tokenizers.Digits(True), pre_tokenizers.Split("a", "merged_with_previous")])),
        "nfkc": Family(models.BPE(unk_token="<unk>"), special("<unk>"), alphabet=[],
                       normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.NFD(), normalizers.Prepend("_")]),
                       pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.FixedLength(7), pre_tokenizers.Split(
                           Regex(r"(?<=[a-z])[A-Z]|\b\d{2,3}+|^x|(?>y+)z|[[a-z&&[^b-y]]x]|\h{4}?"), "merged_with_next")]),
                       decoder=decoders.Fuse()),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--vocabulary", type=int, default=700)
    parser.add_argument("--text", action="append", default=[])
    arguments = parser.parse_args()
    texts = LINES.read_text(encoding="utf-8").splitlines(keepends=True)
    for path in arguments.text:
        texts += pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for name, family in families().items():
        folder = arguments.out / name
        folder.mkdir(parents=True, exist_ok=True)
        data = family.train(arguments.vocabulary, texts)
        (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
        if family.config is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(family.config) + "\n")
        print(name, len(Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()))


if __name__ == "__main__":
    main()
