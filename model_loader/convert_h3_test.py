# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Needs neither PyTorch nor NumPy: files in torch.save's format are made by hand."""
import json
import os
import pickle
import struct
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import convert_h3 as converter
from pytorch_file import ConversionError
from pytorch_file_testing import FakeTensor, read_safetensors, save_like_torch

VOCABULARY, WIDTH, STATE, INNER = 10, 6, 4, 8


def norm(name):
    return {name + ".weight": (WIDTH,), name + ".bias": (WIDTH,)}


def linear(name, outputs, inputs):
    return {name + ".weight": (outputs, inputs), name + ".bias": (outputs,)}


def h3_mixer(p, head_dim, ssms):
    heads = WIDTH // head_dim
    shapes = {p + "ssm_k_kernel.kernel.B": (WIDTH, STATE), p + "ssm_k_kernel.kernel.C": (1, WIDTH, STATE), p + "ssm_k_D": (WIDTH,),
              p + "D": (heads,), p + "kernel.kernel.log_dt": (heads,), p + "kernel.kernel.B": (ssms, STATE // 2, 2),
              p + "kernel.kernel.C": (1, heads, STATE // 2, 2), p + "kernel.kernel.inv_A_real": (ssms, STATE // 2),
              p + "kernel.kernel.A_imag": (ssms, STATE // 2)}
    for name in ("q_proj", "k_proj", "v_proj", "output_linear"):
        shapes.update(linear(p + name, WIDTH, WIDTH))
    return shapes


def model_shapes(attention=(), head_dim=1, ssms=6, layers=2):
    shapes = {"backbone.embeddings.word_embeddings.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH), **norm("backbone.ln_f")}
    for i in range(layers):
        p = f"backbone.layers.{i}."
        shapes.update(norm(p + "norm1"))
        shapes.update(norm(p + "norm2"))
        shapes.update(linear(p + "mlp.fc1", INNER, WIDTH))
        shapes.update(linear(p + "mlp.fc2", WIDTH, INNER))
        if i in attention:
            shapes.update(linear(p + "mixer.Wqkv", 3 * WIDTH, WIDTH))
            shapes.update(linear(p + "mixer.out_proj", WIDTH, WIDTH))
        else:
            shapes.update(h3_mixer(p + "mixer.", head_dim, ssms))
    return shapes


class FakeModel:
    """Tensors of these shapes, each in a storage of its own and with numbers of its own; but a tied output map has the embeddings' numbers."""

    def __init__(self, shapes, tied=True):
        self.tensors, self.storages, self.bytes, first = {}, {}, {}, 0
        for key, (name, shape) in enumerate(shapes.items()):
            stride, count = [], 1
            for size in reversed(shape):
                stride.insert(0, count)
                count *= size
            self.tensors[name] = FakeTensor("FloatStorage", str(key), 0, shape, tuple(stride))
            self.bytes[name] = self.storages[str(key)] = struct.pack(f"<{count}f", *range(first, first + count))
            first += count
        if tied and "lm_head.weight" in shapes:
            key = str(list(shapes).index("lm_head.weight"))
            self.storages[key] = self.bytes["lm_head.weight"] = self.bytes["backbone.embeddings.word_embeddings.weight"]


class ConvertTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.source, self.target = self.folder.name + "/model.pt", self.folder.name + "/to"

    def convert(self, contents, storages, *arguments, source=None):
        """config.json and the tensors {name: bytes} of the result."""
        save_like_torch(self.source, contents, storages)
        options = converter.parse_arguments([source or self.source, self.target, *arguments])
        converter.convert(options.source, options.target, options)
        with open(self.target + "/config.json") as file:
            config = json.load(file)
        return config, {name: data for name, (_, _, data) in read_safetensors(self.target + "/model.safetensors").items()}

    def expect(self, model, written):
        kept = {name: data for name, data in model.bytes.items() if name != "lm_head.weight"}
        self.assertEqual(written, kept)

    def test_a_plain_model(self):
        model = FakeModel(model_shapes(head_dim=2, ssms=1))
        config, written = self.convert(model.tensors, model.storages)
        wanted = dict(model_type="h3", hidden_size=WIDTH, num_hidden_layers=2, vocab_size=VOCABULARY, intermediate_size=INNER, d_state=STATE,
                      head_dim=2, n_ssm=1, discretization="bilinear", tie_word_embeddings=True, layer_norm_epsilon=1e-5)
        self.assertEqual(config, wanted)
        self.expect(model, written)

    def test_an_output_map_of_its_own_is_kept(self):
        model = FakeModel(model_shapes(), tied=False)
        config, written = self.convert(model.tensors, model.storages)
        self.assertIs(config["tie_word_embeddings"], False)
        self.assertEqual(written, model.bytes)

    def test_a_missing_output_map_is_tied(self):
        shapes = model_shapes()
        del shapes["lm_head.weight"]
        config, written = self.convert((model := FakeModel(shapes)).tensors, model.storages)
        self.assertIs(config["tie_word_embeddings"], True)
        self.assertEqual(written, model.bytes)

    def test_a_directory_and_another_discretization(self):
        model = FakeModel(model_shapes())
        config, _ = self.convert(model.tensors, model.storages, "--discretization", "zoh", source=self.folder.name)
        self.assertEqual((config["discretization"], config["head_dim"], config["n_ssm"]), ("zoh", 1, 6))

    def test_layers_of_attention(self):
        shapes = model_shapes(attention=[1])
        shapes["backbone.layers.1.mixer.rotary_emb.inv_freq"] = (1,)
        model = FakeModel(shapes)
        config, written = self.convert(model.tensors, model.storages, "--attention-heads", "3")
        self.assertEqual([config[key] for key in ("attn_layer_idx", "num_attention_heads", "rotary_dim")], [[1], 3, 2])
        p, matrix = "backbone.layers.1.mixer.", WIDTH * WIDTH * 4
        fused, bias = model.bytes[p + "Wqkv.weight"], model.bytes[p + "Wqkv.bias"]
        for i, part in enumerate("qkv"):
            self.assertEqual(written[f"{p}{part}_proj.weight"], fused[i * matrix:(i + 1) * matrix])
            self.assertEqual(written[f"{p}{part}_proj.bias"], bias[i * 24:(i + 1) * 24])
        self.assertEqual(written[p + "o_proj.weight"], model.bytes[p + "out_proj.weight"])
        self.assertFalse([name for name in written if "Wqkv" in name or "rotary" in name or "out_proj" in name])

    def test_what_the_file_does_not_tell_must_be_given(self):
        model = FakeModel(model_shapes(attention=[0]))
        for arguments, message in [((), "--attention-heads"), (("--attention-heads", "4"), "does not divide"),
                                   (("--attention-heads", "3"), "64 rotary dimensions"),
                                   (("--attention-heads", "3", "--rotary-dim", "1"), "1 rotary dimensions")]:
            with self.subTest(arguments), self.assertRaisesRegex(ConversionError, message):
                self.convert(model.tensors, model.storages, *arguments)
            self.assertFalse(os.path.exists(self.target))
        config, _ = self.convert(model.tensors, model.storages, "--attention-heads", "3", "--rotary-dim", "0")
        self.assertEqual(config["rotary_dim"], 0)

    def test_a_training_checkpoint_of_lightning(self):
        model = FakeModel(model_shapes())
        contents = {"pytorch-lightning_version": "1.8.6", "epoch": 3, "callbacks": {"monitor": tempfile.SpooledTemporaryFile},
                    "state_dict": {**{"model." + name: tensor for name, tensor in model.tensors.items()}, "loss.weight": 1.0}}
        _, written = self.convert(contents, model.storages)
        self.expect(model, written)

    def test_the_first_names(self):
        """Norms were named after the layer before them."""
        model = FakeModel(model_shapes())
        norms = {"backbone.layers.0.norm1": "s4seq.encoder.ln_0", "backbone.layers.0.norm2": "s4seq.encoder.layers.0.norm1",
                 "backbone.layers.1.norm1": "s4seq.encoder.layers.0.norm2", "backbone.layers.1.norm2": "s4seq.encoder.layers.1.norm1",
                 "backbone.ln_f": "s4seq.encoder.layers.1.norm2"}

        def old_name(name):
            base, _, kind = name.rpartition(".")
            if base in norms:
                return f"{norms[base]}.{kind}"
            name = name.replace("backbone.embeddings.word_embeddings.", "embedding.")
            return name.replace("backbone.", "s4seq.encoder.")

        _, written = self.convert({old_name(name): tensor for name, tensor in model.tensors.items()}, model.storages)
        self.expect(model, written)

    def test_the_first_name_of_the_last_norm(self):
        model = FakeModel(model_shapes())
        old = {name.replace("backbone.ln_f", "backbone.norm"): tensor for name, tensor in model.tensors.items()}
        _, written = self.convert(old, model.storages)
        self.expect(model, written)

    def test_what_is_no_h3_model_is_refused(self):
        model = FakeModel(model_shapes())

        def without(part):
            return {name: tensor for name, tensor in model.tensors.items() if part not in name}

        for contents, message in [({}, "not an H3 model"), (without("embeddings"), "not an H3 model"), (without("layers.0."), "some are missing"),
                                  (without("layers.1.mixer.D"), "no tensor .*mixer.D"), (without("layers.1.mlp.fc1"), "no tensor .*fc1"),
                                  ({"state_dict": 3}, "state_dict")]:
            with self.subTest(message), self.assertRaisesRegex(ConversionError, message):
                self.convert(contents, model.storages)

    def test_layers_of_different_sizes_are_refused(self):
        shapes = model_shapes()
        shapes.update(h3_mixer("backbone.layers.1.mixer.", 2, 3))
        model = FakeModel(shapes)
        with self.assertRaisesRegex(ConversionError, "layers 0 and 1 differ"):
            self.convert(model.tensors, model.storages)

    def test_code_in_the_file_does_not_run(self):
        marker = self.folder.name + "/marker"

        class Malicious:
            def __reduce__(self):
                return os.mkdir, (marker,)

        with zipfile.ZipFile(self.source, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"callbacks": Malicious(), "state_dict": {}}, protocol=2))
        options = converter.parse_arguments([self.source, self.target])
        with self.assertRaisesRegex(ConversionError, "not an H3 model"):
            converter.convert(options.source, options.target, options)
        self.assertFalse(os.path.exists(marker))


if __name__ == "__main__":
    unittest.main()
