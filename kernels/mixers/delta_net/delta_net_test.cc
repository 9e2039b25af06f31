// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_net.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/delta_net/delta_net_config.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/delta_net/vectors/vectors.json";

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {DeltaRuleCase("d16", {3, 3, 16, 16, false, kFloat}, 1.0),
          DeltaRuleCase("d24", {2, 2, 24, 24, false, kFloat}, 1.0),
          DeltaRuleCase("d32_wide", {2, 2, 32, 80, false, kFloat}, 1.0),
          DeltaRuleCase("d64", {4, 4, 64, 64, false, kFloat}, 1.0),
          DeltaRuleCase("d64_negative", {2, 2, 64, 32, false, kFloat}, 1.9),
          DeltaRuleCase("d128", {2, 2, 128, 128, false, kFloat}, 1.0),
          DeltaRuleCase("d256", {1, 1, 256, 256, false, kFloat}, 1.0),
          DeltaRuleCase("d20_odd_values", {2, 2, 20, 37, false, kFloat}, 1.0),
          DeltaRuleCase("d40_bf16", {2, 2, 40, 64, false, DType::kBFloat16}, 1.0)};
}

INSTANTIATE_TEST_SUITE_P(DeltaNet, MixerSuite, testing::ValuesIn(CoreCases()), SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(DeltaNetLayer, MixerSuite,
                         testing::ValuesIn(LayerCases(kVectors, MakeDeltaNet)), SuiteCaseName);

TEST(DeltaNet, CoreVectors) { CheckCoreVectors(kVectors, DeltaRuleSubjectOf); }
TEST(DeltaNet, LayerVectors) { CheckLayerVectors(kVectors, MakeDeltaNet); }

TEST(DeltaNetConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseDeltaNetConfig(nlohmann::json::object(), 64, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.key_heads, 16u);
  EXPECT_EQ(config->shape.value_heads, 16u);
  EXPECT_EQ(config->shape.key_dim, 4u);
  EXPECT_EQ(config->shape.value_dim, 4u);
  EXPECT_FALSE(config->shape.decays);
  EXPECT_TRUE(config->learned_beta);
  EXPECT_FALSE(config->negative_eigenvalues);
  EXPECT_EQ(config->qk_activation, Activation::kSilu);
  EXPECT_FALSE(config->qk_sum_norm);
  EXPECT_FALSE(config->use_gate);
  EXPECT_EQ(config->conv_size, 4u);
  EXPECT_FALSE(config->conv_bias);
}

std::string ErrorOf(const char* json, const MixerOptions& options = {}) {
  const auto config = ParseDeltaNetConfig(nlohmann::json::parse(json), 64, options);
  return config.ok() ? "no error" : std::string(ToStd(config.status().message()));
}

TEST(DeltaNetConfig, ErrorsNameKeyValueAndRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf(R"({"num_heads": 3})"), HasSubstr("num_heads 3"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1, "expand_k": 9})"),
              AllOf(HasSubstr("576"), HasSubstr("512"), HasSubstr("more heads")));
  EXPECT_THAT(ErrorOf(R"({"qk_activation": "gelu"})"),
              AllOf(HasSubstr("gelu"), HasSubstr("identity")));
  EXPECT_THAT(ErrorOf(R"({"qk_norm": "l1"})"), AllOf(HasSubstr("l1"), HasSubstr("sum")));
  EXPECT_THAT(ErrorOf(R"({"conv_size": 17})"), HasSubstr("conv_size is 17"));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": 0})"), HasSubstr("norm_eps is 0"));
  EXPECT_THAT(ErrorOf(R"({"use_beta": 1})"), HasSubstr("use_beta is 1"));
  EXPECT_THAT(ErrorOf(R"({"use_short_conv": false, "conv_size": 1})"), "no error");
}

TEST(DeltaNetConfig, TransitionsThatForgetLittleRefuseBFloat16) {
  using testing::AllOf;
  using testing::HasSubstr;
  const MixerOptions bf16{.state_dtype = DType::kBFloat16};
  EXPECT_EQ(ErrorOf("{}", bf16), "no error");
  EXPECT_THAT(ErrorOf(R"({"allow_neg_eigval": true})", bf16),
              AllOf(HasSubstr("allow_neg_eigval is true"), HasSubstr("fp32")));
  EXPECT_THAT(ErrorOf(R"({"qk_norm": "sum"})", bf16), AllOf(HasSubstr("sum"), HasSubstr("fp32")));
  EXPECT_EQ(ErrorOf(R"({"qk_norm": "sum"})"), "no error");
}

}  // namespace
}  // namespace rivulet
