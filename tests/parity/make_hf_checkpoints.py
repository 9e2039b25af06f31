# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Makes the fixtures upstream_hf_* of decoders and hybrids: small random checkpoints that transformers writes and computes itself.

    python3 -m venv build/hf && build/hf/bin/pip install torch transformers==5.17.0
    build/hf/bin/python tests/parity/make_hf_checkpoints.py [NAME ...]

(The fixtures from QWEN3_5 on, and those of LFM2 and Granite: transformers==5.23.0.)

Nothing else in this repository needs torch or transformers: the outputs are in git, cut by trim_fixture.py. make_fixtures.py describes
the form of a fixture. The logits are those of transformers' plain PyTorch code (eager attention and experts; without the packages kernels, flash-linear-attention,
causal-conv1d and mamba-ssm, whose presence would change which code runs), run in float64: in float32 its two ways through Gated DeltaNet
differ by 2e-4. Weights are rounded to the stored type before anything is computed. A seed is taken when every greedy step has a clear
winner, every router a clear choice, and transformers' own float32 is within half of the tests' tolerance.
"""
import contextlib
import glob
import importlib.util
import json
import os
import shutil
import sys

import numpy as np
import safetensors.numpy
import torch
import transformers

import predictors
import safetensors_file

TOKENS, PROMPT, GREEDY = 70, 21, 12
SMALLEST_MARGIN = 5e-3
SMALLEST_ROUTER_MARGIN = 1e-3
SMALLEST_INDEX_MARGIN = 1e-4  # of the scores of an indexer, which many tokens compare
LARGEST_ROUNDING = 1e-4
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")

SIZES = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
             bos_token_id=1, eos_token_id=2, pad_token_id=None, max_position_embeddings=512)
ROPE = dict(rope_theta=10000.0, rope_type="default")
LLAMA3 = dict(rope_theta=500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
QWEN3_NEXT = dict(SIZES, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], num_attention_heads=2,
                  num_key_value_heads=1, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
                  linear_value_head_dim=8, rope_parameters=dict(ROPE, partial_rotary_factor=0.25))
QWEN3_NEXT_MOE = dict(QWEN3_NEXT, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24,
                      mlp_only_layers=[1])
GRANITE = dict(SIZES, num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], shared_intermediate_size=40, mamba_n_heads=4,
               mamba_d_head=16, mamba_d_state=16, mamba_n_groups=2, mamba_expand=2, mamba_d_conv=4, embedding_multiplier=2.0,
               residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=1.5, tie_word_embeddings=True, rope_parameters=ROPE)

LFM2 = dict(SIZES, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], rope_parameters=ROPE, block_multiple_of=8)

FIXTURES = {
    "lfm2": ("Lfm2", dict(LFM2, block_ffn_dim_multiplier=1.3)),
    "lfm2_bias": ("Lfm2", dict(LFM2, num_hidden_layers=2, layer_types=None, full_attn_idxs=[1], conv_bias=True, conv_L_cache=4,
                               block_auto_adjust_ff_dim=False, tie_embedding=False, rope_parameters=None, num_key_value_heads=1)),
    "llama_gqa": ("Llama", dict(SIZES, rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama_bias": ("Llama", dict(SIZES, rope_parameters=ROPE, head_dim=16, attention_bias=True, mlp_bias=True)),
    "mistral_window": ("Mistral", dict(SIZES, rope_parameters=ROPE, sliding_window=19)),
    "qwen2": ("Qwen2", dict(SIZES, rope_parameters=ROPE, use_sliding_window=True, sliding_window=33, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(SIZES, rope_parameters=ROPE, head_dim=16, tie_word_embeddings=True)),
    "qwen3_next": ("Qwen3Next", QWEN3_NEXT_MOE),
    "qwen3_next_all_weights": ("Qwen3Next", dict(QWEN3_NEXT_MOE, mlp_only_layers=[], decoder_sparse_step=2, norm_topk_prob=False)),
    "qwen3_next_dense": ("Qwen3Next", dict(QWEN3_NEXT, num_experts=0)),
    "granite_dense": ("GraniteMoeHybrid", dict(GRANITE, num_local_experts=0, num_experts_per_tok=0)),
    "granite_moe": ("GraniteMoeHybrid", dict(GRANITE, num_local_experts=5, num_experts_per_tok=2, intermediate_size=16,
                                             position_embedding_type="rope")),
}
STORED = {"llama_bias": torch.float32}  # others: bfloat16


# From here on with a vocabulary that needs no cutting.
SMALL = dict(SIZES, vocab_size=60)
QWEN3_5 = dict(SMALL, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], num_attention_heads=3,
               num_key_value_heads=1, head_dim=16, linear_num_key_heads=1, linear_num_value_heads=3, linear_key_head_dim=16,
               linear_value_head_dim=8,
               rope_parameters=dict(ROPE, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True))
QWEN3_5_MOE = dict({k: v for k, v in QWEN3_5.items() if k != "intermediate_size"}, num_experts=5, num_experts_per_tok=2,
                   moe_intermediate_size=8, shared_expert_intermediate_size=12)
QWEN3_5_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=2, temporal_patch_size=1, spatial_merge_size=1,
                      out_hidden_size=32, num_position_embeddings=4)


def published_qwen(config, text_keys, vision=QWEN3_5_VISION, **outer):
    text = getattr(transformers, config.replace("Config", "TextConfig"))(**text_keys)
    vision_config = getattr(transformers.models.__dict__[text.model_type.removesuffix("_text")], config.replace("Config", "VisionConfig"))
    return getattr(transformers, config)(text_config=text.to_dict(), vision_config=vision_config(**vision).to_dict(), **outer)


# Config and model by hand: (the model's class, a function that makes its config).
FIXTURES |= {
    "qwen3_5_text": ("Qwen3_5ForCausalLM", lambda: transformers.Qwen3_5TextConfig(**dict(QWEN3_5, attention_bias=True))),
    "qwen3_5": ("Qwen3_5ForConditionalGeneration",
                lambda: published_qwen("Qwen3_5Config", dict(QWEN3_5, tie_word_embeddings=True), tie_word_embeddings=True)),
    "qwen3_5_moe": ("Qwen3_5MoeForConditionalGeneration", lambda: published_qwen("Qwen3_5MoeConfig", QWEN3_5_MOE)),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM", lambda: transformers.Qwen3_5MoeTextConfig(**QWEN3_5_MOE)),
}
MAMBA2 = dict(mamba_n_heads=3, mamba_d_head=16, mamba_n_groups=3, mamba_d_state=8, mamba_d_conv=3, mamba_expand=2)
BAMBA = dict(SMALL, hidden_size=24, num_hidden_layers=3, attn_layer_indices=[1], num_attention_heads=3, num_key_value_heads=1, **MAMBA2)
FALCON_H1 = dict(SMALL, **dict(MAMBA2, mamba_n_heads=4, mamba_d_head="auto", mamba_n_groups=2, mamba_d_ssm=48), head_dim=16,
                 embedding_multiplier=3.7, lm_head_multiplier=0.6, mlp_multipliers=[0.8, 0.7], key_multiplier=0.5,
                 attention_out_multiplier=0.9, attention_in_multiplier=1.1, ssm_multipliers=[0.9, 1.2, 0.8, 1.3, 0.7],
                 ssm_in_multiplier=1.2, ssm_out_multiplier=0.6)
NEMOTRON = dict({k: v for k, v in SMALL.items() if k != "num_hidden_layers"}, layers_block_type=["mlp", "mamba", "moe", "attention", "moe"],
                head_dim=16, mamba_num_heads=4, mamba_head_dim=12, n_groups=2, ssm_state_size=8, conv_kernel=3, time_step_min=0.4,
                n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=8,
                moe_shared_expert_intermediate_size=12, routed_scaling_factor=1.7)
OLMO = dict(SMALL, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
            linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=3)
JAMBA = dict(SMALL, num_hidden_layers=3, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=0, num_experts=3,
             num_experts_per_tok=2, mamba_d_state=8, mamba_d_conv=3, mamba_dt_rank=3, intermediate_size=16)
MINIMAX = dict(SMALL, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], head_dim=12, block_size=7,
               num_local_experts=3, num_experts_per_tok=2, intermediate_size=12, full_attn_alpha_factor=1.3, full_attn_beta_factor=0.8,
               linear_attn_alpha_factor=0.9, linear_attn_beta_factor=1.2, mlp_alpha_factor=1.1, mlp_beta_factor=0.7, sliding_window=23)
ZAMBA2 = dict(SMALL, num_hidden_layers=5, layers_block_type=["linear_attention", "hybrid", "hybrid", "linear_attention", "hybrid"], hidden_size=24,
              num_key_value_heads=4, n_mamba_heads=4, mamba_d_state=8, mamba_d_conv=3, mamba_ngroups=1, num_mem_blocks=2, adapter_rank=3,
              time_step_min=0.3, intermediate_size=20)
FIXTURES |= {
    "zamba2": ("Zamba2", ZAMBA2),
    "zamba2_adapters": ("Zamba2", dict(ZAMBA2, use_shared_attention_adapter=True, use_mem_rope=True, add_bias_linear=True, num_mem_blocks=1,
                                       hidden_act="gelu_pytorch_tanh", num_hidden_layers=2,
                                       layers_block_type=["hybrid", "hybrid"])),
    "zamba2_untied": ("Zamba2", dict(ZAMBA2, tie_word_embeddings=False, num_mem_blocks=1, num_hidden_layers=2, hidden_size=16,
                                     layers_block_type=["hybrid", "hybrid"], num_attention_heads=2, num_key_value_heads=1)),
    "bamba": ("Bamba", dict(BAMBA, time_step_limit=(0.1, 0.9))),
    "bamba_bias": ("Bamba", dict(BAMBA, mamba_conv_bias=False, mamba_proj_bias=True, attention_bias=True, mlp_bias=True,
                                 tie_word_embeddings=True, rope_parameters=dict(LLAMA3, partial_rotary_factor=1.0))),
    "falcon_h1": ("FalconH1", FALCON_H1),
    "falcon_h1_norm": ("FalconH1", dict(FALCON_H1, mamba_rms_norm=True, mamba_norm_before_gate=False, projectors_bias=True, mamba_proj_bias=True,
                                        attention_bias=True, mlp_bias=True, tie_word_embeddings=True, mamba_conv_bias=False,
                                        mamba_d_ssm=None, mamba_expand=2)),
    "falcon_h1_norm_first": ("FalconH1", dict(FALCON_H1, mamba_rms_norm=True, num_hidden_layers=1)),
    "nemotron_h": ("NemotronH", NEMOTRON),
    "nemotron_h_latent": ("NemotronH", dict(NEMOTRON, moe_latent_size=16, mlp_bias=True, use_bias=True, use_conv_bias=False, n_group=1, topk_group=1,
                                            norm_topk_prob=False, mlp_hidden_act="silu", layers_block_type=["linear_attention", "moe", "mlp"])),
    "olmo_hybrid": ("OlmoHybrid", dict(OLMO, rope_parameters=dict(rope_theta=None, rope_type="default"))),
    "olmo_hybrid_rope": ("OlmoHybrid", dict(OLMO, attention_bias=True, linear_allow_neg_eigval=False, tie_word_embeddings=True,
                                            linear_num_key_heads=4)),
    "jamba": ("Jamba", JAMBA),
    "jamba_bias": ("Jamba", dict(JAMBA, mamba_proj_bias=True, mamba_conv_bias=False, num_experts=1, num_experts_per_tok=1,
                                 tie_word_embeddings=True)),
    "minimax": ("MiniMax", MINIMAX),
    "minimax_one_layer": ("MiniMax", dict(MINIMAX, num_hidden_layers=1, layer_types=["linear_attention"], head_dim=None, sliding_window=None,
                                          tie_word_embeddings=True)),
}
# MiniMax's file holds decays, which bf16 would round.
STORED |= {"qwen3_5_text": torch.float32, "minimax": torch.float32, "minimax_one_layer": torch.float32, "bamba_bias": torch.float16}
SHARDED = {"qwen3_5": "20KB", "qwen3_5_predictor": "20KB", "qwen3_next_predictor": "20KB", "nemotron_h_predictor": "20KB"}
# Tensors that published files have beside what transformers writes.
EXTRA = {"qwen3_5": {"mtp.fc.weight": (32, 64)}}


LFM2_MOE = dict(SMALL, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], num_dense_layers=1, num_experts=5, num_experts_per_tok=2,
                moe_intermediate_size=12, routed_scaling_factor=1.6, rope_parameters=ROPE)
KIMI = dict(SMALL, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], num_attention_heads=3, num_key_value_heads=3,
            mlp_layer_types=["dense", "sparse", "sparse"], linear_num_heads=3, linear_head_dim=8, linear_conv_kernel_dim=3, kv_lora_rank=12,
            qk_nope_head_dim=7, qk_rope_head_dim=4, v_head_dim=6, moe_intermediate_size=8, num_local_experts=6, num_experts_per_tok=2,
            n_group=3, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.7)
RECURRENT_GEMMA = dict(SMALL, num_hidden_layers=3, block_types=["recurrent", "attention"], lru_width=40, attention_window_size=19, logits_soft_cap=3.0)
FIXTURES |= {
    "lfm2_moe": ("Lfm2Moe", LFM2_MOE),
    "lfm2_moe_all_weights": ("Lfm2Moe", dict(LFM2_MOE, num_hidden_layers=2, layer_types=["full_attention", "conv"], num_dense_layers=0, use_expert_bias=False,
                                             norm_topk_prob=False, conv_bias=True, tie_word_embeddings=False)),
    "kimi_linear": ("KimiLinear", KIMI),
    "kimi_linear_low_rank": ("KimiLinear", dict(KIMI, num_hidden_layers=2, layer_types=["full_attention", "linear_attention"], q_lora_rank=9,
                                                attention_bias=True, mlp_layer_types=["sparse", "dense"], n_group=1, topk_group=1,
                                                norm_topk_prob=False, tie_word_embeddings=True)),
    "recurrent_gemma": ("RecurrentGemma", RECURRENT_GEMMA),
    "recurrent_gemma_bias": ("RecurrentGemma", dict(RECURRENT_GEMMA, num_hidden_layers=2, attention_bias=True, tie_word_embeddings=False, lru_width=None,
                                                    conv1d_width=3, num_key_value_heads=1, block_types=["attention", "recurrent"])),
}

YARN = dict(rope_theta=10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LONGROPE = dict(rope_theta=10000.0, rope_type="longrope", factor=8.0, original_max_position_embeddings=128, short_factor=[1.0, 1.4, 2.1, 3.7],
                long_factor=[2.0, 5.0, 9.0, 20.0])
FIXTURES |= {
    "llama_yarn": ("Llama", dict(SMALL, num_hidden_layers=1, rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=1.1, beta_fast=4, truncate=False))),
    "llama_longrope": ("Llama", dict(SMALL, num_hidden_layers=1, rope_parameters=LONGROPE)),
    "llama_dynamic": ("Llama", dict(SMALL, num_hidden_layers=1, max_position_embeddings=128, rope_parameters=dict(ROPE, rope_type="dynamic", factor=3.0))),
    "qwen3_next_yarn": ("Qwen3Next", dict(QWEN3_NEXT, vocab_size=60, num_experts=0, num_hidden_layers=2, layer_types=["full_attention", "linear_attention"],
                                          rope_parameters=dict(YARN, partial_rotary_factor=0.5))),
    # Three of twelve dimensions are rotated, and a fourth with them.
    "qwen3_next_odd_rope": ("Qwen3Next", dict(QWEN3_NEXT, vocab_size=60, num_experts=0, num_hidden_layers=1, layer_types=["full_attention"], head_dim=12,
                                              rope_parameters=dict(ROPE, partial_rotary_factor=0.25))),
}


# GLM-5.3-Flash: the model is a part of one that sees.
GLM5 = dict(SMALL, num_hidden_layers=4, layer_types=["linear_attention", "indexed_attention", "indexed_attention", "full_attention"], num_attention_heads=3,
            num_key_value_heads=3, indexer_types=["full", "full", "shared", "full"], mlp_layer_types=["dense", "sparse", "dense", "sparse"],
            q_lora_rank=9, kv_lora_rank=12, qk_nope_head_dim=7, v_head_dim=6, linear_num_heads=3, linear_head_dim=8, linear_conv_kernel_dim=3,
            n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2, moe_intermediate_size=8, routed_scaling_factor=1.7, swiglu_limit=0.7,
            index_topk=16, index_kpool=4, index_n_heads=8, index_head_dim=10, hc_sinkhorn_iters=5)
GLM5_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=2, temporal_patch_size=1, spatial_merge_size=1,
                   out_hidden_size=32, projection_intermediate_size=8)


def published_glm(text_keys, **outer):
    vision = dict(GLM5_VISION, out_hidden_size=text_keys["hidden_size"])
    parts = transformers.models.glm5_next
    return transformers.Glm5NextConfig(text_config=parts.Glm5NextTextConfig(**text_keys).to_dict(),
                                       vision_config=parts.Glm5NextVisionConfig(**vision).to_dict(), **outer)


FIXTURES |= {
    "glm5_next": ("Glm5NextForConditionalGeneration", lambda: published_glm(GLM5)),
    "glm5_next_bias": ("Glm5NextForConditionalGeneration",
                       lambda: published_glm(dict(GLM5, num_hidden_layers=2, layer_types=["full_attention", "linear_attention"], indexer_types=None,
                                                  mlp_layer_types=["sparse", "dense"], attention_bias=True, n_group=1, topk_group=1, hc_mult=3,
                                                  norm_topk_prob=False, linear_lower_bound=None, index_kpool=16, index_topk=32, hc_eps=1e-3,
                                                  tie_word_embeddings=True), tie_word_embeddings=True)),
}
QWEN4 = dict(QWEN3_5_MOE, layer_types=["linear_attention", "indexed_attention", "linear_attention"], hc_count=3, hc_lowrank=7, indexer_n_heads=6,
             indexer_kv_heads=1, indexer_head_dim=12, indexer_budget=16, indexer_compress_ratio=4, output_gate_type="sigmoid", ngram_vocab_size_base=30, heads_per_ngram=2,
             make_ngram_vocab_size_divisible_by=8, split_ngram_parts=4, ple_embed_dim=20)
FIXTURES |= {
    "qwen4_exp": ("Qwen4ExpForConditionalGeneration", lambda: published_qwen("Qwen4ExpConfig", dict(QWEN4, ple_layer_ids=[3, 1]))),
    "qwen4_exp_text": ("Qwen4ExpForCausalLM",
                       lambda: transformers.Qwen4ExpTextConfig(**dict(
                           QWEN4, num_hidden_layers=2, layer_types=["full_attention", "linear_attention"], output_gate_type=None, hc_count=4,
                           indexer_head_dim=8, indexer_budget=32, indexer_compress_ratio=16, norm_topk_prob=False, tie_word_embeddings=True))),
}
SHARDED |= {"glm5_next": "40KB"}
# The layer that predicts a further token.
EXTRA |= {"glm5_next": {"model.language_model.layers.4.eh_proj.weight": (32, 64)}}


def check_packages():
    for package in ("kernels", "fla", "causal_conv1d", "mamba_ssm"):
        if importlib.util.find_spec(package) is not None:
            sys.exit(f"the package {package} is installed: transformers would use it; make a venv without it")


def make_model(kind, keys):
    if callable(keys):
        return getattr(transformers, kind)(keys())
    return getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**keys))


def rounding(model, folder, expected):
    """How far transformers' float32 is from its float64, in log-probabilities."""
    stored = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    with torch.no_grad():
        logits = stored(input_ids=torch.from_numpy(expected["input_ids"]), use_cache=False).logits
    exact = torch.from_numpy(expected["logits"])
    return (logits.double().log_softmax(-1) - exact.log_softmax(-1)).abs().max().item()


