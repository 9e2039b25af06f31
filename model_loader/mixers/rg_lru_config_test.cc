// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<RgLruConfig> Parse(const char* json) {
  return ParseKeys(ParseRgLru, nlohmann::json::parse(json), 48);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseRgLru, nlohmann::json::parse(keys), 48);
}

TEST(RgLruConfig, TheWidthIsTheStreamsByDefault) {
  const auto config = Parse(R"({"num_heads": 6})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->width, 48u);
  EXPECT_EQ(config->blocks, 6u);
  EXPECT_EQ(config->conv_size, 4u);
}

TEST(RgLruConfig, TakesRecurrentGemmasNames) {
  const auto config = Parse(R"({"num_attention_heads": 5, "lru_width": 60, "conv1d_width": 3})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->width, 60u);
  EXPECT_EQ(config->blocks, 5u);
  EXPECT_EQ(config->conv_size, 3u);
}

TEST(RgLruConfig, ErrorsNameKeyAndValue) {
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("num_heads is missing"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 5})"),
              AllOf(HasSubstr("num_heads is 5"), HasSubstr("lru_width 48")));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 6, "conv1d_width": 20})"), HasSubstr("conv1d_width is 20"));
}

}  // namespace
}  // namespace rivulet
