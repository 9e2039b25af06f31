// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

json Config(const char* type) {
  return {{"model_type", type}, {"vocab_size", 96}, {"hidden_size", 32}, {"num_hidden_layers", 2}};
}

TEST(LogLinearMamba2FormatTest, NamesTheTensorsOfBothSpellings) {
  for (const char* type : {"log_linear_mamba2", "hattention"}) {
    const auto spec = ParseModelSpec(Config(type));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->architecture, type);
    EXPECT_EQ(spec->embeddings, "backbone.embeddings.weight");
    EXPECT_EQ(spec->final_norm.weight, "backbone.norm_f.weight");
    EXPECT_EQ(spec->lm_head, "lm_head.weight");
    ASSERT_EQ(spec->layers.size(), 2u);
    const LayerSpec& layer = spec->layers[1];
    EXPECT_EQ(layer.mixer_type, "log_linear_mamba2");
    EXPECT_EQ(layer.mixer_prefix, "backbone.layers.1.mixer.");
    EXPECT_EQ(layer.mixer_norm.weight, "backbone.layers.1.mixer_norm.weight");
    EXPECT_EQ(layer.feed_forward_norm.weight, "backbone.layers.1.mlp_norm.weight");
    const auto* mlp = std::get_if<GatedMlpSpec>(&layer.feed_forward);
    ASSERT_NE(mlp, nullptr);
    EXPECT_EQ(mlp->down, "backbone.layers.1.mlp.down_proj");
    EXPECT_EQ(mlp->intermediate, 256u);  // two thirds of 4 · 32, rounded up
  }
}

TEST(LogLinearMamba2FormatTest, TiesTheOutputMapWhenAsked) {
  json config = Config("hattention");
  config["tie_word_embeddings"] = true;
  EXPECT_TRUE(ParseModelSpec(config)->tied());
}

TEST(LogLinearMamba2FormatTest, ErrorsNameTheKey) {
  json config = Config("log_linear_mamba2");
  config["hidden_ratio"] = -1;
  const absl::Status status = ParseModelSpec(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("hidden_ratio is -1"));
}

}  // namespace
}  // namespace rivulet
