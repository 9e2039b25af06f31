// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json H3() {
  return {{"model_type", "h3"},     {"vocab_size", 96},        {"hidden_size", 32},
          {"num_hidden_layers", 3}, {"intermediate_size", 64}, {"d_state", 8}};
}

json With(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

std::string Error(const json& config) {
  const absl::Status status = ParseModelSpec(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(H3FormatTest, NamesTheTensors) {
  const auto spec = ParseModelSpec(H3());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->embeddings, "backbone.embeddings.word_embeddings.weight");
  EXPECT_TRUE(spec->tied());
  EXPECT_EQ(spec->final_norm.weight, "backbone.ln_f.weight");
  EXPECT_EQ(spec->final_norm.bias, "backbone.ln_f.bias");
  EXPECT_EQ(spec->final_norm.kind, NormSpec::Kind::kLayer);
  EXPECT_FLOAT_EQ(spec->norm_eps, 1e-5f);
  ASSERT_EQ(spec->layers.size(), 3u);
  const LayerSpec& layer = spec->layers[2];
  EXPECT_EQ(layer.mixer_type, "h3");
  EXPECT_EQ(layer.mixer_prefix, "backbone.layers.2.mixer.");
  EXPECT_EQ(layer.mixer_norm.weight, "backbone.layers.2.norm1.weight");
  EXPECT_EQ(layer.mixer_norm.kind, NormSpec::Kind::kLayer);
  EXPECT_EQ(layer.feed_forward_norm.bias, "backbone.layers.2.norm2.bias");
  const auto& mlp = std::get<TwoLayerMlpSpec>(layer.feed_forward);
  EXPECT_EQ(mlp.first, "backbone.layers.2.mlp.fc1");
  EXPECT_EQ(mlp.second, "backbone.layers.2.mlp.fc2");
  EXPECT_EQ(mlp.intermediate, 64u);
}

TEST(H3FormatTest, SomeLayersAttend) {
  const json config = With(With(H3(), "attn_layer_idx", {1}), "num_attention_heads", 2);
  const auto spec = ParseModelSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].mixer_type, "h3");
  EXPECT_EQ(spec->layers[1].mixer_type, "softmax_attention");
  EXPECT_EQ(spec->layers[1].mixer_prefix, "backbone.layers.1.mixer.");
  const auto& attention = std::get<SoftmaxAttentionConfig>(spec->layers[1].mixer);
  EXPECT_EQ(attention.heads, 2u);
  EXPECT_EQ(attention.kv_heads, 2u);
  EXPECT_EQ(attention.head_dim, 16u);
  EXPECT_FLOAT_EQ(attention.scale, 0.25f);
  EXPECT_FALSE(attention.rope.has_value());
  EXPECT_TRUE(attention.qkv_bias);
  EXPECT_TRUE(attention.output_bias);

  const auto rotary = ParseModelSpec(With(config, "rotary_dim", 8));
  const auto& rotated = std::get<SoftmaxAttentionConfig>(rotary->layers[1].mixer);
  EXPECT_EQ(rotated.rope->theta, 10000.0f);
  EXPECT_EQ(rotated.rope->rotary_dim, 8u);
}

TEST(H3FormatTest, TheOutputMapIsTheEmbeddingsUnlessToldOtherwise) {
  EXPECT_TRUE(ParseModelSpec(H3())->tied());
  EXPECT_EQ(ParseModelSpec(With(H3(), "tie_word_embeddings", false))->lm_head, "lm_head.weight");
}

TEST(H3FormatTest, ErrorsNameKeyValueAndRemedy) {
  const json attends = With(H3(), "attn_layer_idx", {0, 1});
  EXPECT_THAT(Error(attends), HasSubstr("num_attention_heads is missing"));
  EXPECT_THAT(Error(With(attends, "num_attention_heads", 5)),
              AllOf(HasSubstr("num_attention_heads is 5"), HasSubstr("hidden_size 32")));
  const json two = With(attends, "num_attention_heads", 2);
  EXPECT_THAT(Error(With(two, "rotary_dim", 64)), HasSubstr("rotary_dim is 64"));
  EXPECT_THAT(Error(With(two, "rotary_dim", 3)),
              AllOf(HasSubstr("rotary_dim is 3"), HasSubstr("even")));
  for (const json& wrong : {json(3), json(-1), json(0.5)}) {
    EXPECT_THAT(Error(With(two, "attn_layer_idx", {wrong})),
                AllOf(HasSubstr("attn_layer_idx is ["), HasSubstr("from 0 to 2")));
  }
  EXPECT_THAT(Error(With(two, "attn_layer_idx", {"one"})), HasSubstr("attn_layer_idx"));
  EXPECT_THAT(Error(With(H3(), "num_hidden_layers", 0)), HasSubstr("num_hidden_layers is 0"));
}

}  // namespace
}  // namespace rivulet
