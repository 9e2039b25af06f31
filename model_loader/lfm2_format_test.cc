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

json Lfm2() {
  return {{"model_type", "lfm2"},
          {"vocab_size", 96},
          {"hidden_size", 64},
          {"num_hidden_layers", 3},
          {"intermediate_size", 90},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"block_multiple_of", 8},
          {"layer_types", {"conv", "conv", "full_attention"}}};
}

size_t Width(const json& config) {
  return std::get<GatedMlpSpec>(SpecOf(config).layers.at(0).feed_forward).intermediate;
}

TEST(Lfm2FormatTest, NamesTheTensors) {
  const ModelSpec spec = SpecOf(Lfm2());
  EXPECT_EQ(spec.final_norm.weight, "model.embedding_norm.weight");
  EXPECT_TRUE(spec.tied());
  EXPECT_EQ(spec.norm_eps, 1e-5f);
  const LayerSpec& layer = spec.layers.at(1);
  EXPECT_EQ(layer.mixer_type, "gated_convolution");
  EXPECT_EQ(layer.mixer_prefix, "model.layers.1.conv.");
  EXPECT_EQ(layer.mixer_norm.weight, "model.layers.1.operator_norm.weight");
  EXPECT_EQ(layer.feed_forward_norm.weight, "model.layers.1.ffn_norm.weight");
  const auto& mlp = std::get<GatedMlpSpec>(layer.feed_forward);
  EXPECT_EQ(mlp.gate, "model.layers.1.feed_forward.w1");
  EXPECT_EQ(mlp.up, "model.layers.1.feed_forward.w3");
  EXPECT_EQ(mlp.down, "model.layers.1.feed_forward.w2");
}

TEST(Lfm2FormatTest, DescribesTheMixers) {
  const ModelSpec spec = SpecOf(With(With(Lfm2(), "norm_eps", 1e-4), "conv_L_cache", 5));
  EXPECT_EQ(std::get<GatedConvolutionConfig>(spec.layers.at(0).mixer).window, 5u);
  const auto& attention = std::get<SoftmaxAttentionConfig>(spec.layers.at(2).mixer);
  EXPECT_EQ(attention.tensors, AttentionTensors::kLfm2);
  EXPECT_EQ(attention.qk_norm, HeadNorm::kRms);
  EXPECT_EQ(attention.norm_eps, 1e-4f);
  EXPECT_EQ(attention.rope->theta, 1e6f);
  EXPECT_EQ(attention.kv_heads, 2u);
}

TEST(Lfm2FormatTest, FindsTheAttentionOfOlderFiles) {
  const json old = Without(Lfm2(), "layer_types");
  EXPECT_THAT(MixersOf(With(old, "full_attn_idxs", {0})),
              ElementsAre("softmax_attention", "gated_convolution", "gated_convolution"));
  EXPECT_THAT(MixersOf(old),
              ElementsAre("softmax_attention", "softmax_attention", "softmax_attention"));
}

TEST(Lfm2FormatTest, TheWidthOfTheMlpIsAdjusted) {
  EXPECT_EQ(Width(Lfm2()), 64u);                                         // 2/3 of 90, in eights
  EXPECT_EQ(Width(With(Lfm2(), "block_ffn_dim_multiplier", 1.3)), 80u);  // of 78
  EXPECT_EQ(Width(With(Lfm2(), "block_ffn_dim_multiplier", nullptr)), 60u);
  EXPECT_EQ(Width(With(Lfm2(), "block_auto_adjust_ff_dim", false)), 90u);
  EXPECT_EQ(Width(With(Lfm2(), "block_ff_dim", 60)), 40u);  // the older name goes first
}

TEST(Lfm2FormatTest, TiesByEitherName) {
  EXPECT_FALSE(SpecOf(With(Lfm2(), "tie_word_embeddings", false)).tied());
  EXPECT_FALSE(SpecOf(With(Lfm2(), "tie_embedding", false)).tied());
  EXPECT_TRUE(
      SpecOf(With(With(Lfm2(), "tie_word_embeddings", false), "tie_embedding", true)).tied());
}

TEST(Lfm2FormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Lfm2(), "layer_types", {"conv", "mamba", "conv"})),
              AllOf(HasSubstr("entry 1 is \"mamba\""), HasSubstr("conv, full_attention")));
  EXPECT_THAT(ErrorOf(With(Lfm2(), "conv_L_cache", 40)), HasSubstr("conv_L_cache is 40"));
  EXPECT_THAT(ErrorOf(With(Lfm2(), "block_ffn_dim_multiplier", -1)),
              HasSubstr("block_ffn_dim_multiplier is -1"));
  EXPECT_THAT(ErrorOf(With(Lfm2(), "intermediate_size", 1)), HasSubstr("intermediate_size is 1"));
  EXPECT_THAT(ErrorOf(With(Without(Lfm2(), "layer_types"), "full_attn_idxs", {3})),
              HasSubstr("full_attn_idxs"));
}

json Lfm2Moe() {
  json config = With(With(Lfm2(), "model_type", "lfm2_moe"), "num_dense_layers", 1);
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  return config;
}

TEST(Lfm2FormatTest, ExpertsFollowTheDenseLayers) {
  const ModelSpec spec = SpecOf(With(Lfm2Moe(), "routed_scaling_factor", 1.5));
  EXPECT_EQ(std::get<GatedMlpSpec>(spec.layers.at(0).feed_forward).intermediate, 90u);
  const auto& experts = std::get<MixtureOfExpertsSpec>(spec.layers.at(1).feed_forward);
  EXPECT_EQ(experts.choice.scores, ExpertScores::kSigmoid);
  EXPECT_EQ(experts.choice.experts, 6u);
  EXPECT_EQ(experts.choice.scaling, 1.5f);
  EXPECT_EQ(experts.intermediate, 1792u);
  EXPECT_EQ(experts.correction, "model.layers.1.feed_forward.expert_bias");
  EXPECT_EQ(experts.expert_list, "model.layers.1.feed_forward.experts.");
  EXPECT_EQ(experts.expert_names.down, "w2");
  const ModelSpec plain = SpecOf(With(Lfm2Moe(), "use_expert_bias", false));
  EXPECT_EQ(std::get<MixtureOfExpertsSpec>(plain.layers.at(1).feed_forward).correction, "");
}

TEST(Lfm2FormatTest, SurvivesAnyValueAtAnyKey) {
  ExpectSurvivesAnyValue(Lfm2Moe(), {"use_expert_bias", "moe_intermediate_size", "norm_topk_prob"});
  ExpectSurvivesAnyValue(Lfm2(), {"conv_L_cache", "conv_bias", "full_attn_idxs", "block_ff_dim",
                                  "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim",
                                  "tie_embedding", "norm_eps", "rope_parameters"});
}

}  // namespace
}  // namespace rivulet
