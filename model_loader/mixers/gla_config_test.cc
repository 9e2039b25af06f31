// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string ErrorOf(const char* keys) {
  return ParseError(ParseGla, nlohmann::json::parse(keys), 64);
}

TEST(GlaConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseKeys(ParseGla, nlohmann::json::object(), 64);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 4u);
  EXPECT_EQ(config->kv_heads, 4u);
  EXPECT_EQ(config->key_dim, 8u);
  EXPECT_EQ(config->value_dim, 16u);
  EXPECT_EQ(config->output.norm_name, "g_norm_swish_gate");
  EXPECT_TRUE(config->output.gate);
  EXPECT_FALSE(config->use_short_conv);
  EXPECT_EQ(config->gate_rank, 16u);
  EXPECT_FLOAT_EQ(config->gate_logit_normalizer, 16.0f);
  EXPECT_FALSE(config->clamp_min.has_value());
}

TEST(GlaConfig, TheNormIsNamedAfterHowItIsFused) {
  const auto name = [](const char* json) {
    return ParseKeys(ParseGla, nlohmann::json::parse(json), 64)->output.norm_name;
  };
  EXPECT_EQ(name(R"({"fuse_norm": false})"), "g_norm");
  EXPECT_EQ(name(R"({"use_output_gate": false})"), "g_norm");
  EXPECT_EQ(name(R"({"fuse_norm": true})"), "g_norm_swish_gate");
}

TEST(GlaConfig, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"num_heads": 3})"), HasSubstr("num_heads 3"));
  EXPECT_THAT(ErrorOf(R"({"num_kv_heads": 3})"),
              AllOf(HasSubstr("num_kv_heads is 3"), HasSubstr("num_heads 4")));
  EXPECT_THAT(ErrorOf(R"({"use_short_conv": true, "conv_size": 1})"), HasSubstr("conv_size is 1"));
  EXPECT_THAT(ErrorOf(R"({"feature_map": "hedgehog"})"),
              AllOf(HasSubstr("hedgehog"), HasSubstr("silu")));
  EXPECT_THAT(ErrorOf(R"({"hidden_act": "gelu"})"), AllOf(HasSubstr("gelu"), HasSubstr("swish")));
  EXPECT_THAT(ErrorOf(R"({"clamp_min": 1})"), HasSubstr("clamp_min is 1"));
  EXPECT_THAT(ErrorOf(R"({"gate_logit_normalizer": 0})"), HasSubstr("gate_logit_normalizer is 0"));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": "small"})"), HasSubstr("norm_eps"));
}

}  // namespace
}  // namespace rivulet
