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
import convert_mamba_ssm as converter
from pytorch_file import ConversionError, run
from pytorch_file_testing import FakeTensor, read_safetensors, save_like_torch

# As in https://huggingface.co/state-spaces/mamba2-130m
MAMBA2_130M = {"d_model": 768, "d_intermediate": 0, "n_layer": 24, "vocab_size": 50277, "ssm_cfg": {"layer": "Mamba2"},
               "attn_layer_idx": [], "attn_cfg": {}, "rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True,
               "pad_vocab_size_multiple": 16, "tie_embeddings": True}
# As in https://huggingface.co/state-spaces/mamba-130m
MAMBA_130M = {"d_model": 768, "n_layer": 24, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True, "residual_in_fp32": True,
              "fused_add_norm": True, "pad_vocab_size_multiple": 8}


class ConfigTest(unittest.TestCase):
    def test_the_130m_model(self):
        config = converter.convert_config(MAMBA2_130M)
        wanted = dict(model_type="mamba2", hidden_size=768, num_hidden_layers=24, vocab_size=50288, num_heads=24, head_dim=64, state_size=128,
                      n_groups=1, conv_kernel=4, expand=2, tie_word_embeddings=True, use_bias=False, use_conv_bias=True, D_has_hdim=False)
        self.assertEqual({key: config[key] for key in wanted}, wanted)
        self.assertEqual(config["time_step_limit"], [0.0, {"__float__": "Infinity"}])
        json.dumps(config, allow_nan=False)

    def test_the_130m_model_of_mamba_1(self):
        wanted = dict(model_type="mamba", hidden_size=768, num_hidden_layers=24, vocab_size=50280, state_size=16, conv_kernel=4, expand=2,
                      time_step_rank=48, intermediate_size=1536, tie_word_embeddings=True, use_bias=False, use_conv_bias=True)
        for ssm in ({}, None, {"layer": "Mamba1"}):
            config = converter.convert_config({**MAMBA_130M, "ssm_cfg": ssm})
            self.assertEqual({key: config[key] for key in wanted}, wanted)
            self.assertNotIn("num_heads", config)
        config = converter.convert_config({**MAMBA_130M, "ssm_cfg": {"d_state": 8, "dt_rank": 5, "d_conv": 3, "bias": True}})
        self.assertEqual([config[key] for key in ("state_size", "time_step_rank", "conv_kernel", "use_bias")], [8, 5, 3, True])

    def test_ssm_cfg_overrides_the_defaults(self):
        ssm = {"layer": "Mamba2", "d_state": 64, "headdim": 32, "ngroups": 2, "dt_limit": [0.1, 1.0]}
        config = converter.convert_config({**MAMBA2_130M, "ssm_cfg": ssm})
        self.assertEqual((config["state_size"], config["head_dim"], config["num_heads"], config["n_groups"]), (64, 32, 48, 2))
        self.assertEqual(config["time_step_limit"], [0.1, 1.0])

    def test_what_is_not_served_is_refused(self):
        mamba2 = {"layer": "Mamba2"}
        for change, word in [({"ssm_cfg": {"layer": "Mamba3"}}, "Mamba3"), ({"attn_layer_idx": [3]}, "attn_layer_idx"),
                             ({"d_intermediate": 64}, "d_intermediate"), ({"rms_norm": False}, "rms_norm"), ({"d_model": "768"}, "d_model"),
                             ({"ssm_cfg": {**mamba2, "norm_before_gate": True}}, "norm_before_gate"),
                             ({"ssm_cfg": {**mamba2, "d_ssm": 100}}, "d_ssm"), ({"ssm_cfg": {**mamba2, "headdim": 100}}, "headdim"),
                             ({"ssm_cfg": {**mamba2, "rmsnorm": False}}, "rmsnorm"), ({"ssm_cfg": {**mamba2, "headdim": 0}}, "headdim"),
                             ({"ssm_cfg": {**mamba2, "expand": "x"}}, "expand"), ({"ssm_cfg": [1]}, "ssm_cfg"),
                             ({"n_layer": True}, "n_layer"), ({"pad_vocab_size_multiple": 0}, "pad_vocab_size_multiple")]:
            with self.subTest(word), self.assertRaisesRegex(ConversionError, word):
                converter.convert_config({**MAMBA2_130M, **change})

    def test_names(self):
        self.assertEqual(converter.convert_name("backbone.embedding.weight", True), "backbone.embeddings.weight")
        self.assertEqual(converter.convert_name("backbone.layers.0.mixer.A_log", True), "backbone.layers.0.mixer.A_log")
        self.assertIsNone(converter.convert_name("lm_head.weight", True))
        self.assertEqual(converter.convert_name("lm_head.weight", False), "lm_head.weight")


class FileTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.source, self.target = self.folder.name + "/from", self.folder.name + "/to"
        os.makedirs(self.source)
        with open(self.source + "/config.json", "w") as file:
            json.dump(MAMBA2_130M, file)

    def save(self, tensors, storages):
        save_like_torch(self.source + "/pytorch_model.bin", tensors, storages)

    def test_a_file_of_tensors(self):
        floats = struct.pack("<6f", *range(6))
        self.save({"backbone.embedding.weight": FakeTensor("FloatStorage", "0", 0, (2, 3), (3, 1)),
                   "backbone.norm_f.weight": FakeTensor("BFloat16Storage", "1", 1, (2,), (1,)),
                   "conv": FakeTensor("HalfStorage", "2", 0, (2, 1, 1), (1, 7, 1)),
                   "lm_head.weight": FakeTensor("FloatStorage", "0", 0, (2, 3), (3, 1))},
                  {"0": floats, "1": b"aabbcc", "2": b"ddee"})
        converter.convert(self.source, self.target)
        self.assertEqual(read_safetensors(self.target + "/model.safetensors"),
                         {"backbone.embeddings.weight": ("F32", [2, 3], floats), "backbone.norm_f.weight": ("BF16", [2], b"bbcc"),
                          "conv": ("F16", [2, 1, 1], b"ddee")})
        with open(self.target + "/config.json") as file:
            self.assertEqual(json.load(file)["hidden_size"], 768)

    def test_something_else_than_a_tensor_is_refused(self):
        self.save({"step": 7}, {})
        with self.assertRaisesRegex(ConversionError, "step.*not a tensor"):
            converter.convert(self.source, self.target)

    def test_a_transposed_tensor_is_refused(self):
        self.save({"x": FakeTensor("FloatStorage", "0", 0, (2, 3), (1, 2))}, {"0": bytes(24)})
        with self.assertRaisesRegex(ConversionError, "row by row"):
            converter.convert(self.source, self.target)

    def test_a_short_storage_is_refused(self):
        self.save({"x": FakeTensor("FloatStorage", "0", 0, (2, 3), (3, 1))}, {"0": bytes(20)})
        with self.assertRaisesRegex(ConversionError, "ends inside"):
            converter.convert(self.source, self.target)

    def test_a_missing_storage_is_refused(self):
        self.save({"x": FakeTensor("FloatStorage", "0", 0, (2, 3), (3, 1))}, {"1": bytes(24)})
        with self.assertRaisesRegex(ConversionError, "has no archive/data/0"):
            converter.convert(self.source, self.target)

    def test_a_place_before_the_storage_is_refused(self):
        self.save({"x": FakeTensor("FloatStorage", "0", -6, (2, 3), (3, 1))}, {"0": bytes(48)})
        with self.assertRaisesRegex(ConversionError, "from place -6"):
            converter.convert(self.source, self.target)

    def test_code_in_the_file_does_not_run(self):
        marker = self.folder.name + "/marker"

        class Malicious:
            def __reduce__(self):
                return os.mkdir, (marker,)

        with zipfile.ZipFile(self.source + "/pytorch_model.bin", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"x": Malicious()}, protocol=2))
        with self.assertRaisesRegex(ConversionError, "mkdir"):
            converter.convert(self.source, self.target)
        self.assertFalse(os.path.exists(marker))

    def test_a_damaged_pickle_is_refused(self):
        whole = pickle.dumps({"x": [1, 2, 3]}, protocol=2)
        for damaged in (b"", whole[:-4], b"\x80\x02}(K\x01", b"\xff" * 20, pickle.dumps([1], protocol=2)):
            with zipfile.ZipFile(self.source + "/pytorch_model.bin", "w") as archive:
                archive.writestr("archive/data.pkl", damaged)
            with self.subTest(damaged), self.assertRaisesRegex(ConversionError, "damaged|no dictionary"):
                converter.convert(self.source, self.target)

    def test_a_pickle_that_asks_for_much_memory_is_refused(self):
        for pickled, message in ((b"\x80\x02}r\xff\xff\xff\x7f.", "place 2147483647"), (b"\x80\x02}p999999999\n.", "place 999999999"),
                                 (b"\x80\x02}." + bytes(1 << 24), "data.pkl of 16,777,220")):
            with zipfile.ZipFile(self.source + "/pytorch_model.bin", "w") as archive:
                archive.writestr("archive/data.pkl", pickled)
            with self.subTest(message), self.assertRaisesRegex(ConversionError, message):
                converter.convert(self.source, self.target)

    def test_a_compressed_archive_is_refused(self):
        with zipfile.ZipFile(self.source + "/pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
        with self.assertRaisesRegex(ConversionError, "data.pkl is compressed"):
            converter.convert(self.source, self.target)

    def test_tensors_that_lie_over_each_other_are_refused(self):
        self.save({str(i): FakeTensor("FloatStorage", "0", 0, (10000,), (1,)) for i in range(100)}, {"0": bytes(40000)})
        with self.assertRaisesRegex(ConversionError, "4,000,000 bytes.*over each other"):
            converter.convert(self.source, self.target)

    def test_too_many_dimensions_are_refused(self):
        self.save({"x": FakeTensor("FloatStorage", "0", 0, (1,) * 9, (1,) * 9)}, {"0": bytes(4)})
        with self.assertRaisesRegex(ConversionError, "9 dimensions"):
            converter.convert(self.source, self.target)

    def test_whatever_a_damaged_file_raises_becomes_a_message(self):
        self.save({"x": FakeTensor("FloatStorage", "0", 0, (2, 3), (3, 1))}, {"0": bytes(24)})
        for text in (b"\xff\xfe", b"[" * 100000, b"[]", json.dumps({**MAMBA2_130M, "ssm_cfg": {"layer": ["x"]}}).encode()):
            with open(self.source + "/config.json", "wb") as file:
                file.write(text)
            with self.subTest(text[:20]), self.assertRaisesRegex(SystemExit, "convert_mamba_ssm: .*(damaged|not contain a JSON object)"):
                run("convert_mamba_ssm", converter.convert, self.source, self.target)

    def test_another_file_is_refused(self):
        with open(self.source + "/pytorch_model.bin", "wb") as file:
            file.write(b"\x80\x02legacy")
        with self.assertRaisesRegex(ConversionError, "zip format"):
            converter.convert(self.source, self.target)


if __name__ == "__main__":
    unittest.main()
