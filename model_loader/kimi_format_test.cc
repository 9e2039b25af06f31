// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/format_fixture.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

json Kimi() {
  return {{"model_type", "kimi_linear"},
          {"vocab_size", 96},
          {"hidden_size", 64},
          {"num_hidden_layers", 3},
          {"intermediate_size", 48},
          {"num_attention_heads", 4},
          {"num_experts", 8},
          {"num_experts_per_token", 2},
          {"kv_lora_rank", 24},
          {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
          {"linear_num_heads", 3},
          {"linear_head_dim", 8}};
}

// As Moonshot publishes it.
json Published() {
  json config =
      Without(Without(Without(Kimi(), "layer_types"), "linear_num_heads"), "linear_head_dim");
  config["linear_attn_config"] = {{"full_attn_layers", {3}},
                                  {"kda_layers", {1, 2}},
                                  {"head_dim", 16},
                                  {"num_heads", 5},
                                  {"short_conv_kernel_size", 3}};
  config["rope_theta"] = 10000.0;
  config["mla_use_nope"] = true;
  config["moe_router_activation_func"] = "sigmoid";
  return config;
}

KdaConfig Kda(const json& config) { return std::get<KdaConfig>(SpecOf(config).layers.at(0).mixer); }

MixtureOfExpertsSpec Experts(const json& config, size_t layer = 1) {
  return std::get<MixtureOfExpertsSpec>(SpecOf(config).layers.at(layer).feed_forward);
}

TEST(KimiFormatTest, NamesTheTensorsAndDescribesTheMixers) {
  const ModelSpec spec = SpecOf(With(Kimi(), "tie_word_embeddings", true));
  EXPECT_FALSE(spec.tied());  // never, as in transformers
  EXPECT_EQ(spec.norm_eps, 1e-5f);
  EXPECT_EQ(spec.layers.at(0).mixer_type, "kda");
  EXPECT_EQ(spec.layers.at(1).mixer_type, "latent_attention");
  EXPECT_EQ(spec.layers.at(1).mixer_prefix, "model.layers.1.self_attn.");
  const KdaConfig kda = Kda(Kimi());
  EXPECT_EQ(kda.tensors, KdaTensors::kKimi);
  EXPECT_EQ(kda.shape.heads, 3u);
  EXPECT_EQ(kda.gate_rank, 8u);
  EXPECT_FALSE(kda.gate_bias);
  const auto& full = std::get<LatentAttentionConfig>(spec.layers.at(1).mixer);
  EXPECT_EQ(full.heads, 4u);
  EXPECT_EQ(full.latent, 24u);
  EXPECT_EQ(full.norm_eps, 1e-6f);
}

TEST(KimiFormatTest, ReadsThePublishedNames) {
  EXPECT_THAT(MixersOf(Published()), ElementsAre("kda", "kda", "latent_attention"));
  const KdaConfig kda = Kda(Published());
  EXPECT_EQ(kda.shape.heads, 5u);
  EXPECT_EQ(kda.shape.key_dim, 16u);
  EXPECT_EQ(kda.conv_size, 3u);
}

TEST(KimiFormatTest, ExpertsFollowTheFirstLayer) {
  const ModelSpec spec = SpecOf(Kimi());
  const auto& dense = std::get<GatedMlpSpec>(spec.layers.at(0).feed_forward);
  EXPECT_EQ(dense.gate, "model.layers.0.mlp.gate_proj");
  EXPECT_EQ(dense.other_prefix, "model.layers.0.block_sparse_moe.");
  const MixtureOfExpertsSpec experts = Experts(With(Kimi(), "num_shared_experts", 2));
  EXPECT_EQ(experts.choice.scores, ExpertScores::kSigmoid);
  EXPECT_EQ(experts.choice.experts, 8u);
  EXPECT_EQ(experts.choice.experts_per_token, 2u);
  EXPECT_FLOAT_EQ(experts.choice.scaling, 2.446f);
  EXPECT_EQ(experts.correction, "model.layers.1.block_sparse_moe.gate.e_score_correction_bias");
  EXPECT_EQ(experts.expert_names.gate, "w1");
  EXPECT_EQ(std::get<GatedMlpSpec>(experts.shared).intermediate, 2048u);
  const json all_sparse = With(Kimi(), "first_k_dense_replace", 0);
  EXPECT_EQ(Experts(all_sparse, 0).choice.experts, 8u);
}

TEST(KimiFormatTest, ReadsTheGroupsByEitherName) {
  for (const char* key : {"num_expert_group", "n_group"}) {
    const MixtureOfExpertsSpec experts = Experts(With(With(Kimi(), key, 4), "topk_group", 2));
    EXPECT_EQ(experts.choice.groups, 4u);
    EXPECT_EQ(experts.choice.groups_per_token, 2u);
  }
}

TEST(KimiFormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Published(), "mla_use_nope", false)),
              HasSubstr("mla_use_nope is false"));
  EXPECT_THAT(ErrorOf(With(Kimi(), "num_key_value_heads", 2)),
              AllOf(HasSubstr("num_key_value_heads is 2"), HasSubstr("num_attention_heads 4")));
  EXPECT_THAT(ErrorOf(With(Kimi(), "moe_layer_freq", 2)), HasSubstr("moe_layer_freq is 2"));
  EXPECT_THAT(ErrorOf(With(Kimi(), "moe_router_activation_func", "softmax")), HasSubstr("softmax"));
  EXPECT_THAT(ErrorOf(With(Kimi(), "n_group", 3)), HasSubstr("n_group is 3"));
  EXPECT_THAT(ErrorOf(With(Kimi(), "n_group", 8)), HasSubstr("n_group is 8"));
  json config = Published();
  config["linear_attn_config"]["kda_layers"] = {1};
  EXPECT_THAT(ErrorOf(config), AllOf(HasSubstr("linear_attn_config"), HasSubstr("layer 2")));
  config["linear_attn_config"]["kda_layers"] = {0, 2};
  EXPECT_THAT(ErrorOf(config), HasSubstr("linear_attn_config"));
}

TEST(KimiFormatTest, SurvivesAnyValueAtAnyKey) {
  ExpectSurvivesAnyValue(Kimi(), {"mlp_layer_types", "q_lora_rank", "n_group", "topk_group",
                                  "first_k_dense_replace", "num_key_value_heads"});
  ExpectSurvivesAnyValue(Published(), {});
}

}  // namespace
}  // namespace rivulet