def reloaded(model, folder):
    """What is stored, widened. Widening the model itself would keep rounded rotary frequencies, which are not weights."""
    stored = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    return stored.eval().double()


@contextlib.contextmanager
def float64_throughout():
    """The library's casts to float32 (norms, softmax, recurrences) do nothing."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept


ONE_PLUS = ("Qwen3NextRMSNorm", "Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm", "RecurrentGemmaRMSNorm", "Qwen4ExpTextRMSNorm")


def randomize(model, generator):
    """Weights of sensible scale: matrices keep the size of what passes through them, so that logits are far from flat."""
    normal = lambda x: torch.randn(x.shape, generator=generator)
    for name, module in model.named_modules():
        for own, x in module.named_parameters(recurse=False):
            if own == "A_log" and x.ndim == 2:  # Mamba's
                value = torch.log(0.5 + 7 * torch.rand(x.shape, generator=generator))
            elif x.ndim >= 2:
                value = 1.2 * normal(x) / np.sqrt(x[0].numel() if own == "weight" else x.shape[-1])
            elif own == "A_log":
                value = torch.log(1 + 7 * torch.rand(x.shape, generator=generator))
            elif own == "weight":  # of a norm
                value = 0.2 * normal(x) + (0.0 if type(module).__name__ in ONE_PLUS else 1.0)
            elif own == "recurrent_param":
                value = 1.5 * normal(x) - 3
            elif own in ("D", "scale"):
                value = 1 + 0.2 * normal(x)
            else:  # biases; dt_bias makes the decays differ
                value = (1.0 if own == "dt_bias" else 0.2) * normal(x)
            x.data.copy_(value)
        if hasattr(module, "e_score_correction_bias"):
            module.e_score_correction_bias.copy_(0.3 * normal(module.e_score_correction_bias))
        if getattr(module, "use_expert_bias", False) and hasattr(module, "expert_bias"):
            module.expert_bias.copy_(0.3 * normal(module.expert_bias))


def smallest_gap(values, place):
    """The least distance between the numbers at places `place` and `place` + 1 of each sorted row; infinite, if a row ends before."""
    if values.shape[-1] <= place + 1:
        return np.inf
    ordered = values.sort(-1, descending=True).values
    return (ordered[..., place] - ordered[..., place + 1]).min().item()


def router_margin(router, logits, expert_bias=None):
    if expert_bias is not None:
        return smallest_gap(logits.sigmoid() + expert_bias, router.top_k - 1)
    if not hasattr(router, "e_score_correction_bias"):
        return smallest_gap(logits, router.top_k - 1)
    scores = logits.sigmoid() + router.e_score_correction_bias
    groups = scores.unflatten(-1, (router.num_group, -1))
    sums = groups.topk(2).values.sum(-1)
    margin = smallest_gap(sums, router.topk_group - 1)
    open_groups = torch.zeros_like(sums).scatter(-1, sums.topk(router.topk_group).indices, 1)[..., None] > 0
    scores = groups.where(open_groups, -9.0 + 0 * groups).flatten(-2)
    return min(margin, smallest_gap(scores, router.top_k - 1))


@contextlib.contextmanager
def watched_indexers(model, margins):
    """Appends how close indexers came to another choice, in units of the routers' margins."""
    inside, hooks, topk = [], [], torch.Tensor.topk

    def watched(scores, count, **keys):
        if inside:
            seen = scores.where(scores > torch.finfo(scores.dtype).min, -torch.inf)
            gaps = seen.sort(-1, descending=True).values.diff(dim=-1).neg()[..., count - 1:count]
            gaps = gaps[gaps.isfinite()]
            margins.extend((gaps * SMALLEST_ROUTER_MARGIN / SMALLEST_INDEX_MARGIN).flatten().tolist())
        return topk(scores, count, **keys)

    for module in model.modules():
        if type(module).__name__.endswith("Indexer"):
            hooks.append(module.register_forward_pre_hook(lambda *_: inside.append(True)))
            hooks.append(module.register_forward_hook(lambda *_: inside.clear()))
    torch.Tensor.topk = watched
    try:
        yield
    finally:
        torch.Tensor.topk = topk
        for hook in hooks:
            hook.remove()


