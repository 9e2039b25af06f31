// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Small configs for tests with MakeRandomModel: every mixer, sizes that no block divides.
#ifndef RIVULET_SERVER_ENGINE_TEST_MODELS_H_
#define RIVULET_SERVER_ENGINE_TEST_MODELS_H_

#include <string>
#include <utility>
#include <vector>

namespace rivulet {

struct TestModel {
  std::string name;
  std::string config;  // config.json
};

inline std::vector<TestModel> TestModels() {
  return {
      {"Mixture", R"({"model_type": "hla", "vocab_size": 101, "hidden_size": 48,
                      "num_hidden_layers": 3, "intermediate_size": 75, "norm_eps": 1e-5,
                      "num_heads": 3, "head_dim": 16, "use_decay": true, "qk_norm": "l2",
                      "layer_types": ["hla", "gla", "hla"],
                      "layer_config": [{}, {"num_heads": 2, "expand_k": 0.5, "expand_v": 1},
                                       {"hla_variant": "asymmetric"}]})"},
      {"Mamba2", R"({"model_type": "mamba2", "vocab_size": 101, "hidden_size": 40,
                     "num_hidden_layers": 2, "state_size": 16, "expand": 2, "head_dim": 16,
                     "num_heads": 5, "n_groups": 1, "conv_kernel": 4, "use_conv_bias": true,
                     "use_bias": false, "layer_norm_epsilon": 1e-5, "hidden_act": "silu",
                     "time_step_limit": [0.0, 100.0], "tie_word_embeddings": false,
                     "chunk_size": 32, "rms_norm": true, "time_step_rank": 4})"},
      {"LinearAttention", R"({"model_type": "linear_attn", "vocab_size": 101, "hidden_size": 48,
                              "num_hidden_layers": 2, "num_heads": 2, "expand_k": 1.0,
                              "expand_v": 1.0, "feature_map": "elu", "hidden_ratio": 4,
                              "intermediate_size": null, "norm_eps": 1e-6, "hidden_act": "swish",
                              "tie_word_embeddings": false})"},
      {"DeltaRules", R"({"model_type": "gated_deltanet", "vocab_size": 101, "hidden_size": 48,
                         "num_hidden_layers": 3, "intermediate_size": 75, "norm_eps": 1e-5,
                         "num_heads": 2, "head_dim": 12, "expand_v": 2, "num_v_heads": 4,
                         "layer_types": ["gated_deltanet", "delta_net", "anna"],
                         "layer_config": [{}, {"allow_neg_eigval": true},
                                          {"num_heads": 3, "head_dim": 16, "num_hash_tables": 4,
                                           "num_hashes": 3}]})"},
      {"Scans", R"({"model_type": "retnet", "vocab_size": 101, "hidden_size": 48,
                    "num_hidden_layers": 3, "intermediate_size": 75, "norm_eps": 1e-5,
                    "num_heads": 2,
                    "layer_types": ["mamba", "retnet", "hla"],
                    "layer_config": [{"state_size": 5, "expand": 2, "conv_kernel": 4,
                                      "time_step_rank": 3, "hidden_act": "silu"}, {},
                                     {"hla_variant": "third", "head_dim": 16, "use_decay": true,
                                      "qk_norm": "l2"}]})"},
      {"Rwkv6", R"({"model_type": "rwkv6", "vocab_size": 101, "hidden_size": 48,
                    "num_hidden_layers": 2, "hidden_ratio": 1.5, "num_heads": 2,
                    "proj_low_rank_dim": 5, "gate_low_rank_dim": 6})"},
      {"Rwkv7", R"({"model_type": "rwkv7", "vocab_size": 101, "hidden_size": 48,
                    "num_hidden_layers": 3, "hidden_ratio": 1.5, "head_dim": 24,
                    "decay_low_rank_dim": 5, "a_low_rank_dim": 6, "v_low_rank_dim": 7,
                    "gate_low_rank_dim": 8})"},
      {"Experts", R"({"model_type": "qwen3_next", "vocab_size": 101, "hidden_size": 48,
                      "num_hidden_layers": 2, "layer_types": ["linear_attention", "linear_attention"],
                      "num_attention_heads": 4, "linear_num_key_heads": 2,
                      "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                      "linear_value_head_dim": 12, "num_experts": 11, "num_experts_per_tok": 4,
                      "norm_topk_prob": false, "moe_intermediate_size": 20,
                      "shared_expert_intermediate_size": 24})"},
  };
}

// Softmax attention beside sums: pages that are only appended to.
inline std::vector<TestModel> AttentionTestModels() {
  return {
      {"Attention", R"({"model_type": "gla", "vocab_size": 101, "hidden_size": 48,
                        "num_hidden_layers": 3, "intermediate_size": 75, "norm_eps": 1e-5,
                        "num_heads": 4, "expand_k": 0.5, "expand_v": 1,
                        "layer_types": ["softmax_attention", "gla", "softmax_attention"],
                        "layer_config": [{"num_kv_heads": 2, "head_dim": 12}, {},
                                         {"head_dim": 12, "window_size": 21}]})"},
      {"Qwen3Next", R"({"model_type": "qwen3_next", "vocab_size": 101, "hidden_size": 48,
                        "num_hidden_layers": 3, "full_attention_interval": 2,
                        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
                        "partial_rotary_factor": 0.5, "linear_num_key_heads": 2,
                        "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                        "linear_value_head_dim": 12, "intermediate_size": 75,
                        "mlp_only_layers": [1], "num_experts": 7, "num_experts_per_tok": 3,
                        "moe_intermediate_size": 20, "shared_expert_intermediate_size": 24})"},
      {"Granite", R"({"model_type": "granitemoehybrid", "vocab_size": 101, "hidden_size": 40,
                      "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
                      "num_attention_heads": 5, "shared_intermediate_size": 33,
                      "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 18,
                      "mamba_n_heads": 5, "mamba_n_groups": 1, "mamba_d_state": 16,
                      "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
                      "attention_multiplier": 0.3, "logits_scaling": 2.0})"},
  };
}

