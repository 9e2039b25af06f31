# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Makes many random checkpoints of transformers' hybrids and decoders, with options drawn at random.

    build/hf/bin/python tests/parity/make_random_hf.py FOLDER COUNT [SEED [FAMILY ...]]        as make_hf_checkpoints.py
    RIVULET_PARITY_DIR=FOLDER build/release/test/parity_test --gtest_filter='*random_*'

Writes FOLDER/random_<family>_<number>: config, weights and expected outputs in float64, as the fixtures have them, and transformers.json,
which says how far transformers' float32 is from its float64. Keys of config.json that are the class's default are left out at times.
"""
import json
import os
import random
import sys

import torch
import transformers

import make_hf_checkpoints as hf

TRIES = 6  # seeds of weights for one config, until every winner is clear


def some(rng, *choices):
    return rng.choice(choices)


def rope(rng, width=None, part=None, original=None):
    """Any scaling that is served but dynamic, which is the default one within its length; `width` is what is rotated where all of a head is."""
    keys = dict(rope_theta=some(rng, 10000.0, 500000.0, 77.5), rope_type=some(rng, "default", "default", "linear", "llama3", "yarn", "longrope"))
    kind, original = keys["rope_type"], original or some(rng, 16, 32, 100)
    if part is not None:
        keys["partial_rotary_factor"] = part
    if kind in ("linear", "llama3", "yarn"):
        keys["factor"] = some(rng, 1.5, 4.0, 32.0)
    if kind in ("llama3", "yarn"):
        keys["original_max_position_embeddings"] = original
    if kind == "llama3":
        keys |= dict(low_freq_factor=some(rng, 1.0, 1.5), high_freq_factor=some(rng, 4.0, 3.0))
    if kind == "yarn":
        keys |= some(rng, {}, {"attention_factor": 0.9}, {"mscale": 0.7, "mscale_all_dim": 1.1}, {"mscale": 2.0})
        keys |= some(rng, {}, {"beta_fast": 16, "beta_slow": 2}, {"truncate": False}, {"beta_fast": 4, "truncate": False})
    if kind == "longrope":
        count = int((width or 0) * (part or 1)) // 2
        keys |= dict(original_max_position_embeddings=128, short_factor=[round(rng.uniform(1, 3), 2) for _ in range(count)],
                     long_factor=[round(rng.uniform(3, 9), 2) for _ in range(count)])
        keys |= some(rng, {}, {"attention_factor": 1.2}, {"factor": 8.0})
    return keys


def common(rng, heads=None):
    heads = heads or some(rng, 2, 3, 4, 6)
    kv_heads = some(rng, *[n for n in range(1, heads + 1) if heads % n == 0])
    return dict(vocab_size=60, hidden_size=heads * some(rng, 8, 4, 12), num_hidden_layers=some(rng, 2, 3, 4), intermediate_size=some(rng, 20, 48, 33),
                num_attention_heads=heads, num_key_value_heads=kv_heads, bos_token_id=1, eos_token_id=some(rng, 2, [2, 5, 7]), pad_token_id=None,
                max_position_embeddings=512, tie_word_embeddings=some(rng, True, False))


def kinds(rng, layers, *names):
    """A list of kinds for so many layers, with all of them if there is room."""
    drawn = [rng.choice(names) for _ in range(layers)]
    for place, name in zip(rng.sample(range(layers), min(layers, len(names))), names):
        drawn[place] = name
    return drawn


def head_dim(rng, keys):
    return keys | some(rng, {}, {"head_dim": 8}, {"head_dim": 14})


def width(keys):
    return keys.get("head_dim") or keys["hidden_size"] // keys["num_attention_heads"]


def decoder(rng, **extra):
    keys = head_dim(rng, common(rng)) | extra
    return keys | dict(rope_parameters=rope(rng, width(keys)))


def llama(rng):
    return "Llama", decoder(rng, attention_bias=some(rng, True, False), mlp_bias=some(rng, True, False))


def mistral(rng):
    return "Mistral", decoder(rng, sliding_window=some(rng, None, 19, 64))


def qwen2(rng):
    keys = common(rng)
    return "Qwen2", keys | dict(use_sliding_window=some(rng, True, False), sliding_window=23, max_window_layers=1, rope_parameters=rope(rng, width(keys)))


def qwen3(rng):
    return "Qwen3", decoder(rng, attention_bias=some(rng, True, False))


def delta(rng):
    key_heads = some(rng, 1, 2, 3)
    return dict(linear_num_key_heads=key_heads, linear_num_value_heads=key_heads * some(rng, 1, 2, 3), linear_key_head_dim=some(rng, 8, 12, 16),
                linear_value_head_dim=some(rng, 4, 8, 20), linear_conv_kernel_dim=some(rng, 2, 3, 4))


def qwen_hybrid(rng):
    keys = common(rng) | delta(rng) | dict(head_dim=some(rng, 16, 12, 20), attention_bias=some(rng, True, False))
    keys["layer_types"] = kinds(rng, keys["num_hidden_layers"], "linear_attention", "full_attention")
    part = some(rng, 0.25, 0.5, 1.0)
    while True:
        keys["rope_parameters"] = rope(rng, keys["head_dim"], part)
        if int(keys["head_dim"] * part) % 2 == 0 or keys["rope_parameters"]["rope_type"] not in ("yarn", "longrope"):
            return keys


def qwen_experts(rng, keys):
    experts = some(rng, 3, 5, 8)
    keys = {k: v for k, v in keys.items() if k != "intermediate_size"}
    return keys | dict(num_experts=experts, num_experts_per_tok=rng.randint(1, experts), moe_intermediate_size=some(rng, 8, 11),
                       shared_expert_intermediate_size=some(rng, 12, 7))


def qwen3_next(rng):
    keys = qwen_hybrid(rng)
    if rng.random() < 0.4:
        return "Qwen3Next", keys | dict(num_experts=0)
    return "Qwen3Next", qwen_experts(rng, keys) | dict(intermediate_size=20, norm_topk_prob=some(rng, True, False), decoder_sparse_step=some(rng, 1, 2),
                                                       mlp_only_layers=some(rng, [], [1]))


def outer(name, keys, rng):
    """The text model alone, or as published inside of a config with a vision encoder."""
    if rng.random() < 0.5:
        return f"{name}ForCausalLM", lambda: getattr(transformers, f"{name}TextConfig")(**keys)
    vision = dict(hf.QWEN3_5_VISION, out_hidden_size=keys["hidden_size"])
    return f"{name}ForConditionalGeneration", lambda: hf.published_qwen(f"{name}Config", keys, vision=vision, tie_word_embeddings=keys["tie_word_embeddings"])


def qwen3_5(rng):
    keys = qwen_hybrid(rng)
    count = int(keys["head_dim"] * keys["rope_parameters"]["partial_rotary_factor"] + 1) // 2
    keys["rope_parameters"] |= dict(mrope_section=[count - 2 * (count // 3), count // 3, count // 3], mrope_interleaved=True)
    return outer("Qwen3_5", keys, rng)


def qwen3_5_moe(rng):
    keys = qwen_hybrid(rng)
    count = int(keys["head_dim"] * keys["rope_parameters"]["partial_rotary_factor"] + 1) // 2
    keys["rope_parameters"] |= dict(mrope_section=[count - 2 * (count // 3), count // 3, count // 3], mrope_interleaved=True)
    return outer("Qwen3_5Moe", qwen_experts(rng, keys), rng)


def mamba2(rng, hidden):
    """mamba_* of a hybrid whose inner width is mamba_expand times the hidden size."""
    expand = some(rng, 1, 2, 3)
    heads = some(rng, *[n for n in (2, 3, 4, 6, 8) if expand * hidden % n == 0])
    groups = some(rng, *[n for n in range(1, heads + 1) if heads % n == 0])
    keys = dict(mamba_n_heads=heads, mamba_n_groups=groups, mamba_expand=expand, mamba_d_state=some(rng, 8, 16, 10), mamba_d_conv=some(rng, 2, 3, 4),
                mamba_chunk_size=some(rng, 8, 16, 256), mamba_conv_bias=some(rng, True, False), mamba_proj_bias=some(rng, True, False),
                mamba_d_head=some(rng, "auto", expand * hidden // heads))
    return keys | some(rng, {}, {}, {"time_step_limit": (0.1, 0.8)})


def granite(rng):
    keys = common(rng)
    keys |= mamba2(rng, keys["hidden_size"]) | dict(layer_types=kinds(rng, keys["num_hidden_layers"], "mamba", "attention"))
    keys |= dict(shared_intermediate_size=some(rng, 24, 40), attention_bias=some(rng, True, False), embedding_multiplier=some(rng, 1.0, 2.5),
                 residual_multiplier=some(rng, 1.0, 0.6, 0.22), attention_multiplier=some(rng, 0.3, 1.0, 0.1), logits_scaling=some(rng, 1.0, 1.5),
                 position_embedding_type=some(rng, None, "rope"), rope_parameters=rope(rng, width(keys)))
    experts = some(rng, 0, 3, 5)
    return "GraniteMoeHybrid", keys | dict(num_local_experts=experts, num_experts_per_tok=rng.randint(1, experts) if experts else 0)


def bamba(rng):
    keys = common(rng)
    keys |= mamba2(rng, keys["hidden_size"])
    layers = keys["num_hidden_layers"]
    keys |= dict(attn_layer_indices=rng.sample(range(layers), rng.randint(1, layers - 1)), attention_bias=some(rng, True, False),
                 mlp_bias=some(rng, True, False))
    while True:
        part = some(rng, 0.5, 1.0)
        keys["rope_parameters"] = rope(rng, width(keys), part)
        if int(width(keys) * part) % 2 == 0:
            return "Bamba", keys


def falcon_h1(rng):
    keys = head_dim(rng, common(rng))
    keys |= mamba2(rng, keys["hidden_size"])
    keys["mamba_d_ssm"] = some(rng, None, keys["hidden_size"] * keys["mamba_expand"])
    number = lambda: round(rng.uniform(0.4, 1.6), 3)
    keys |= dict(mamba_rms_norm=some(rng, True, False), mamba_norm_before_gate=some(rng, True, False), projectors_bias=some(rng, True, False),
                 attention_bias=some(rng, True, False), mlp_bias=some(rng, True, False), rope_parameters=rope(rng, width(keys)))
    for key in ("lm_head", "embedding", "key", "attention_out", "attention_in", "ssm_in", "ssm_out"):
        keys[f"{key}_multiplier"] = number()
    return "FalconH1", keys | dict(mlp_multipliers=some(rng, None, [number(), number()]), ssm_multipliers=some(rng, None, [number() for _ in range(5)]))


def nemotron_h(rng):
    keys = common(rng)
    del keys["num_hidden_layers"]
    heads = some(rng, 2, 4, 6)
    experts, groups = some(rng, (4, 1), (8, 4), (6, 2), (9, 3))
    chosen_groups = rng.randint(1, groups)
    keys |= dict(layers_block_type=kinds(rng, some(rng, 4, 5), "mamba", "attention", "mlp", "moe"), head_dim=some(rng, 8, 14), mamba_num_heads=heads,
                 mamba_head_dim=some(rng, 8, 12), n_groups=some(rng, 1, 2, heads), ssm_state_size=some(rng, 8, 10), conv_kernel=some(rng, 2, 3, 4),
                 time_step_min=some(rng, 0.001, 0.3), mlp_hidden_act=some(rng, "relu2", "silu", "gelu", "relu"), mlp_bias=some(rng, True, False),
                 use_bias=some(rng, True, False), use_conv_bias=some(rng, True, False), n_routed_experts=experts, n_group=groups,
                 topk_group=chosen_groups, num_experts_per_tok=rng.randint(1, experts // groups * chosen_groups), moe_intermediate_size=some(rng, 8, 11),
                 moe_shared_expert_intermediate_size=some(rng, 12, 9), moe_latent_size=some(rng, None, 12), routed_scaling_factor=some(rng, 1.0, 1.7),
                 norm_topk_prob=some(rng, True, False), layer_norm_epsilon=some(rng, 1e-5, 1e-6), chunk_size=some(rng, 8, 128))
    return "NemotronH", keys


def olmo_hybrid(rng):
    keys = common(rng) | delta(rng) | dict(attention_bias=some(rng, True, False), linear_allow_neg_eigval=some(rng, True, False))
    keys["num_hidden_layers"] = max(2, keys["num_hidden_layers"])
    keys["layer_types"] = kinds(rng, keys["num_hidden_layers"], "linear_attention", "full_attention")
    return "OlmoHybrid", keys | dict(rope_parameters=some(rng, dict(rope_theta=None, rope_type="default"), rope(rng, width(keys))))


def jamba(rng):
    keys = common(rng)
    period, expert_period = rng.randint(2, 3), rng.randint(1, 2)
    experts = some(rng, 1, 3, 4)
    return "Jamba", keys | dict(attn_layer_period=period, attn_layer_offset=rng.randrange(period), expert_layer_period=expert_period,
                                expert_layer_offset=rng.randrange(expert_period), num_experts=experts, num_experts_per_tok=rng.randint(1, experts),
                                mamba_d_state=some(rng, 4, 8, 16), mamba_d_conv=some(rng, 2, 3, 4), mamba_expand=some(rng, 1, 2, 3),
                                mamba_dt_rank=some(rng, "auto", 3, 5), mamba_conv_bias=some(rng, True, False), mamba_proj_bias=some(rng, True, False))


def minimax(rng):
    keys = decoder(rng)
    keys["layer_types"] = kinds(rng, keys["num_hidden_layers"], "linear_attention", "full_attention")
    number, experts = lambda: round(rng.uniform(0.5, 1.5), 2), some(rng, 2, 3, 5)
    for block in ("full_attn", "linear_attn", "mlp"):
        keys |= {f"{block}_alpha_factor": number(), f"{block}_beta_factor": number()}
    return "MiniMax", keys | dict(block_size=some(rng, 7, 16, 256), num_local_experts=experts, num_experts_per_tok=rng.randint(1, experts),
                                  sliding_window=some(rng, None, 23))


def lfm2(rng):
    keys = common(rng)
    keys["layer_types"] = kinds(rng, keys["num_hidden_layers"], "conv", "full_attention")
    return "Lfm2", keys | dict(conv_bias=some(rng, True, False), conv_L_cache=some(rng, 2, 3, 4), block_multiple_of=some(rng, 8, 12),
                               block_ffn_dim_multiplier=some(rng, 1.0, 1.3), block_auto_adjust_ff_dim=some(rng, True, False),
                               norm_eps=some(rng, 1e-5, 1e-6), rope_parameters=rope(rng, width(keys)))


def lfm2_moe(rng):
    keys = common(rng)
    keys["layer_types"] = kinds(rng, keys["num_hidden_layers"], "conv", "full_attention")
    experts = some(rng, 3, 5, 8)
    return "Lfm2Moe", keys | dict(conv_bias=some(rng, True, False), conv_L_cache=some(rng, 2, 3, 4), num_dense_layers=some(rng, 0, 1), num_experts=experts,
                                  num_experts_per_tok=rng.randint(1, experts), moe_intermediate_size=some(rng, 8, 12), use_expert_bias=some(rng, True, False),
                                  norm_topk_prob=some(rng, True, False), routed_scaling_factor=some(rng, 1.0, 1.6), rope_parameters=rope(rng, width(keys)))


def zamba2(rng):
    keys = common(rng)
    heads = some(rng, *[n for n in (1, 2, 3, 4, 6) if 2 * keys["hidden_size"] % n == 0])
    layers = some(rng, 2, 4, 5)
    keys |= dict(num_hidden_layers=layers, layers_block_type=kinds(rng, layers, "mamba", "hybrid"), n_mamba_heads=heads,
                 mamba_ngroups=some(rng, *[n for n in range(1, heads + 1) if heads % n == 0]), mamba_d_state=some(rng, 8, 10), mamba_d_conv=some(rng, 2, 3, 4),
                 num_mem_blocks=some(rng, 1, 2), adapter_rank=some(rng, 3, 4), time_step_min=some(rng, 0.001, 0.3), add_bias_linear=some(rng, True, False),
                 use_shared_attention_adapter=some(rng, True, False), use_mem_rope=some(rng, True, False), chunk_size=some(rng, 8, 256),
                 hidden_act=some(rng, "gelu", "gelu_pytorch_tanh", "silu"))
    if keys["use_shared_attention_adapter"]:
        keys["num_key_value_heads"] = keys["num_attention_heads"]
    return "Zamba2", keys | dict(rope_parameters=rope(rng, 2 * keys["hidden_size"] // keys["num_attention_heads"]))


def kimi_linear(rng):
    keys = common(rng)
    keys["num_key_value_heads"] = keys["num_attention_heads"]
    layers = keys["num_hidden_layers"]
    experts, groups = some(rng, (4, 1), (8, 4), (6, 2), (9, 3))
    chosen_groups = rng.randint(1, groups)
    return "KimiLinear", keys | dict(
        layer_types=kinds(rng, layers, "linear_attention", "full_attention"), mlp_layer_types=kinds(rng, layers, "dense", "sparse"),
        linear_num_heads=some(rng, 1, 2, 3), linear_head_dim=some(rng, 8, 12), linear_conv_kernel_dim=some(rng, 2, 3, 4), kv_lora_rank=some(rng, 12, 9),
        q_lora_rank=some(rng, None, 9), qk_nope_head_dim=some(rng, 7, 8), qk_rope_head_dim=some(rng, 4, 6), v_head_dim=some(rng, 6, 12),
        moe_intermediate_size=some(rng, 8, 11), num_local_experts=experts, num_experts_per_tok=rng.randint(1, experts // groups * chosen_groups),
        n_group=groups, topk_group=chosen_groups, n_shared_experts=some(rng, 1, 2), routed_scaling_factor=some(rng, 1.0, 1.7),
        norm_topk_prob=some(rng, True, False), attention_bias=some(rng, True, False))


def glm5_next(rng):
    keys = common(rng)
    keys["num_key_value_heads"] = keys["num_attention_heads"]
    layers = keys["num_hidden_layers"]
    types = kinds(rng, layers, "linear_attention", "indexed_attention")
    # transformers hands a choice to the very next layer alone.
    shared = ["full"] * layers
    for i in range(1, layers):
        if types[i - 1:i + 1] == ["indexed_attention"] * 2 and shared[i - 1] == "full":
            shared[i] = some(rng, "full", "shared")
    experts, groups = some(rng, (4, 1), (8, 4), (6, 2), (9, 3))
    chosen_groups = rng.randint(1, groups)
    pool = some(rng, 1, 2, 4, 8, 16)
    keys |= dict(
        layer_types=types, indexer_types=shared, mlp_layer_types=kinds(rng, layers, "dense", "sparse"), linear_num_heads=some(rng, 1, 2, 3),
        linear_head_dim=some(rng, 8, 12), linear_conv_kernel_dim=some(rng, 2, 3, 4), linear_lower_bound=some(rng, -5.0, -2.0, None),
        kv_lora_rank=some(rng, 12, 9), q_lora_rank=some(rng, 6, 9), qk_nope_head_dim=some(rng, 7, 8), v_head_dim=some(rng, 6, 12),
        moe_intermediate_size=some(rng, 8, 11), n_routed_experts=experts, num_experts_per_tok=rng.randint(1, experts // groups * chosen_groups),
        n_group=groups, topk_group=chosen_groups, n_shared_experts=some(rng, 1, 2), routed_scaling_factor=some(rng, 1.0, 2.5),
        norm_topk_prob=some(rng, True, False), attention_bias=some(rng, True, False), swiglu_limit=some(rng, 0.5, 2.0, 10.0), hc_mult=some(rng, 1, 2, 4, 5),
        hc_sinkhorn_iters=some(rng, 1, 4, 20), hc_eps=some(rng, 1e-6, 1e-3), index_kpool=pool, index_topk=pool * rng.randint(1, max(1, 48 // pool)),
        index_n_heads=some(rng, 8, 16), index_head_dim=some(rng, 8, 16, 20), rms_norm_eps=some(rng, 1e-5, 1e-6))
    return "Glm5NextForConditionalGeneration", lambda: hf.published_glm(keys, tie_word_embeddings=keys["tie_word_embeddings"])


def qwen4_exp(rng):
    keys = qwen_experts(rng, qwen_hybrid(rng))
    keys["layer_types"] = ["indexed_attention" if kind == "full_attention" else kind for kind in keys["layer_types"]]
    rotated = int(keys["head_dim"] * keys["rope_parameters"]["partial_rotary_factor"] + 1) // 2
    keys["rope_parameters"] |= dict(mrope_section=[rotated - 2 * (rotated // 3), rotated // 3, rotated // 3], mrope_interleaved=True)
    pool = some(rng, 1, 2, 4, 8, 16)
    return outer("Qwen4Exp", keys | dict(
        hc_count=some(rng, 2, 4, 5), hc_lowrank=some(rng, 5, 16), indexer_n_heads=some(rng, 6, 8), indexer_kv_heads=1,
        indexer_head_dim=2 * rotated + some(rng, 0, 5), indexer_compress_ratio=pool, indexer_budget=pool * rng.randint(1, max(1, 48 // pool)),
        ple_layer_ids=[i + 1 for i, kind in enumerate(keys["layer_types"]) if kind == "linear_attention" and rng.random() < 0.5],
        ngram_size=some(rng, 2, 3), heads_per_ngram=some(rng, 1, 3), ngram_vocab_size_base=some(rng, 20, 57), make_ngram_vocab_size_divisible_by=8,
        split_ngram_parts=some(rng, 1, 4), ple_embed_dim=some(rng, 12, 24), ple_conv_kernel_size=some(rng, 2, 4), seed=some(rng, 1234, 7),
        output_gate_type=some(rng, None, "sigmoid", "silu"), norm_topk_prob=some(rng, True, False)), rng)


def recurrent_gemma(rng):
    heads = some(rng, 2, 4)
    keys = common(rng, heads)
    keys["hidden_size"] = heads * some(rng, 8, 16)
    return "RecurrentGemma", keys | dict(block_types=kinds(rng, some(rng, 2, 3), "recurrent", "attention"), lru_width=some(rng, None, heads * 12),
                                         attention_window_size=some(rng, 19, 64), conv1d_width=some(rng, 2, 3, 4), logits_soft_cap=some(rng, 3.0, 30.0),
                                         attention_bias=some(rng, True, False),
                                         rope_parameters=dict(hf.ROPE, partial_rotary_factor=0.5))


FAMILIES = [llama, mistral, qwen2, qwen3, qwen3_next, qwen3_5, qwen3_5_moe, granite, bamba, falcon_h1, nemotron_h, olmo_hybrid, jamba, minimax, lfm2,
            lfm2_moe, zamba2, kimi_linear, recurrent_gemma, glm5_next, qwen4_exp]


def drop_defaults(folder, model, rng):
    """Leaves out of config.json what transformers takes where it is absent, each key with an even chance."""
    path = folder + "/config.json"
    config = json.load(open(path))
    defaults = type(model.config)().to_dict()
    kept = {k: v for k, v in config.items() if k == "model_type" or k not in defaults or v != defaults[k] or rng.random() < 0.5}
    json.dump(kept, open(path, "w"), indent=1)


def make_one(folder, family, number, seed):
    rng = random.Random(f"{seed} {family.__name__} {number}")
    kind, keys = family(rng)
    name = f"random_{family.__name__}_{number}"
    dtype = torch.float32 if family is minimax else some(rng, torch.bfloat16, torch.bfloat16, torch.float16, torch.float32)
    shards = some(rng, "1GB", "30KB")
    for attempt in range(TRIES):
        made = hf.make_in(f"{folder}/{name}", kind, keys, dtype, shards, 1000 * attempt + 7 * number + seed)
        if made is None:
            continue
        model, rounding, line = made
        if not callable(keys):
            drop_defaults(f"{folder}/{name}", model, rng)
        json.dump({"float32_from_float64": rounding}, open(f"{folder}/{name}/transformers.json", "w"))
        return print(f"{name}: {line}, transformers' float32 {rounding:.1e}", flush=True)
    hf.shutil.rmtree(f"{folder}/{name}")
    print(f"{name}: no seed has clear winners", flush=True)


def main(folder, count, seed=1, *families):
    hf.check_packages()
    os.makedirs(folder, exist_ok=True)
    for number in range(int(count)):
        for family in FAMILIES:
            if families and family.__name__ not in families:
                continue
            try:
                make_one(os.path.abspath(folder), family, number, int(seed))
            except Exception as error:  # what transformers itself refuses or cannot compute
                hf.shutil.rmtree(f"{folder}/random_{family.__name__}_{number}", ignore_errors=True)
                print(f"random_{family.__name__}_{number}: transformers: {type(error).__name__}: {str(error)[:200]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
