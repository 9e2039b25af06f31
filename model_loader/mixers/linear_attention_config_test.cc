// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string ErrorOf(const char* keys) {
  return ParseError(ParseLinearAttention, nlohmann::json::parse(keys), 64);
}

TEST(LinearAttentionConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseKeys(ParseLinearAttention, nlohmann::json::object(), 64);
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
  EXPECT_THAT(ErrorOf(R"({"num_heads": 5})"), HasSubstr("num_heads 5"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 4, "num_kv_heads": 3})"),
              AllOf(HasSubstr("num_kv_heads is 3"), HasSubstr("divide")));
  EXPECT_THAT(ErrorOf(R"({"feature_map": "cosine"})"),
              AllOf(HasSubstr("cosine"), HasSubstr("hedgehog")));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": -1})"), HasSubstr("norm_eps is -1"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1, "feature_map": "dpfp", "expand_k": 2})"),
              HasSubstr("512"));
  EXPECT_THAT(ErrorOf(R"({"expand_k": "wide"})"), HasSubstr("expand_k"));
}

TEST(LinearAttentionConfig, MapsWithAProjection) {
  const auto config = ParseKeys(ParseLinearAttention,
                                {{"feature_map", "random_relu"}, {"num_random_features", 40}}, 64);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(FeatureCount(config->feature_map), 40u);
  EXPECT_FLOAT_EQ(config->feature_map.input_scale, 0.5f);  // 16^{-1/4}
  EXPECT_FLOAT_EQ(config->feature_map.offset, 1e-3f);
  EXPECT_FALSE(config->feature_map.bias);
  const std::string random = R"("feature_map": "random_exp", "num_random_features": )";
  EXPECT_THAT(ErrorOf(R"({"feature_map": "random_exp"})"),
              HasSubstr("num_random_features is missing"));
  EXPECT_THAT(ErrorOf(("{" + random + "513}").c_str()), HasSubstr("from 1 to 512"));
  EXPECT_THAT(ErrorOf(("{" + random + R"(8, "feature_map_offset": -1})").c_str()),
              HasSubstr("feature_map_offset is -1"));
  EXPECT_THAT(ErrorOf(("{" + random + R"(8, "feature_map_input_scale": 0})").c_str()),
              HasSubstr("feature_map_input_scale is 0"));
}

TEST(LinearAttentionConfig, GrowingSumsRefuseABFloat16State) {
  const auto error = [](const nlohmann::json& keys) {
    return BFloat16Error(ParseLinearAttention, keys, 64);
  };
  for (const char* map : {"elu", "hedgehog", "relu", "t2r", "dpfp", "random_relu", "random_exp"}) {
    EXPECT_THAT(error({{"feature_map", map}, {"num_random_features", 8}}),
                AllOf(HasSubstr("feature_map"), HasSubstr("--state-dtype fp32")));
  }
  EXPECT_EQ(error({{"feature_map", "identity"}}), "no error");
}

}  // namespace
}  // namespace rivulet
