// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/retnet/retnet.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/retnet/retnet_config.h"
#include "kernels/mixers/retnet/retnet_recurrence.h"
#include "kernels/mixers/retnet/retnet_reference.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/retnet/vectors/vectors.json";

std::unique_ptr<SuiteSubject> MakeSubject(const HeadShape& shape) {
  return std::make_unique<DeclaredSubject>(
      RetNetDeclaration(shape), DrawnInputs(),
      [=](const TokenInputs& inputs) { return RetNetReference(shape, inputs); });
}

SuiteCase Core(std::string name, const HeadShape& shape) {
  return {std::move(name), [=] { return MakeSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}),
          Core("d24", {2, 2, 24, 48, kFloat}),
          Core("d32_grouped", {4, 2, 32, 64, kFloat}),
          Core("d64_multi_query", {4, 1, 64, 64, kFloat}),
          Core("d128", {2, 2, 128, 256, kFloat}),
          Core("d256", {1, 1, 256, 512, kFloat}),
          Core("d40_bf16", {2, 2, 40, 80, DType::kBFloat16})};
}

INSTANTIATE_TEST_SUITE_P(RetNet, MixerSuite, testing::ValuesIn(CoreCases()), SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(RetNetLayer, MixerSuite,
                         testing::ValuesIn(LayerCases(kVectors, MakeRetNet)), SuiteCaseName);

TEST(RetNet, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeSubject({p.at("heads"), p.at("kv_heads"), p.at("key_dim"), p.at("value_dim")});
  });
}

TEST(RetNet, LayerVectors) { CheckLayerVectors(kVectors, MakeRetNet); }

TEST(RetNet, DecayIsThatOfTheHead) {
  EXPECT_NEAR(RetentionLogDecay(0), std::log(31.0 / 32.0), 1e-15);
  EXPECT_NEAR(RetentionLogDecay(7), std::log1p(-std::exp2(-12.0)), 1e-15);
  EXPECT_LT(RetentionLogDecay(19), 0.0);
  EXPECT_EQ(RetentionLogDecay(20), 0.0);
}

// The message of the error that this config gives.
std::string ErrorOf(const char* json, size_t hidden = 64) {
  const auto config = ParseRetNetConfig(nlohmann::json::parse(json, nullptr, false), hidden);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message().data(), config.status().message().size());
}

TEST(RetNetConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseRetNetConfig(nlohmann::json::object(), 64);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 8u);
  EXPECT_EQ(config->kv_heads, 8u);
  EXPECT_EQ(config->key_dim, 8u);
  EXPECT_EQ(config->value_dim, 16u);
  EXPECT_EQ(config->feature_map, Activation::kIdentity);
  EXPECT_EQ(config->output.norm_name, "g_norm_swish_gate");
  EXPECT_FALSE(config->use_short_conv);
}

TEST(RetNetConfig, ErrorsNameKeyValueAndRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf(R"({"num_heads": 3})"), HasSubstr("num_heads 3"));
  EXPECT_THAT(ErrorOf(R"({"num_kv_heads": 3})"), HasSubstr("num_kv_heads is 3"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 64})"), AllOf(HasSubstr("width 1 "), HasSubstr("even")));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1})", 1024), AllOf(HasSubstr("1024"), HasSubstr("512")));
  EXPECT_THAT(ErrorOf(R"({"use_short_conv": true, "conv_size": 1})"), HasSubstr("conv_size is 1"));
  EXPECT_THAT(ErrorOf(R"({"feature_map": "elu"})"), AllOf(HasSubstr("elu"), HasSubstr("silu")));
  EXPECT_THAT(ErrorOf(R"({"hidden_act": "gelu"})"), AllOf(HasSubstr("gelu"), HasSubstr("swish")));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": 0})"), HasSubstr("norm_eps is 0"));
}

}  // namespace
}  // namespace rivulet
