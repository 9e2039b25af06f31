// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gated_deltanet/gated_deltanet.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/gated_deltanet/gated_deltanet_config.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/gated_deltanet/vectors/vectors.json";

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {DeltaRuleCase("d16", {3, 3, 16, 32, true, kFloat}, 1.0, -0.1),
          DeltaRuleCase("d24", {2, 2, 24, 24, true, kFloat}, 1.0, -0.5),
          DeltaRuleCase("d32_grouped", {2, 4, 32, 32, true, kFloat}, 1.0, -0.05),
          DeltaRuleCase("d64_one_key_head", {1, 3, 64, 48, true, kFloat}, 1.0, -0.2),
          DeltaRuleCase("d64_negative", {2, 2, 64, 64, true, kFloat}, 1.9, -0.01),
          DeltaRuleCase("d128_grouped", {1, 2, 128, 128, true, kFloat}, 1.0, -0.1),
          DeltaRuleCase("d256", {1, 1, 256, 256, true, kFloat}, 1.0, -0.02),
          // e^{-c} would overflow: the sum of a chunk's decays reaches -160.
          DeltaRuleCase("d20_fast_decay", {1, 2, 20, 37, true, kFloat}, 1.0, -10.0),
          DeltaRuleCase("d40_bf16", {1, 2, 40, 64, true, DType::kBFloat16}, 1.0, -0.1)};
}

INSTANTIATE_TEST_SUITE_P(GatedDeltaNet, MixerSuite, testing::ValuesIn(CoreCases()), SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(GatedDeltaNetLayer, MixerSuite,
                         testing::ValuesIn(LayerCases(kVectors, MakeGatedDeltaNet)), SuiteCaseName);

TEST(GatedDeltaNet, CoreVectors) { CheckCoreVectors(kVectors, DeltaRuleSubjectOf); }
// One of the layers holds the unused D of old checkpoints; two have Qwen3-Next's tensors.
TEST(GatedDeltaNet, LayerVectors) { CheckLayerVectors(kVectors, MakeGatedDeltaNet); }

TEST(GatedDeltaNetConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseGatedDeltaNetConfig(nlohmann::json::object(), {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.key_heads, 6u);
  EXPECT_EQ(config->shape.value_heads, 6u);
  EXPECT_EQ(config->shape.key_dim, 256u);
  EXPECT_EQ(config->shape.value_dim, 512u);
  EXPECT_TRUE(config->shape.decays);
  EXPECT_TRUE(config->use_gate);
  EXPECT_EQ(config->tensors, DeltaRuleTensors::kFla);
  EXPECT_EQ(config->conv_size, 4u);
}

TEST(GatedDeltaNetConfig, ValueWidthIsGivenOrExpanded) {
  const auto width = [](const char* json) {
    return ParseGatedDeltaNetConfig(nlohmann::json::parse(json), {})->shape.value_dim;
  };
  EXPECT_EQ(width(R"({"head_dim": 96, "expand_v": 1.5})"), 144u);
  EXPECT_EQ(width(R"({"head_dim": 30, "expand_v": 1.1})"), 33u);  // 33.000000000000004
  EXPECT_EQ(width(R"({"head_dim": 128, "value_head_dim": 64})"), 64u);
}

std::string ErrorOf(const char* json) {
  const auto config = ParseGatedDeltaNetConfig(nlohmann::json::parse(json), {});
  return config.ok() ? "no error" : std::string(ToStd(config.status().message()));
}

TEST(GatedDeltaNetConfig, ErrorsNameKeyValueAndRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf(R"({"num_v_heads": 9})"),
              AllOf(HasSubstr("num_v_heads is 9"), HasSubstr("multiple of num_heads 6")));
  EXPECT_THAT(ErrorOf(R"({"num_v_heads": 3})"), HasSubstr("num_v_heads is 3"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 513})"), AllOf(HasSubstr("513"), HasSubstr("512")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 3, "expand_v": 1.5})"),
              AllOf(HasSubstr("expand_v is 1.5"), HasSubstr("whole")));
  EXPECT_THAT(ErrorOf(R"({"expand_v": -1})"), HasSubstr("expand_v is -1"));
  EXPECT_THAT(ErrorOf(R"({"expand_v": 1e300})"), HasSubstr("expand_v is 1e+300"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1048576})"), HasSubstr("num_heads is 1048576"));
  EXPECT_THAT(ErrorOf(R"({"num_v_heads": 6000})"), HasSubstr("num_v_heads is 6000"));
  EXPECT_THAT(ErrorOf(R"({"value_head_dim": 0})"), HasSubstr("value_head_dim is 0"));
  EXPECT_THAT(ErrorOf(R"({"tensor_layout": "qwen2"})"),
              AllOf(HasSubstr("qwen2"), HasSubstr("qwen3_next")));
  EXPECT_THAT(ErrorOf(R"({"tensor_layout": "qwen3_next", "use_gate": false})"),
              HasSubstr("use_gate is false"));
  EXPECT_THAT(ErrorOf(R"({"tensor_layout": "qwen3_next", "use_short_conv": false})"),
              HasSubstr("use_short_conv is false"));
  EXPECT_THAT(ErrorOf(R"({"tensor_layout": "qwen3_next", "conv_bias": true})"),
              HasSubstr("conv_bias is true"));
}

}  // namespace
}  // namespace rivulet
