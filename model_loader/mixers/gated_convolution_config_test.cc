// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<GatedConvolutionConfig> Parse(const char* json) {
  return ParseKeys(ParseGatedConvolution, nlohmann::json::parse(json), 48);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseGatedConvolution, nlohmann::json::parse(keys), 48);
}

TEST(GatedConvolutionConfig, DefaultsAreLfm2s) {
  const auto config = Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->window, 3u);
  EXPECT_FALSE(config->bias);
}

TEST(GatedConvolutionConfig, TakesWhatIsGivenUnderEitherName) {
  for (const char* keys :
       {R"({"conv_size": 5, "conv_bias": true})", R"({"conv_L_cache": 5, "conv_bias": true})"}) {
    const auto config = Parse(keys);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->window, 5u);
    EXPECT_TRUE(config->bias);
  }
}

TEST(GatedConvolutionConfig, ErrorsNameKeyAndValue) {
  EXPECT_THAT(ErrorOf(R"({"conv_L_cache": 17})"),
              AllOf(HasSubstr("conv_L_cache is 17"), HasSubstr("16")));
  EXPECT_THAT(ErrorOf(R"({"conv_size": 1})"), HasSubstr("conv_size is 1"));
  EXPECT_THAT(ErrorOf(R"({"conv_bias": 1})"), HasSubstr("conv_bias is 1"));
}

}  // namespace
}  // namespace rivulet
