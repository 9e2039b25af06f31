// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(DeltaNetConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseKeys(ParseDeltaNet, nlohmann::json::object(), 64);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.groups, 16u);
  EXPECT_EQ(config->shape.heads, 16u);
  EXPECT_EQ(config->shape.key_dim, 4u);
  EXPECT_EQ(config->shape.value_dim, 4u);
  EXPECT_FALSE(config->decays);
  EXPECT_TRUE(config->learned_beta);
  EXPECT_FALSE(config->negative_eigenvalues);
  EXPECT_EQ(config->qk_activation, Activation::kSilu);
  EXPECT_FALSE(config->qk_sum_norm);
  EXPECT_FALSE(config->use_gate);
  EXPECT_EQ(config->conv_size, 4u);
  EXPECT_FALSE(config->conv_bias);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseDeltaNet, nlohmann::json::parse(keys), 64);
}

TEST(DeltaNetConfig, ErrorsNameKeyValueAndRemedy) {
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
  const auto error = [](const nlohmann::json& keys) {
    return BFloat16Error(ParseDeltaNet, keys, 64);
  };
  EXPECT_EQ(error(nlohmann::json::object()), "no error");
  EXPECT_THAT(error({{"allow_neg_eigval", true}}),
              AllOf(HasSubstr("allow_neg_eigval is true"), HasSubstr("fp32")));
  EXPECT_THAT(error({{"qk_norm", "sum"}}), AllOf(HasSubstr("sum"), HasSubstr("fp32")));
  EXPECT_EQ(ErrorOf(R"({"qk_norm": "sum"})"), "no error");
}

TEST(GatedDeltaNetConfig, DefaultsAreThoseOfFla) {
  const auto config = ParseKeys(ParseGatedDeltaNet, nlohmann::json::object(), 64);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.groups, 6u);
  EXPECT_EQ(config->shape.heads, 6u);
  EXPECT_EQ(config->shape.key_dim, 256u);
  EXPECT_EQ(config->shape.value_dim, 512u);
  EXPECT_TRUE(config->decays);
  EXPECT_TRUE(config->use_gate);
  EXPECT_EQ(config->tensors, DeltaRuleTensors::kFla);
  EXPECT_EQ(config->conv_size, 4u);
}

TEST(GatedDeltaNetConfig, ValueWidthIsGivenOrExpanded) {
  const auto width = [](const char* json) {
    return ParseKeys(ParseGatedDeltaNet, nlohmann::json::parse(json), 64)->shape.value_dim;
  };
  EXPECT_EQ(width(R"({"head_dim": 96, "expand_v": 1.5})"), 144u);
  EXPECT_EQ(width(R"({"head_dim": 30, "expand_v": 1.1})"), 33u);  // 33.000000000000004
  EXPECT_EQ(width(R"({"head_dim": 128, "value_head_dim": 64})"), 64u);
}

std::string GatedErrorOf(const char* keys) {
  return ParseError(ParseGatedDeltaNet, nlohmann::json::parse(keys), 64);
}

TEST(GatedDeltaNetConfig, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(GatedErrorOf(R"({"num_v_heads": 9})"),
              AllOf(HasSubstr("num_v_heads is 9"), HasSubstr("multiple of num_heads 6")));
  EXPECT_THAT(GatedErrorOf(R"({"num_v_heads": 3})"), HasSubstr("num_v_heads is 3"));
  EXPECT_THAT(GatedErrorOf(R"({"head_dim": 513})"), AllOf(HasSubstr("513"), HasSubstr("512")));
  EXPECT_THAT(GatedErrorOf(R"({"head_dim": 3, "expand_v": 1.5})"),
              AllOf(HasSubstr("expand_v is 1.5"), HasSubstr("whole")));
  EXPECT_THAT(GatedErrorOf(R"({"expand_v": -1})"), HasSubstr("expand_v is -1"));
  EXPECT_THAT(GatedErrorOf(R"({"expand_v": 1e300})"), HasSubstr("expand_v is 1e+300"));
  EXPECT_THAT(GatedErrorOf(R"({"num_heads": 1048576})"), HasSubstr("num_heads is 1048576"));
  EXPECT_THAT(GatedErrorOf(R"({"num_v_heads": 6000})"), HasSubstr("num_v_heads is 6000"));
  EXPECT_THAT(GatedErrorOf(R"({"value_head_dim": 0})"), HasSubstr("value_head_dim is 0"));
}

TEST(GatedDeltaNetConfig, ADecayForgetsRoundingErrors) {
  EXPECT_EQ(BFloat16Error(ParseGatedDeltaNet, {{"allow_neg_eigval", true}, {"head_dim", 16}}, 64),
            "no error");
}

// The layout of the tensors follows from model_type; no key can set it.
TEST(GatedDeltaNetConfig, HasNoKeyForTheLayoutOfTensors) {
  const auto config = ParseKeys(ParseGatedDeltaNet, {{"tensor_layout", "qwen3_next"}}, 64);
  EXPECT_EQ(config->tensors, DeltaRuleTensors::kFla);
}

std::string LogLinearErrorOf(const char* keys) {
  return ParseError(ParseLogLinearGatedDeltaNet, nlohmann::json::parse(keys), 64);
}

TEST(LogLinearGatedDeltaNetConfig, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(LogLinearErrorOf(R"({"num_v_heads": 12})"),
              AllOf(HasSubstr("num_v_heads is 12"), HasSubstr("leave it out")));
  EXPECT_THAT(LogLinearErrorOf(R"({"head_dim": 16, "expand_v": 0.3})"),
              HasSubstr("expand_v is 0.3"));
  EXPECT_THAT(LogLinearErrorOf(R"({"max_levels": 65})"), HasSubstr("max_levels is 65"));
}

}  // namespace
}  // namespace rivulet
