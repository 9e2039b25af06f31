#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Turns a state-spaces checkpoint, Mamba or Mamba-2, into the layout that transformers and this server use.

    model_loader/convert_mamba_ssm.py FROM TO

FROM holds config.json {d_model, n_layer, vocab_size, ssm_cfg, ...} and pytorch_model.bin, as on
https://huggingface.co/state-spaces; TO, a new directory, gets config.json and model.safetensors. Those checkpoints have no
tokenizer of their own (they use GPT-NeoX's), so the result is served with token ids. Only Python's standard library is
needed: the file is read as data, and no code that it may hold is run.
"""
import json
import math
import os

from pytorch_file import PytorchFile, StoredTensor, make_parser, refuse, run, write_checkpoint

GPT_NEOX_END_OF_TEXT = 0

# What mamba_ssm/modules/mamba_simple.py and mamba2.py take when ssm_cfg does not say.
MAMBA1_DEFAULTS = dict(d_state=16, d_conv=4, expand=2, dt_rank="auto", bias=False, conv_bias=True)
MAMBA2_DEFAULTS = dict(d_state=128, d_conv=4, expand=2, headdim=64, ngroups=1, bias=False, conv_bias=True, dt_limit=(0.0, float("inf")),
                       D_has_hdim=False, rmsnorm=True, norm_before_gate=False, d_ssm=None, activation="swish")


# ---------------------------------------------------------------- config.json
def check_size(key, value):
    refuse(type(value) is not int or value < 1, f"config.json: {key} is {value!r}: it must be a whole number from 1 on")


def check_model(config):
    refuse(not isinstance(config, dict), "config.json does not contain a JSON object {...}")
    for key in ("d_model", "n_layer", "vocab_size"):
        check_size(key, config.get(key))
    check_size("pad_vocab_size_multiple", config.get("pad_vocab_size_multiple", 8))
    refuse(not isinstance(config.get("ssm_cfg") or {}, dict), f"config.json: ssm_cfg is {config.get('ssm_cfg')!r}: it must be an object or null")
    refuse(config.get("attn_layer_idx"), "attn_layer_idx names layers of softmax attention: not served in this layout")
    refuse(config.get("d_intermediate"), "d_intermediate adds an MLP to each block: not served in this layout")
    refuse(not config.get("rms_norm", True), "rms_norm is false: LayerNorm is not served in this layout")


def check_mamba2(config, ssm):
    refuse(not ssm["rmsnorm"], "ssm_cfg.rmsnorm is false: not served")
    refuse(ssm["norm_before_gate"], "ssm_cfg.norm_before_gate is true: not served")
    check_size("ssm_cfg.expand", ssm["expand"])
    check_size("ssm_cfg.headdim", ssm["headdim"])
    inner = ssm["expand"] * config["d_model"]
    refuse(ssm["d_ssm"] not in (None, inner), f"ssm_cfg.d_ssm is {ssm['d_ssm']}: only d_ssm = expand * d_model = {inner} is served")
    refuse(inner % ssm["headdim"], f"ssm_cfg.headdim is {ssm['headdim']}: it must divide expand * d_model = {inner}")


def padded_vocabulary(config):
    multiple = config.get("pad_vocab_size_multiple", 8)
    return -(-config["vocab_size"] // multiple) * multiple


def json_number(x):
    """Infinity as transformers 5 writes it, since JSON has none."""
    return {"__float__": "Infinity"} if x == float("inf") else x


def mamba1_keys(config, ssm):
    rank = math.ceil(config["d_model"] / 16) if ssm["dt_rank"] == "auto" else ssm["dt_rank"]
    return {"model_type": "mamba", "time_step_rank": rank, "intermediate_size": int(ssm["expand"] * config["d_model"])}


def mamba2_keys(config, ssm):
    check_mamba2(config, ssm)
    return {"model_type": "mamba2", "head_dim": ssm["headdim"], "num_heads": ssm["expand"] * config["d_model"] // ssm["headdim"],
            "n_groups": ssm["ngroups"], "D_has_hdim": ssm["D_has_hdim"], "time_step_limit": [json_number(x) for x in ssm["dt_limit"]]}


LAYERS = {"Mamba1": (MAMBA1_DEFAULTS, mamba1_keys), "Mamba2": (MAMBA2_DEFAULTS, mamba2_keys)}


def convert_config(config):
    """config.json in transformers' keys."""
    check_model(config)
    layer = (config.get("ssm_cfg") or {}).get("layer", "Mamba1")
    refuse(layer not in LAYERS, f"ssm_cfg.layer is {layer!r}: only {' and '.join(LAYERS)} (absent means Mamba1) can be converted")
    defaults, own_keys = LAYERS[layer]
    ssm = {**defaults, **(config.get("ssm_cfg") or {})}
    return {
        **own_keys(config, ssm), "hidden_size": config["d_model"], "num_hidden_layers": config["n_layer"],
        "vocab_size": padded_vocabulary(config), "state_size": ssm["d_state"], "conv_kernel": ssm["d_conv"], "expand": ssm["expand"],
        "use_bias": ssm["bias"], "use_conv_bias": ssm["conv_bias"], "hidden_act": "silu", "layer_norm_epsilon": 1e-5,
        "residual_in_fp32": config.get("residual_in_fp32", True), "tie_word_embeddings": config.get("tie_embeddings", True),
        "eos_token_id": GPT_NEOX_END_OF_TEXT,
    }


def convert_name(name, tied):
    """The tensor's name in transformers' layout; None: leave it out."""
    if name == "lm_head.weight" and tied:
        return None
    return "backbone.embeddings.weight" if name == "backbone.embedding.weight" else name


def convert(source, target):
    with open(os.path.join(source, "config.json")) as file:
        config = convert_config(json.load(file))
    weights = PytorchFile(os.path.join(source, "pytorch_model.bin"))
    strange = [name for name, tensor in weights.contents.items() if not isinstance(tensor, StoredTensor)]
    refuse(strange, f"pytorch_model.bin holds {strange[:1]}, which is not a tensor: expected a plain dictionary of float tensors")
    names = {name: convert_name(name, config["tie_word_embeddings"]) for name in weights.contents}
    tensors = {names[name]: tensor for name, tensor in weights.contents.items() if names[name] is not None}
    write_checkpoint(target, config, tensors, weights)


if __name__ == "__main__":
    arguments = make_parser(__doc__).parse_args()
    run("convert_mamba_ssm", convert, arguments.source, arguments.target)
