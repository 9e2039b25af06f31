// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/format_fixture.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json Gemma() {
  return {{"model_type", "recurrent_gemma"}, {"vocab_size", 96},         {"hidden_size", 64},
          {"num_hidden_layers", 4},          {"intermediate_size", 192}, {"num_attention_heads", 4},
          {"num_key_value_heads", 1}};
}

TEST(RecurrentGemmaFormatTest, NamesTheTensorsAndDescribesTheMixers) {
  const ModelSpec spec = SpecOf(With(Gemma(), "attention_window_size", 9));
  EXPECT_EQ(spec.final_norm.weight, "model.final_norm.weight");
  EXPECT_EQ(spec.final_norm.kind, NormSpec::Kind::kRmsOnePlus);
  EXPECT_TRUE(spec.tied());
  EXPECT_EQ(spec.embedding_multiplier, 8.0f);
  EXPECT_EQ(spec.logits_cap, 30.0f);
  EXPECT_THAT(MixersOf(Gemma()), ElementsAre("rg_lru", "rg_lru", "softmax_attention", "rg_lru"));
  const LayerSpec& layer = spec.layers.at(2);
  EXPECT_EQ(layer.mixer_prefix, "model.layers.2.temporal_block.");
  EXPECT_EQ(layer.mixer_norm.weight, "model.layers.2.temporal_pre_norm.weight");
  EXPECT_EQ(layer.mixer_norm.kind, NormSpec::Kind::kRmsOnePlus);
  EXPECT_EQ(layer.feed_forward_norm.weight, "model.layers.2.channel_pre_norm.weight");
  const auto& attention = std::get<SoftmaxAttentionConfig>(layer.mixer);
  EXPECT_EQ(attention.window, 9u);
  EXPECT_EQ(attention.rope->rotary_dim, 8u);
  EXPECT_TRUE(attention.output_bias);
  EXPECT_FALSE(attention.qkv_bias);
  const auto& mlp = std::get<GatedMlpSpec>(layer.feed_forward);
  EXPECT_EQ(mlp.intermediate, 96u);
  EXPECT_TRUE(mlp.bias);
  EXPECT_EQ(mlp.form.f, Activation::kGeluTanh);
}

// 48: its root is 6.928, 6.9375 in bf16.
TEST(RecurrentGemmaFormatTest, TheRootOfTheWidthIsRounded) {
  EXPECT_EQ(SpecOf(With(Gemma(), "hidden_size", 48)).embedding_multiplier, 6.9375f);
}

TEST(RecurrentGemmaFormatTest, RepeatsThePattern) {
  EXPECT_THAT(MixersOf(With(Gemma(), "block_types", {"attention", "recurrent"})),
              ElementsAre("softmax_attention", "rg_lru", "softmax_attention", "rg_lru"));
  EXPECT_EQ(std::get<RgLruConfig>(SpecOf(With(Gemma(), "lru_width", 80)).layers.at(0).mixer).width,
            80u);
}

TEST(RecurrentGemmaFormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Gemma(), "block_types", {"recurrent", "mamba"})), HasSubstr("mamba"));
  EXPECT_THAT(ErrorOf(With(Gemma(), "block_types", json::array())), HasSubstr("block_types is []"));
  EXPECT_THAT(ErrorOf(With(Gemma(), "hidden_activation", "gelu")), HasSubstr("\"gelu\""));
  EXPECT_THAT(ErrorOf(With(Gemma(), "logits_soft_cap", 0)), HasSubstr("logits_soft_cap is 0"));
  EXPECT_THAT(ErrorOf(With(Gemma(), "lru_width", 66)), HasSubstr("num_attention_heads is 4"));
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(ErrorOf(With(Gemma(), "rope_parameters", linear)), HasSubstr("rope_type default"));
  EXPECT_THAT(ErrorOf(With(Gemma(), "rope_scaling", linear)), HasSubstr("rope_scaling is"));
}

TEST(RecurrentGemmaFormatTest, SurvivesAnyValueAtAnyKey) {
  ExpectSurvivesAnyValue(Gemma(), {"block_types", "lru_width", "conv1d_width", "logits_soft_cap",
                                   "attention_window_size", "head_dim", "rope_parameters"});
}

}  // namespace
}  // namespace rivulet