def run(model, ids):
    """Logits [T, vocab], and how close any router or indexer came to another choice."""
    margins, hooks = [np.inf], []
    for module in model.modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            hook = lambda router, inputs, _: margins.append(router_margin(router, inputs[0] @ router.weight.T, *inputs[1:]))
            hooks.append(module.register_forward_hook(hook))
    with torch.no_grad(), float64_throughout(), watched_indexers(model, margins):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        assert logits.dtype == torch.float64
    for hook in hooks:
        hook.remove()
    return logits, min(margins)


def expect(model, generator):
    """What expected.safetensors holds, and the two margins."""
    ids = torch.randint(3, model.config.get_text_config().vocab_size, (TOKENS,), generator=generator).tolist()
    logits, router_margin = run(model, ids)
    continued, margins = ids[:PROMPT], []
    for _ in range(GREEDY):
        step, margin = run(model, continued)
        router_margin = min(router_margin, margin)
        margins.append(smallest_gap(step[-1:], 0))
        continued.append(int(step[-1].argmax()))
    expected = {"input_ids": np.array([ids]), "logits": logits[None].numpy(), "prompt_ids": np.array([ids[:PROMPT]]),
                "greedy_ids": np.array(continued[PROMPT:]), "greedy_margins": np.array(margins)}
    return expected, min(margins), router_margin


