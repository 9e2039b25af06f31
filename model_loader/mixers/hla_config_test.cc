// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

nlohmann::json Keys(const nlohmann::json& changes) {
  nlohmann::json keys = {{"num_heads", 4}, {"head_dim", 16}};
  keys.update(changes);
  return keys;
}

TEST(HlaConfig, Defaults) {
  const auto config = ParseKeys(ParseHla, {{"num_heads", 4}, {"rope_theta", nullptr}}, 64);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.key_dim, 16u);
  EXPECT_EQ(config->shape.value_dim, 16u);
  EXPECT_EQ(config->shape.groups, 4u);
  EXPECT_EQ(config->form, HlaForm::kMasked);
  EXPECT_FLOAT_EQ(config->qk_scale, 0.25f);
  EXPECT_TRUE(config->use_output_gate);
  EXPECT_FALSE(config->use_decay);
  EXPECT_EQ(config->conv_size, 0u);
}

// Each message names the key.
TEST(HlaConfig, RefusesWhatMakesNoSense) {
  const std::vector<std::pair<std::string, nlohmann::json>> wrong = {
      {"num_heads", {{"num_heads", 0}}},
      {"num_heads", {{"num_heads", "four"}}},
      {"num_heads", {{"num_heads", nullptr}}},
      {"num_kv_heads", {{"num_kv_heads", 3}}},
      {"num_kv_heads", {{"num_kv_heads", 8}}},
      {"head_dim", {{"head_dim", 513}}},
      {"head_dim", {{"head_dim", -1}}},
      {"expand_v", {{"expand_v", 0.0}}},
      {"expand_v", {{"expand_v", 1e9}}},
      {"hla_form", {{"hla_form", "paper"}}},
      {"hla_form", {{"hla_form", "paper"}, {"hla_variant", "asymmetric"}}},
      {"hla_form", {{"hla_form", "serial"}, {"hla_variant", "third"}}},
      {"hla_form", {{"hla_form", "none"}, {"hla_variant", "third"}}},
      {"hla_variant", {{"hla_variant", 2}}},
      {"ridge_lambda", {{"ridge_lambda", -1}}},
      {"ridge_lambda", {{"ridge_lambda", 0.1}, {"hla_variant", "asymmetric"}}},
      {"ridge_lambda", {{"ridge_lambda", 0.1}, {"hla_variant", "third"}}},
      {"qk_activation", {{"qk_activation", "gelu"}}},
      {"qk_norm", {{"qk_norm", true}}},
      {"qk_scale", {{"qk_scale", 0}}},
      {"rope_theta", {{"rope_theta", 0.5}}},
      {"rope_theta", {{"rope_theta", 10000.0}, {"qk_activation", "relu"}}},
      {"head size 15", {{"rope_theta", 10000.0}, {"head_dim", 15}}},
      {"conv_size", {{"use_short_conv", true}, {"conv_size", 17}}},
      {"conv_size", {{"use_short_conv", true}, {"conv_size", 1}}},
      {"conv_bias", {{"use_short_conv", true}, {"conv_bias", true}}},
      {"normalize", {{"normalize", 1}}},
      {"norm_eps", {{"norm_eps", -1e-5}}},
  };
  for (const auto& [key, changes] : wrong) {
    EXPECT_THAT(ParseError(ParseHla, Keys(changes), 64), HasSubstr(key)) << changes;
  }
  EXPECT_FALSE(ParseKeys(ParseHla, nlohmann::json::array(), 64).ok());
}

TEST(HlaConfig, GrowingSumsRefuseBFloat16) {
  const auto error = [](const nlohmann::json& changes) {
    return BFloat16Error(ParseHla, Keys(changes), 64);
  };
  EXPECT_THAT(error(nlohmann::json::object()), HasSubstr("fp32"));
  EXPECT_EQ(error({{"use_decay", true}}), "no error");
  EXPECT_THAT(error({{"hla_variant", "third"}}), HasSubstr("fp32"));
  EXPECT_EQ(error({{"hla_variant", "third"}, {"use_decay", true}}), "no error");
  EXPECT_THAT(error({{"hla_variant", "third"}, {"hla_form", "paper"}, {"use_decay", true}}),
              AllOf(HasSubstr("hla_form"), HasSubstr("fp32")));
  EXPECT_EQ(error({{"hla_variant", "asymmetric"}}), "no error");
  EXPECT_THAT(error({{"hla_variant", "asymmetric"}, {"qk_activation", "elu1"}}),
              AllOf(HasSubstr("use_decay is false"), HasSubstr("fp32")));
}

}  // namespace
}  // namespace rivulet
