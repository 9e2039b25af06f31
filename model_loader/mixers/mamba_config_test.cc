// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<MambaConfig> Parse(const char* json) {
  return ParseKeys(ParseMamba, nlohmann::json::parse(json), 72);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseMamba, nlohmann::json::parse(keys), 72);
}

TEST(MambaConfig, Defaults) {
  const auto config = Parse(R"({"time_step_rank": "auto"})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->inner, 144u);
  EXPECT_EQ(config->state_size, 16u);
  EXPECT_EQ(config->rank, 5u);
  EXPECT_EQ(config->conv_kernel, 4u);
  EXPECT_FALSE(config->use_bias);
  EXPECT_TRUE(config->use_conv_bias);
  EXPECT_FALSE(config->use_scan_norms);
}

TEST(MambaConfig, TakesWhatIsGiven) {
  const auto config = Parse(R"({"expand": 1.5, "state_size": 8, "time_step_rank": 7,
      "conv_kernel": 3, "use_bias": true, "use_conv_bias": false, "mixer_rms_eps": 1e-6})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->inner, 108u);
  EXPECT_EQ(config->state_size, 8u);
  EXPECT_EQ(config->rank, 7u);
  EXPECT_EQ(config->conv_kernel, 3u);
  EXPECT_TRUE(config->use_bias);
  EXPECT_FALSE(config->use_conv_bias);
  EXPECT_TRUE(config->use_scan_norms);
  EXPECT_FLOAT_EQ(config->scan_norm_eps, 1e-6f);
}

TEST(MambaConfig, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"state_size": 1024})"),
              AllOf(HasSubstr("state_size is 1024"), HasSubstr("from 1 to 512")));
  EXPECT_THAT(ErrorOf(R"({"expand": 1e30})"),
              AllOf(HasSubstr("expand is 1e+30"), HasSubstr("hidden_size 72")));
  EXPECT_THAT(ErrorOf(R"({"expand": -1})"), HasSubstr("expand is -1"));
  EXPECT_THAT(ErrorOf(R"({"time_step_rank": "automatic"})"),
              AllOf(HasSubstr("time_step_rank is \"automatic\""), HasSubstr("\"auto\"")));
  EXPECT_THAT(ErrorOf(R"({"time_step_rank": 0})"), HasSubstr("time_step_rank is 0"));
  EXPECT_THAT(ErrorOf(R"({"conv_kernel": 17})"), HasSubstr("conv_kernel is 17"));
  EXPECT_THAT(ErrorOf(R"({"use_bias": 1})"), HasSubstr("use_bias is 1"));
  EXPECT_THAT(ErrorOf(R"({"mixer_rms_eps": 0})"), HasSubstr("mixer_rms_eps is 0"));
  EXPECT_THAT(ErrorOf(R"({"hidden_act": "gelu"})"), HasSubstr("gelu"));
}

}  // namespace
}  // namespace rivulet
