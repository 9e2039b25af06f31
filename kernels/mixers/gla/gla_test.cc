// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gla/gla.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/gla/gla_config.h"
#include "kernels/mixers/gla/gla_recurrence.h"
#include "kernels/mixers/gla/gla_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/gla/vectors/vectors.json";

// Log decays are drawn from [lowest, 0).
std::unique_ptr<SuiteSubject> MakeSubject(const HeadShape& shape, double lowest) {
  DrawnInputs drawn;
  drawn.decay.low = lowest;
  return std::make_unique<DeclaredSubject>(
      GlaDeclaration(shape), drawn,
      [=](const TokenInputs& inputs) { return GlaReference(shape, inputs); });
}

SuiteCase Core(std::string name, const HeadShape& shape, double lowest) {
  return {std::move(name), [=] { return MakeSubject(shape, lowest); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}, -0.1), Core("d24", {2, 2, 24, 24, kFloat}, -0.5),
          Core("d32_grouped", {4, 2, 32, 32, kFloat}, -0.05),
          Core("d64_multi_query", {4, 1, 64, 64, kFloat}, -0.2),
          Core("d128", {2, 2, 128, 128, kFloat}, -0.1),
          Core("d256", {1, 1, 256, 256, kFloat}, -0.01),
          // e^{-c} would overflow: the sum of a chunk's decays reaches -160.
          Core("d20_fast_decay", {2, 1, 20, 40, kFloat}, -10.0),
          Core("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, -0.1)};
}

INSTANTIATE_TEST_SUITE_P(Gla, MixerSuite, testing::ValuesIn(CoreCases()), SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(GlaLayer, MixerSuite, testing::ValuesIn(LayerCases(kVectors, MakeGla)),
                         SuiteCaseName);

TEST(Gla, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("kv_heads"), p.at("key_dim"), p.at("value_dim")};
    return MakeSubject(shape, p.at("lowest"));
  });
}

TEST(Gla, LayerVectors) { CheckLayerVectors(kVectors, MakeGla); }

// The message of the error that this config gives.
std::string ErrorOf(const char* json) {
  const auto config = ParseGlaConfig(nlohmann::json::parse(json, nullptr, false), 64);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message().data(), config.status().message().size());
}

TEST(GlaConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseGlaConfig(nlohmann::json::object(), 64);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 4u);
  EXPECT_EQ(config->kv_heads, 4u);
  EXPECT_EQ(config->key_dim, 8u);
  EXPECT_EQ(config->value_dim, 16u);
  EXPECT_EQ(config->output.norm_name, "g_norm_swish_gate");
  EXPECT_TRUE(config->output.gate);
  EXPECT_FALSE(config->use_short_conv);
  EXPECT_EQ(config->gate_rank, 16u);
  EXPECT_FLOAT_EQ(config->gate_logit_normalizer, 16.0f);
  EXPECT_FALSE(config->clamp_min.has_value());
}

TEST(GlaConfig, TheNormIsNamedAfterHowItIsFused) {
  const auto name = [](const char* json) {
    return ParseGlaConfig(nlohmann::json::parse(json), 64)->output.norm_name;
  };
  EXPECT_EQ(name(R"({"fuse_norm": false})"), "g_norm");
  EXPECT_EQ(name(R"({"use_output_gate": false})"), "g_norm");
  EXPECT_EQ(name(R"({"fuse_norm": true})"), "g_norm_swish_gate");
}

TEST(GlaConfig, ErrorsNameKeyValueAndRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf(R"({"num_heads": 3})"), HasSubstr("num_heads 3"));
  EXPECT_THAT(ErrorOf(R"({"num_kv_heads": 3})"),
              AllOf(HasSubstr("num_kv_heads is 3"), HasSubstr("num_heads 4")));
  EXPECT_THAT(ErrorOf(R"({"use_short_conv": true, "conv_size": 1})"), HasSubstr("conv_size is 1"));
  EXPECT_THAT(ErrorOf(R"({"feature_map": "hedgehog"})"),
              AllOf(HasSubstr("hedgehog"), HasSubstr("silu")));
  EXPECT_THAT(ErrorOf(R"({"hidden_act": "gelu"})"), AllOf(HasSubstr("gelu"), HasSubstr("swish")));
  EXPECT_THAT(ErrorOf(R"({"clamp_min": 1})"), HasSubstr("clamp_min is 1"));
  EXPECT_THAT(ErrorOf(R"({"gate_logit_normalizer": 0})"), HasSubstr("gate_logit_normalizer is 0"));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": "small"})"), HasSubstr("norm_eps"));
}

}  // namespace
}  // namespace rivulet