def add_tensors(folder, tensors):
    """A shard of its own."""
    if not tensors:
        return
    index = json.load(open(folder + "/model.safetensors.index.json"))
    shard = "model-extra.safetensors"
    index["weight_map"] |= {key: shard for key in tensors}
    json.dump(index, open(folder + "/model.safetensors.index.json", "w"), indent=1)
    safetensors_file.write(f"{folder}/{shard}", tensors, lambda _: "BF16")


# Fixtures with a head that predicts the token after the next.
PREDICTORS = {"qwen3_5_predictor": predictors.QwenPredictor, "qwen3_next_predictor": predictors.QwenPredictor,
              "nemotron_h_predictor": predictors.NemotronPredictor}
# transformers' MtpModel takes its norms' class from the last layer, which must be of attention.
TWO_LAYERS = dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
FIXTURES |= {
    "qwen3_5_predictor": ("Qwen3_5ForCausalLM", lambda: transformers.Qwen3_5TextConfig(**dict(QWEN3_5, **TWO_LAYERS))),
    "qwen3_next_predictor": ("Qwen3Next", dict(QWEN3_NEXT_MOE, vocab_size=60, mlp_only_layers=[], **TWO_LAYERS)),
    "nemotron_h_predictor": ("NemotronH", dict(NEMOTRON, layers_block_type=["mamba", "mlp"])),
}


