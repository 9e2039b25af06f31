// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<Mamba2Config> Parse(const char* json, size_t hidden = 64) {
  return ParseKeys(ParseMamba2, nlohmann::json::parse(json), hidden);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseMamba2, nlohmann::json::parse(keys), 64);
}

TEST(Mamba2Config, TakesThreeSpellings) {
  const auto hf = Parse(R"({"num_heads": 8, "head_dim": 16, "state_size": 32, "n_groups": 2,
      "conv_kernel": 3, "use_bias": true, "use_conv_bias": false, "layer_norm_epsilon": 1e-4,
      "time_step_limit": [0.5, {"__float__": "Infinity"}]})");
  const auto fla = Parse(R"({"num_heads": 8, "head_dim": 16, "state_size": 32, "n_groups": 2,
      "conv_kernel": 3, "use_bias": true, "use_conv_bias": false, "norm_eps": 1e-4,
      "dt_limit": [0.5, {"__float__": "Infinity"}], "D_has_hdim": true})");
  const auto spaces = Parse(R"({"norm_eps": 1e-4, "ssm_cfg": {"headdim": 16, "d_state": 32,
      "ngroups": 2, "d_conv": 3, "bias": true, "conv_bias": false, "dt_limit": [0.5, 3]}})");
  for (const auto* config : {&hf, &fla, &spaces}) {
    ASSERT_TRUE(config->ok()) << config->status();
    EXPECT_EQ((*config)->heads, 8u);
    EXPECT_EQ((*config)->head_dim, 16u);
    EXPECT_EQ((*config)->state_size, 32u);
    EXPECT_EQ((*config)->groups, 2u);
    EXPECT_EQ((*config)->conv_kernel, 3u);
    EXPECT_TRUE((*config)->use_bias);
    EXPECT_FALSE((*config)->use_conv_bias);
    EXPECT_FLOAT_EQ((*config)->norm_eps, 1e-4f);
    EXPECT_EQ((*config)->delta_low, 0.5f);
  }
  EXPECT_TRUE(std::isinf(hf->delta_high));
  EXPECT_EQ(spaces->delta_high, 3.0f);
  EXPECT_TRUE(fla->skip_by_channel);
}

TEST(Mamba2Config, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"num_heads": 3, "head_dim": 16, "expand": 2})"),
              AllOf(HasSubstr("num_heads 3"), HasSubstr("head_dim 16"), HasSubstr("expand 2")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 48})"), HasSubstr("head_dim 48"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "n_groups": 3})"),
              AllOf(HasSubstr("n_groups is 3"), HasSubstr("num_heads 8")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "state_size": 1024})"), HasSubstr("state_size is 1024"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "time_step_limit": [2, 1]})"),
              AllOf(HasSubstr("time_step_limit is [2,1]"), HasSubstr("low <= high")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "dt_limit": [0]})"), HasSubstr("dt_limit is [0]"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "dt_limit": "none"})"), HasSubstr("dt_limit"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "norm_eps": 0})"), HasSubstr("norm_eps is 0"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "hidden_act": "gelu"})"), HasSubstr("gelu"));
  EXPECT_THAT(ErrorOf(R"({"expand": 1e30})"), HasSubstr("expand is 1e+30"));
}

// Where a model has several groups, transformers normalises all channels together.
TEST(Mamba2Config, NormGroupsAreTheGroupsOrOne) {
  EXPECT_EQ(Parse(R"({"head_dim": 16, "n_groups": 4})")->norm_groups, 4u);
  EXPECT_EQ(Parse(R"({"head_dim": 16, "n_groups": 4, "norm_groups": 1})")->norm_groups, 1u);
  EXPECT_THAT(ErrorOf(R"({"head_dim": 16, "n_groups": 4, "norm_groups": 2})"),
              AllOf(HasSubstr("norm_groups is 2"), HasSubstr("1 or n_groups 4")));
}

std::string LogLinearErrorOf(const nlohmann::json& keys) {
  return ParseError(ParseLogLinearMamba2, keys, 16);
}

TEST(LogLinearMamba2Config, ErrorsNameKeyValueAndRemedy) {
  nlohmann::json keys = {{"head_dim", 16}, {"state_size", 16}};
  EXPECT_EQ(LogLinearErrorOf(keys), "no error");
  keys["max_levels"] = 0;
  EXPECT_THAT(LogLinearErrorOf(keys), HasSubstr("max_levels is 0"));
  keys["n_groups"] = 2;
  EXPECT_THAT(LogLinearErrorOf(keys), AllOf(HasSubstr("n_groups is 2"), HasSubstr("set it to 1")));
}

}  // namespace
}  // namespace rivulet
