// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<KdaConfig> Parse(const char* json) {
  return ParseKeys(ParseKda, nlohmann::json::parse(json), 48);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseKda, nlohmann::json::parse(keys), 48);
}

TEST(KdaConfig, DefaultsAreFlas) {
  const auto config = Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.heads, 16u);
  EXPECT_EQ(config->shape.groups, 16u);
  EXPECT_EQ(config->shape.key_dim, 128u);
  EXPECT_EQ(config->shape.value_dim, 128u);
  EXPECT_EQ(config->gate_rank, 128u);
  EXPECT_EQ(config->conv_size, 4u);
  EXPECT_TRUE(config->gate_bias);
  EXPECT_FALSE(config->negative_eigenvalues);
  EXPECT_FALSE(config->lower_bound.has_value());
}

TEST(KdaConfig, TakesWhatIsGiven) {
  const auto config = Parse(R"({"num_heads": 2, "num_v_heads": 6, "head_dim": 8, "expand_v": 1.5,
      "use_short_conv": false, "allow_neg_eigval": true, "lower_bound": -5, "norm_eps": 1e-3})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.heads, 6u);
  EXPECT_EQ(config->shape.groups, 2u);
  EXPECT_EQ(config->shape.value_dim, 12u);
  EXPECT_EQ(config->conv_size, 0u);
  EXPECT_TRUE(config->negative_eigenvalues);
  EXPECT_EQ(config->lower_bound, -5.0f);
  EXPECT_EQ(config->norm_eps, 1e-3f);
}

TEST(KdaConfig, ErrorsNameKeyAndValue) {
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "num_v_heads": 6})"),
              AllOf(HasSubstr("num_v_heads is 6"), HasSubstr("num_heads 4")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 7, "expand_v": 1.5})"), HasSubstr("expand_v is 1.5"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 600})"), HasSubstr("head_dim is 600"));
  EXPECT_THAT(ErrorOf(R"({"lower_bound": 1})"), HasSubstr("lower_bound is 1"));
  EXPECT_THAT(ErrorOf(R"({"attnres_block_size": 4})"), HasSubstr("attnres_block_size is 4"));
}

}  // namespace
}  // namespace rivulet
