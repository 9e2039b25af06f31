// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/hla.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/hla/hla_config.h"
#include "kernels/mixers/hla/hla_recurrence.h"
#include "kernels/mixers/hla/hla_reference.h"
#include "kernels/mixers/hla/hla_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

constexpr char kVectors[] = "kernels/mixers/hla/vectors/vectors.json";

HlaForm FormOf(const std::string& name) {
  if (name == "serial") return HlaForm::kSerial;
  return name == "none" ? HlaForm::kUnmasked : HlaForm::kMasked;
}

std::unique_ptr<SuiteSubject> MakeSubject(const Json& json) {
  const HlaParameters p = ParseHlaParameters(json);
  const HlaForm form = FormOf(p.form);
  return MakeHlaSubject(p, HlaDeclaration(p.shape, form, p.ridge_lambda, p.log_gamma),
                        [=](const HeadSequence& sequence) {
                          return HlaReference({sequence, form, json.value("ridge_lambda", 0.0)});
                        });
}

// Every form, with and without each of: decay, ridge, normaliser, shared kv heads, odd sizes.
std::vector<SuiteCase> Cases() {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"masked", R"({"heads": 2, "key_dim": 32, "value_dim": 32})"},
      {"masked_decay",
       R"({"heads": 2, "key_dim": 64, "value_dim": 64, "decay_logit": [3.0, 0.5]})"},
      {"masked_decay_d16", R"({"heads": 3, "key_dim": 16, "value_dim": 16,
         "decay_logit": [6.0, -2.0, 2.0]})"},
      {"masked_decay_d128", R"({"heads": 1, "key_dim": 128, "value_dim": 128,
         "decay_logit": [2.5]})"},
      {"masked_decay_d24", R"({"heads": 1, "key_dim": 24, "value_dim": 24, "decay_logit": [2.5]})"},
      {"masked_decay_d256", R"({"heads": 1, "key_dim": 256, "value_dim": 256,
         "decay_logit": [2.5]})"},
      {"serial_decay_d128", R"({"form": "serial", "heads": 1, "key_dim": 128, "value_dim": 128,
         "decay_logit": [2.5]})"},
      {"none_decay_d256", R"({"form": "none", "heads": 1, "key_dim": 256, "value_dim": 64,
         "decay_logit": [2.5]})"},
      {"masked_grouped", R"({"heads": 4, "kv_heads": 2, "key_dim": 16, "value_dim": 24})"},
      {"masked_grouped_decay", R"({"heads": 4, "kv_heads": 2, "key_dim": 16, "value_dim": 16,
         "decay_logit": [3.0, 1.0, 2.0, 5.0]})"},
      {"masked_ridge", R"({"heads": 2, "key_dim": 24, "value_dim": 40, "ridge_lambda": 0.5,
         "decay_logit": [3.0, 1.0]})"},
      {"masked_normalised", R"({"heads": 2, "key_dim": 32, "value_dim": 32, "normalize": true,
         "low": 0.1, "high": 1.1, "decay_logit": [3.0, 1.0]})"},
      {"masked_ridge_normalised", R"({"heads": 2, "key_dim": 16, "value_dim": 16, "normalize": true,
         "ridge_lambda": 0.3, "low": 0.1, "high": 1.1})"},
      {"masked_signed_normalised", R"({"heads": 1, "key_dim": 32, "value_dim": 16,
         "normalize": true, "low": -0.4, "high": 1.0, "decay_logit": [4.0], "tolerance": 1e-4})"},
      {"masked_odd", R"({"heads": 2, "key_dim": 6, "value_dim": 5, "decay_logit": [2.0, 1.0]})"},
      {"masked_bf16", R"({"heads": 2, "key_dim": 32, "value_dim": 32, "decay_logit": [3.0, 2.0],
         "bf16": true, "tolerance": 2e-2})"},
      {"serial", R"({"form": "serial", "heads": 2, "key_dim": 32, "value_dim": 32})"},
      {"serial_decay", R"({"form": "serial", "heads": 2, "key_dim": 64, "value_dim": 32,
         "decay_logit": [3.0, 0.5]})"},
      {"serial_grouped", R"({"form": "serial", "heads": 4, "kv_heads": 1, "key_dim": 16,
         "value_dim": 24, "decay_logit": [3.0, 0.5, 1.0, 2.0]})"},
      // Only slow decays: the serial form has negative weights below γ = 1, and its denominator
      // nears zero as they grow (docs/mixers.md#hla-definitions).
      {"serial_ridge_normalised", R"({"form": "serial", "heads": 2, "key_dim": 16, "value_dim": 16,
         "normalize": true, "ridge_lambda": 0.3, "low": 0.1, "high": 1.1,
         "decay_logit": [7.0, 8.0]})"},
      {"serial_normalised", R"({"form": "serial", "heads": 2, "key_dim": 16, "value_dim": 16,
         "normalize": true, "low": 0.1, "high": 1.1})"},
      {"none_decay", R"({"form": "none", "heads": 2, "key_dim": 32, "value_dim": 24,
         "decay_logit": [3.0, 0.5]})"},
      {"none_ridge_normalised", R"({"form": "none", "heads": 4, "kv_heads": 2, "key_dim": 16,
         "value_dim": 16, "normalize": true, "ridge_lambda": 0.3, "low": 0.1, "high": 1.1})"},
  };
  std::vector<SuiteCase> result;
  result.reserve(cases.size());
  for (const auto& [name, parameters] : cases) {
    result.push_back({name, [text = parameters] { return MakeSubject(Json::parse(text)); }});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Hla, MixerSuite, testing::ValuesIn(Cases()), SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(HlaLayer, MixerSuite, testing::ValuesIn(LayerCases(kVectors, MakeHla)),
                         SuiteCaseName);

TEST(Hla, Core) { CheckCoreVectors(kVectors, MakeSubject); }
TEST(Hla, Layers) { CheckLayerVectors(kVectors, MakeHla); }

// Theorem 3.1 of the paper: without decay both are the same function, though one keeps [S, F] and
// the other [S, C, G].
TEST(Hla, MaskedIsSerialWithoutDecay) {
  HlaReferenceInput input;
  input.tokens = 40;
  input.key_dim = 4;
  input.value_dim = 3;
  for (size_t i = 0; i < input.tokens * 4; ++i) {
    input.q.push_back(GeneratedNumber("q", 0, i) - 0.5);
    input.k.push_back(GeneratedNumber("k", 0, i) - 0.5);
    if (i < input.tokens * 3) input.v.push_back(GeneratedNumber("v", 0, i) - 0.5);
  }
  const std::vector<double> masked = HlaReference(input);
  input.form = HlaForm::kSerial;
  const std::vector<double> serial = HlaReference(input);
  for (size_t i = 0; i < masked.size(); ++i) EXPECT_NEAR(masked[i], serial[i], 1e-12);
}

TEST(Hla, LogDecaysAreThoseOfTheSigmoid) {
  AlignedBuffer<float> logits(3);
  logits[0] = 6.9067548f;  // γ = 0.999
  logits[1] = -90.0f;
  logits[2] = 40.0f;  // 1 - γ is far below fp32's resolution at 1
  const std::vector<double> log_gamma = LogDecays(logits);
  EXPECT_NEAR(log_gamma[0], std::log(0.999), 1e-9);
  EXPECT_DOUBLE_EQ(log_gamma[1], -90.0);
  EXPECT_DOUBLE_EQ(log_gamma[2], -std::exp(-40.0));
}

std::string ConfigError(const Json& changes, MixerOptions options = {}) {
  Json config = {{"num_heads", 4}, {"head_dim", 16}};
  config.update(changes);
  return std::string(ToStd(ParseHlaConfig(config, 64, options).status().message()));
}

TEST(HlaConfig, Defaults) {
  const auto config = ParseHlaConfig({{"num_heads", 4}, {"rope_theta", nullptr}}, 64, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.key_dim, 16u);
  EXPECT_EQ(config->shape.value_dim, 16u);
  EXPECT_EQ(config->shape.kv_heads, 4u);
  EXPECT_EQ(config->form, HlaForm::kMasked);
  EXPECT_FLOAT_EQ(config->qk_scale, 0.25f);
  EXPECT_TRUE(config->use_output_gate);
  EXPECT_FALSE(config->use_decay);
  EXPECT_EQ(config->conv_size, 0u);
}

// Each message names the key.
TEST(HlaConfig, RefusesWhatMakesNoSense) {
  using testing::HasSubstr;
  const std::vector<std::pair<std::string, Json>> wrong = {
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
    EXPECT_THAT(ConfigError(changes), HasSubstr(key)) << changes;
  }
  EXPECT_FALSE(ParseHlaConfig(Json::array(), 64, {}).ok());
}

TEST(HlaConfig, GrowingSumsRefuseBFloat16) {
  const MixerOptions bf16{.state_dtype = DType::kBFloat16};
  const Json asymmetric = {{"hla_variant", "asymmetric"}};
  EXPECT_THAT(ConfigError(Json::object(), bf16), testing::HasSubstr("fp32"));
  EXPECT_EQ(ConfigError({{"use_decay", true}}, bf16), "");
  EXPECT_THAT(ConfigError({{"hla_variant", "third"}}, bf16), testing::HasSubstr("fp32"));
  EXPECT_EQ(ConfigError({{"hla_variant", "third"}, {"use_decay", true}}, bf16), "");
  EXPECT_THAT(
      ConfigError({{"hla_variant", "third"}, {"hla_form", "paper"}, {"use_decay", true}}, bf16),
      testing::HasSubstr("fp32"));
  EXPECT_EQ(ConfigError(Json::object()), "");
  EXPECT_EQ(ConfigError(asymmetric, bf16), "");
  EXPECT_THAT(ConfigError({{"hla_variant", "asymmetric"}, {"qk_activation", "elu1"}}, bf16),
              testing::HasSubstr("fp32"));
}

}  // namespace
}  // namespace rivulet