def add_predictor(name, model, folder):
    """Tensors mtp.* in a shard of their own, keys in config.json, and predicted_logits beside the expected outputs."""
    exact = reloaded(model, folder)
    predictor = PREDICTORS[name](exact)
    randomize(predictor.module, torch.Generator().manual_seed(sum(name.encode())))
    predictor.module.to(torch.bfloat16)
    stored = {key: x.float().numpy() for key, x in predictor.tensors().items()}
    predictor.module.double()
    expected = safetensors.numpy.load_file(folder + "/expected.safetensors")
    ids = torch.from_numpy(expected["input_ids"]).long()
    with torch.no_grad(), float64_throughout():
        stream = exact(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states[-1]
        logits = exact.lm_head(predictor.streams(ids, stream))
    assert logits.dtype == torch.float64
    expected["predicted_logits"] = logits.numpy()
    safetensors_file.write(folder + "/expected.safetensors", expected, lambda n: "I32" if n.endswith("_ids") else "F32")
    add_tensors(folder, stored)
    config = json.load(open(folder + "/config.json"))
    json.dump(config | predictor.KEYS, open(folder + "/config.json", "w"), indent=1)


def make_in(folder, kind, keys, dtype, shards, seed):
    """A checkpoint with its expected outputs. Returns the model, how far its float32 is off, and a line that describes it; None, if not every
    winner is clear."""
    generator = torch.Generator().manual_seed(seed)
    model = make_model(kind, keys)
    randomize(model, generator)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, max_shard_size=shards)
    expected, margin, router_margin = expect(reloaded(model, folder), generator)
    if margin < SMALLEST_MARGIN or router_margin < SMALLEST_ROUTER_MARGIN:
        return None
    for path in glob.glob(folder + "/generation_config.json"):
        os.remove(path)
    safetensors_file.write(folder + "/expected.safetensors", expected,
                           lambda n: "F32" if n in ("logits", "greedy_margins") else "I32")
    return model, rounding(model, folder, expected), (f"greedy margin {margin:.4f}, router margin {router_margin:.4f}, "
                                                      f"logits' deviation {expected['logits'].std():.2f}")


def make(name, kind, keys):
    folder = f"{FOLDER}/upstream_hf_{name}"
    for seed in range(200):
        made = make_in(folder, kind, keys, STORED.get(name, torch.bfloat16), SHARDED.get(name, "1GB"), 1000 * seed + sum(name.encode()))
        if made is not None and made[1] < LARGEST_ROUNDING:
            break
    else:
        sys.exit(f"{name}: no seed has clear winners")
    add_tensors(folder, {key: np.zeros(shape) for key, shape in EXTRA.get(name, {}).items()})
    if name in PREDICTORS:
        add_predictor(name, made[0], folder)
    size = sum(os.path.getsize(path) for path in glob.glob(folder + "/*"))
    print(f"{name}: seed {seed}, {made[2]}, {size // 1024} KiB")


if __name__ == "__main__":
    check_packages()
    for wanted in sys.argv[1:] or FIXTURES:
        make(wanted, *FIXTURES[wanted])
