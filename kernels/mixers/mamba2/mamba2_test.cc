// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mamba2/mamba2_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/mamba2/vectors/vectors.json";

SuiteCase Core(std::string name, const HeadShape& shape, double slowest, double fastest) {
  return {std::move(name), [=] { return MakeMamba2Subject(shape, slowest, fastest); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("n16_p16", {3, 1, 16, 16, kFloat}, 0.1, 1.0),
          Core("n24_p24", {4, 2, 24, 24, kFloat}, 0.01, 0.5),
          Core("n32_p64_one_group", {6, 1, 32, 64, kFloat}, 0.01, 0.3),
          Core("n64_p32", {4, 4, 64, 32, kFloat}, 0.001, 0.1),
          Core("n128_p64", {4, 2, 128, 64, kFloat}, 0.01, 1.0),
          Core("n256_p20", {2, 1, 256, 20, kFloat}, 0.01, 0.1),
          Core("n16_p128_fast_decay", {2, 1, 16, 128, kFloat}, 1.0, 16.0),
          Core("n64_p64_bf16", {4, 1, 64, 64, DType::kBFloat16}, 0.05, 0.5)};
}

INSTANTIATE_TEST_SUITE_P(Mamba2, MixerSuite, testing::ValuesIn(CoreCases()), SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(Mamba2Layer, MixerSuite,
                         testing::ValuesIn(LayerCases(kVectors, MakeMamba2)), SuiteCaseName);

TEST(Mamba2, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("groups"), p.at("state_size"), p.at("head_dim")};
    return MakeMamba2Subject(shape, p.at("slowest"), p.at("fastest"));
  });
}

TEST(Mamba2, LayerVectors) { CheckLayerVectors(kVectors, MakeMamba2); }

absl::StatusOr<Mamba2Config> Parse(const char* json, size_t hidden = 64) {
  return ParseMamba2Config(nlohmann::json::parse(json, nullptr, false), hidden);
}

// The message of the error that this config gives.
std::string ErrorOf(const char* json) {
  const auto config = Parse(json);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message().data(), config.status().message().size());
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
  using testing::AllOf;
  using testing::HasSubstr;
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

}  // namespace
}  // namespace rivulet
