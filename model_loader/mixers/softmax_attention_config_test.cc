// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SoftmaxAttentionConfig Parsed(const char* json) {
  const auto config = ParseKeys(ParseSoftmaxAttention, nlohmann::json::parse(json), 64);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : SoftmaxAttentionConfig{};
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseSoftmaxAttention, nlohmann::json::parse(keys), 64);
}

TEST(SoftmaxAttentionConfig, DefaultsAreThoseOfFla) {
  const SoftmaxAttentionConfig config = Parsed("{}");
  EXPECT_EQ(config.heads, 32u);
  EXPECT_EQ(config.kv_heads, 32u);
  EXPECT_EQ(config.head_dim, 2u);
  ASSERT_TRUE(config.rope.has_value());
  EXPECT_FLOAT_EQ(config.rope->theta, 10000.0f);
  EXPECT_EQ(config.rope->rotary_dim, 2u);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_FALSE(config.output_gate);
  EXPECT_EQ(config.qk_norm, HeadNorm::kNone);
  EXPECT_EQ(config.window, 0u);
  EXPECT_FLOAT_EQ(config.scale, std::sqrt(0.5f));
}

TEST(SoftmaxAttentionConfig, NoRotationIsWrittenAsNull) {
  EXPECT_FALSE(Parsed(R"({"rope_theta": null})").rope.has_value());
  EXPECT_TRUE(
      Parsed(R"({"rope_theta": null, "rope_parameters": {"rope_theta": 500.0}})").rope.has_value());
  EXPECT_FALSE(Parsed(R"({"rope_theta": null, "num_heads": 1, "head_dim": 7})").rope.has_value());
  EXPECT_FLOAT_EQ(Parsed(R"({"rope_theta": 500})").rope->theta, 500.0f);
  EXPECT_EQ(Parsed(R"({"num_heads": 4, "partial_rotary_factor": 0.25})").rope->rotary_dim, 4u);
}

TEST(SoftmaxAttentionConfig, NormsByTheirNamesAndAsFlaHasThem) {
  EXPECT_EQ(Parsed(R"({"qk_norm": true, "norm_eps": 0.1})").qk_norm, HeadNorm::kRms);
  EXPECT_FLOAT_EQ(Parsed(R"({"qk_norm": true, "norm_eps": 0.1})").norm_eps, 1e-5f);
  EXPECT_EQ(Parsed(R"({"qk_norm": false})").qk_norm, HeadNorm::kNone);
  EXPECT_EQ(Parsed(R"({"qk_norm": "rms"})").qk_norm, HeadNorm::kRms);
  EXPECT_FLOAT_EQ(Parsed(R"({"qk_norm": "rms_one_plus", "norm_eps": 0.1})").norm_eps, 0.1f);
  EXPECT_EQ(Parsed(R"({"qk_norm": "rms_one_plus"})").qk_norm, HeadNorm::kRmsOnePlus);
}

TEST(SoftmaxAttentionConfig, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"num_heads": 5})"),
              AllOf(HasSubstr("num_heads is 5"), HasSubstr("head_dim")));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "num_kv_heads": 3})"),
              AllOf(HasSubstr("num_kv_heads is 3"), HasSubstr("num_heads 4")));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1, "head_dim": 257})"),
              AllOf(HasSubstr("257"), HasSubstr("256"), HasSubstr("head_dim")));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "window_size": 0})"), HasSubstr("window_size is 0"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "softmax_scale": 0})"), HasSubstr("softmax_scale is 0"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "qk_norm": "l2"})"),
              AllOf(HasSubstr("l2"), HasSubstr("rms_one_plus")));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "qk_norm": "rms", "norm_eps": -1})"),
              HasSubstr("norm_eps is -1"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1, "head_dim": 7})"), HasSubstr("even"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "output_gate": "yes"})"), HasSubstr("output_gate"));
}

}  // namespace
}  // namespace rivulet
