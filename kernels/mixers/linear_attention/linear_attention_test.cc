// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/linear_attention.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/linear_attention/linear_attention_config.h"
#include "kernels/mixers/linear_attention/linear_attention_recurrence.h"
#include "kernels/mixers/linear_attention/linear_attention_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/linear_attention/vectors/vectors.json";

std::unique_ptr<SuiteSubject> MakeSubject(const HeadShape& shape, bool normalised) {
  DrawnInputs drawn;
  if (normalised) drawn.q.low = drawn.k.low = 0.0;
  return std::make_unique<DeclaredSubject>(
      LinearAttentionDeclaration(shape, normalised), drawn, [=](const TokenInputs& inputs) {
        return LinearAttentionReference(shape, inputs, normalised);
      });
}

SuiteCase Core(std::string name, const HeadShape& shape, bool normalised) {
  return {std::move(name), [=] { return MakeSubject(shape, normalised); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}, false),
          Core("d24_normalised", {2, 2, 24, 24, kFloat}, true),
          Core("d32_grouped", {4, 2, 32, 32, kFloat}, false),
          Core("d64_normalised_grouped", {4, 1, 64, 64, kFloat}, true),
          Core("d128", {2, 2, 128, 128, kFloat}, false),
          Core("d256", {1, 1, 256, 256, kFloat}, false),
          Core("d512_e20", {1, 1, 512, 20, kFloat}, true),
          Core("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, false)};
}

INSTANTIATE_TEST_SUITE_P(LinearAttention, MixerSuite, testing::ValuesIn(CoreCases()),
                         SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(LinearAttentionLayer, MixerSuite,
                         testing::ValuesIn(LayerCases(kVectors, MakeLinearAttention)),
                         SuiteCaseName);

TEST(LinearAttention, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("kv_heads"), p.at("features"), p.at("value_dim")};
    return MakeSubject(shape, p.at("normalised"));
  });
}

TEST(LinearAttention, LayerVectors) { CheckLayerVectors(kVectors, MakeLinearAttention); }

// The message of the error that this config gives.
std::string ErrorOf(const char* json, MixerOptions options = {}) {
  const auto config =
      ParseLinearAttentionConfig(nlohmann::json::parse(json, nullptr, false), 64, options);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message().data(), config.status().message().size());
}

TEST(LinearAttentionConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseLinearAttentionConfig(nlohmann::json::object(), 64, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 4u);
  EXPECT_EQ(config->kv_heads, 4u);
  EXPECT_EQ(config->key_dim, 16u);
  EXPECT_EQ(config->value_dim, 16u);
  EXPECT_EQ(config->feature_map.kind, FeatureMapKind::kElementwiseProduct);
  EXPECT_FALSE(config->normalised);
  EXPECT_TRUE(config->affine);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-6f);
}

TEST(LinearAttentionConfig, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"num_heads": 5})"), testing::HasSubstr("num_heads 5"));
  EXPECT_THAT(
      ErrorOf(R"({"num_heads": 4, "num_kv_heads": 3})"),
      testing::AllOf(testing::HasSubstr("num_kv_heads is 3"), testing::HasSubstr("divide")));
  EXPECT_THAT(ErrorOf(R"({"feature_map": "cosine"})"),
              testing::AllOf(testing::HasSubstr("cosine"), testing::HasSubstr("hedgehog")));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": -1})"), testing::HasSubstr("norm_eps is -1"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1, "feature_map": "dpfp", "expand_k": 2})"),
              testing::HasSubstr("512"));
  EXPECT_THAT(ErrorOf(R"({"expand_k": "wide"})"), testing::HasSubstr("expand_k"));
}

TEST(LinearAttentionConfig, MapsWithAProjection) {
  const auto config = ParseLinearAttentionConfig(
      {{"feature_map", "random_relu"}, {"num_random_features", 40}}, 64, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(FeatureCount(config->feature_map), 40u);
  EXPECT_FLOAT_EQ(config->feature_map.input_scale, 0.5f);  // 16^{-1/4}
  EXPECT_FLOAT_EQ(config->feature_map.offset, 1e-3f);
  EXPECT_FALSE(config->feature_map.bias);
  const std::string random = R"("feature_map": "random_exp", "num_random_features": )";
  EXPECT_THAT(ErrorOf(R"({"feature_map": "random_exp"})"),
              testing::HasSubstr("num_random_features is missing"));
  EXPECT_THAT(ErrorOf(("{" + random + "513}").c_str()), testing::HasSubstr("from 1 to 512"));
  EXPECT_THAT(ErrorOf(("{" + random + R"(8, "feature_map_offset": -1})").c_str()),
              testing::HasSubstr("feature_map_offset is -1"));
  EXPECT_THAT(ErrorOf(("{" + random + R"(8, "feature_map_input_scale": 0})").c_str()),
              testing::HasSubstr("feature_map_input_scale is 0"));
}

TEST(LinearAttentionConfig, GrowingSumsRefuseABFloat16State) {
  const MixerOptions bf16{.state_dtype = DType::kBFloat16};
  for (const char* json :
       {R"({"feature_map": "elu"})", R"({"feature_map": "hedgehog"})", R"({"feature_map": "relu"})",
        R"({"feature_map": "t2r"})", R"({"feature_map": "dpfp"})",
        R"({"feature_map": "random_relu", "num_random_features": 8})",
        R"({"feature_map": "random_exp", "num_random_features": 8})"}) {
    EXPECT_THAT(ErrorOf(json, bf16), testing::AllOf(testing::HasSubstr("--state-dtype bf16"),
                                                    testing::HasSubstr("--state-dtype fp32")));
    EXPECT_EQ(ErrorOf(json), "no error");
  }
  EXPECT_EQ(ErrorOf(R"({"feature_map": "identity"})", bf16), "no error");
}

}  // namespace
}  // namespace rivulet
