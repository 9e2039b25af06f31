# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""rivulet-server for tests in Python, and models that only tests need."""

import json
import pathlib
import random
import shutil
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import make_chat_model  # noqa: E402
from support import rivulet_server  # noqa: E402
from support.rivulet_server import SOURCE, TALES  # noqa: E402

FIXTURE = SOURCE / "tests/parity/fixtures/log_linear_mamba2_clamp"
FIXTURE_LEVELS = 5
LEVELS = 13  # of tokens: within a chunk of 16, and 9 of pages


class Server(rivulet_server.Server):
    """With calls of its HTTP API."""

    @property
    def url(self):
        return f"http://{self.http}/"

    @property
    def port(self):
        return int(self.http.rsplit(":", 1)[1])

    def call(self, method, path, body=None, headers=None):
        """The JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path.lstrip("/"), data, headers or {}, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)


def make_chat(out):
    """A model that answers any message with "<think>a</think>b"."""
    make_chat_model.main(out)
    return out


def make_log_linear(out, said):
    """A log-linear Mamba-2 with the tokenizer of tales, which goes on with the tokens of `said` in a circle. Each occurs once there."""
    out.mkdir(parents=True)
    config = json.loads((FIXTURE / "config.json").read_text())
    vocab, hidden = json.loads((TALES / "config.json").read_text())["vocab_size"], config["hidden_size"]
    config.update(vocab_size=vocab, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
    rng = random.Random(1)
    size = make_chat_model.SIZE
    embeddings = [[rng.choice((-size, size)) for _ in range(hidden)] for _ in range(vocab)]
    lm_head = [[0.0] * hidden for _ in range(vocab)]
    for token, following in zip(said, said[1:] + said[:1]):
        lm_head[following] = [value / size for value in embeddings[token]]
    tensors = make_chat_model.read(FIXTURE / "model.safetensors")
    tensors["backbone.embeddings.weight"] = make_chat_model.floats(embeddings)
    tensors["lm_head.weight"] = make_chat_model.floats(lm_head)
    for name, (_, shape, _) in tensors.items():
        if name.endswith("mixer.L"):
            tensors[name] = make_chat_model.floats([[0.5] * LEVELS for _ in range(shape[0])])
        if name.endswith("mixer.in_proj.weight"):  # has a row for each head and level
            rows = shape[0] + config["num_heads"] * (LEVELS - FIXTURE_LEVELS)
            tensors[name] = make_chat_model.floats([[rng.uniform(-0.1, 0.1) for _ in range(hidden)] for _ in range(rows)])
    make_chat_model.write(out / "model.safetensors", tensors)
    (out / "config.json").write_text(json.dumps(config))
    (out / "generation_config.json").write_text(json.dumps({"temperature": 0, "max_new_tokens": 200, "eos_token_id": 2}))
    shutil.copy(TALES / "tokenizer.model", out)
    return out
