// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string ErrorOf(const char* keys, size_t hidden = 64) {
  return ParseError(ParseRetNet, nlohmann::json::parse(keys), hidden);
}

TEST(RetNetConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseKeys(ParseRetNet, nlohmann::json::object(), 64);
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
  EXPECT_THAT(ErrorOf(R"({"num_heads": 3})"), HasSubstr("num_heads 3"));
  EXPECT_THAT(ErrorOf(R"({"num_kv_heads": 3})"), HasSubstr("num_kv_heads is 3"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 64})"), AllOf(HasSubstr("width 1 "), HasSubstr("even")));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 1})", 1024), AllOf(HasSubstr("1024"), HasSubstr("512")));
  EXPECT_THAT(ErrorOf(R"({"use_short_conv": true, "conv_size": 1})"), HasSubstr("conv_size is 1"));
  EXPECT_THAT(ErrorOf(R"({"feature_map": "elu"})"), AllOf(HasSubstr("elu"), HasSubstr("silu")));
  EXPECT_THAT(ErrorOf(R"({"hidden_act": "gelu"})"), AllOf(HasSubstr("gelu"), HasSubstr("swish")));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": 0})"), HasSubstr("norm_eps is 0"));
}

// The features of the slow heads add up faster than they decay.
TEST(RetNetConfig, NonNegativeFeaturesRefuseBFloat16) {
  const auto error = [](const char* map) {
    return BFloat16Error(ParseRetNet, {{"feature_map", map}}, 64);
  };
  EXPECT_EQ(error("identity"), "no error");
  EXPECT_EQ(error("silu"), "no error");
  EXPECT_THAT(error("relu"), AllOf(HasSubstr("feature_map"), HasSubstr("--state-dtype fp32")));
  EXPECT_THAT(error("sigmoid"), HasSubstr("--state-dtype fp32"));
}

}  // namespace
}  // namespace rivulet