// Attention over chosen pools of tokens, whose keys have pages too.
inline std::vector<TestModel> ChosenPoolTestModels() {
  return {
      {"ChosenPools", R"({"model_type": "glm5_next_text", "vocab_size": 101, "hidden_size": 48,
                          "num_hidden_layers": 4, "intermediate_size": 75,
                          "layer_types": ["indexed_attention", "linear_attention",
                                          "indexed_attention", "indexed_attention"],
                          "indexer_types": ["full", "full", "full", "shared"],
                          "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
                          "num_attention_heads": 3, "q_lora_rank": 20, "kv_lora_rank": 24,
                          "qk_nope_head_dim": 9, "qk_rope_head_dim": 0, "v_head_dim": 10,
                          "linear_num_heads": 3, "linear_head_dim": 16, "n_routed_experts": 7,
                          "num_experts_per_tok": 3, "moe_intermediate_size": 20,
                          "swiglu_limit": 0.5, "hc_mult": 3, "hc_sinkhorn_iters": 4,
                          "index_kpool": 4, "index_topk": 16, "index_n_heads": 5,
                          "index_head_dim": 12})"},
      {"ChosenMeans", R"({"model_type": "qwen4_exp_text", "vocab_size": 101, "hidden_size": 40,
                          "num_hidden_layers": 3,
                          "layer_types": ["indexed_attention", "linear_attention",
                                          "indexed_attention"],
                          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
                          "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                              "partial_rotary_factor": 0.5},
                          "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                          "linear_key_head_dim": 16, "linear_value_head_dim": 12,
                          "num_experts": 7, "num_experts_per_tok": 3,
                          "moe_intermediate_size": 20, "shared_expert_intermediate_size": 24,
                          "output_gate_type": "sigmoid", "hc_count": 3, "hc_lowrank": 9,
                          "indexer_n_heads": 5, "indexer_kv_heads": 1, "indexer_head_dim": 10,
                          "indexer_budget": 16, "indexer_compress_ratio": 8,
                          "ple_layer_ids": [2], "eos_token_id": 3, "ngram_vocab_size_base": 50,
                          "make_ngram_vocab_size_divisible_by": 8, "heads_per_ngram": 2,
                          "ple_embed_dim": 12})"},
  };
}

// Log-linear sums, whose pages form trees.
inline std::vector<TestModel> LogLinearTestModels() {
  return {
      {"LogLinearDelta", R"({"model_type": "gla", "vocab_size": 101, "hidden_size": 48,
                             "num_hidden_layers": 2, "intermediate_size": 75, "norm_eps": 1e-5,
                             "layer_types": ["h_gated_deltanet", "log_linear_mamba2"],
                             "layer_config": [{"num_heads": 2, "head_dim": 12, "expand_v": 2,
                                               "max_levels": 12},
                                              {"state_size": 16, "expand": 2, "head_dim": 24,
                                               "num_heads": 4}]})"},
      {"LogLinear", R"({"model_type": "gla", "vocab_size": 101, "hidden_size": 48,
                        "num_hidden_layers": 4, "intermediate_size": 75, "norm_eps": 1e-5,
                        "layer_types": ["log_linear_mamba2", "h3", "h_gated_deltanet",
                                        "softmax_attention"],
                        "layer_config": [{"state_size": 16, "expand": 2, "head_dim": 24,
                                          "num_heads": 4},
                                         {"d_state": 10},
                                         {"num_heads": 2, "head_dim": 12, "expand_v": 2,
                                          "max_levels": 12},
                                         {"num_heads": 4, "num_kv_heads": 2, "head_dim": 12}]})"},
      // Its folds write no page twice, so that prompts keep every border.
      {"LogLinearSums", R"({"model_type": "gla", "vocab_size": 101, "hidden_size": 48,
                            "num_hidden_layers": 3, "intermediate_size": 75, "norm_eps": 1e-5,
                            "layer_types": ["log_linear_mamba2", "h3", "log_linear_mamba2"],
                            "layer_config": [{"state_size": 16, "expand": 2, "head_dim": 24,
                                              "num_heads": 4}, {"d_state": 10},
                                             {"state_size": 16, "expand": 2, "head_dim": 24,
                                              "num_heads": 4}]})"},
  };
}

inline std::vector<TestModel> AllTestModels() {
  std::vector<TestModel> models = TestModels();
  for (const auto& family : {AttentionTestModels, ChosenPoolTestModels, LogLinearTestModels}) {
    for (TestModel& model : family()) models.push_back(std::move(model));
  }
  return models;
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_TEST_MODELS_H_
