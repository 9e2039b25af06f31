// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<H3Config> Parse(const char* json) {
  return ParseKeys(ParseH3, nlohmann::json::parse(json), 48);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseH3, nlohmann::json::parse(keys), 48);
}

TEST(H3Config, DefaultsAreThePublicCheckpoints) {
  const auto config = Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 48u);
  EXPECT_EQ(config->head_dim, 1u);
  EXPECT_EQ(config->state_size, 64u);
  EXPECT_EQ(config->modes(), 32u);
  EXPECT_EQ(config->ssms, 48u);
  EXPECT_EQ(config->discretisation, Discretisation::kBilinear);
}

TEST(H3Config, TakesWhatIsGiven) {
  const auto config =
      Parse(R"({"head_dim": 4, "d_state": 16, "n_ssm": 3, "discretization": "zoh"})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 12u);
  EXPECT_EQ(config->channels(), 48u);
  EXPECT_EQ(config->state_size, 16u);
  EXPECT_EQ(config->ssms, 3u);
  EXPECT_EQ(config->discretisation, Discretisation::kZeroOrderHold);
}

TEST(H3Config, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"head_dim": 5})"),
              AllOf(HasSubstr("head_dim is 5"), HasSubstr("hidden_size 48")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 65})"), HasSubstr("head_dim is 65"));
  EXPECT_THAT(ErrorOf(R"({"d_state": 7})"), AllOf(HasSubstr("d_state is 7"), HasSubstr("even")));
  EXPECT_THAT(ErrorOf(R"({"d_state": 1024})"), HasSubstr("d_state is 1024"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 2, "n_ssm": 5})"),
              AllOf(HasSubstr("n_ssm is 5"), HasSubstr("24")));
  EXPECT_THAT(ErrorOf(R"({"discretization": "dss"})"),
              AllOf(HasSubstr("dss"), HasSubstr("bilinear"), HasSubstr("zoh")));
}

}  // namespace
}  // namespace rivulet
