// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/hla/hla_config.h"
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
  HlaParameters p = ParseHlaParameters(json);
  const HlaForm form = p.config.form = FormOf(p.form);
  return MakeHlaSubject(p, [=](const HeadSequence& sequence) {
    return HlaReference({sequence, form, json.value("ridge_lambda", 0.0)});
  });
}

// Every form, with and without each of: decay, ridge, normaliser, shared kv heads, odd sizes.
std::vector<SuiteCase> Cases() {
  return HlaCases(
      {
          {"masked", R"({"heads": 2, "key_dim": 32, "value_dim": 32})"},
          {"masked_decay",
           R"({"heads": 2, "key_dim": 64, "value_dim": 64, "decay_logit": [3.0, 0.5]})"},
          {"masked_decay_d16", R"({"heads": 3, "key_dim": 16, "value_dim": 16,
         "decay_logit": [6.0, -2.0, 2.0]})"},
          {"masked_decay_d128", R"({"heads": 1, "key_dim": 128, "value_dim": 128,
         "decay_logit": [2.5]})"},
          {"masked_decay_d24",
           R"({"heads": 1, "key_dim": 24, "value_dim": 24, "decay_logit": [2.5]})"},
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
          {"masked_ridge_normalised",
           R"({"heads": 2, "key_dim": 16, "value_dim": 16, "normalize": true,
         "ridge_lambda": 0.3, "low": 0.1, "high": 1.1})"},
          {"masked_signed_normalised", R"({"heads": 1, "key_dim": 32, "value_dim": 16,
         "normalize": true, "low": -0.4, "high": 1.0, "decay_logit": [4.0], "tolerance": 1e-4})"},
          {"masked_odd",
           R"({"heads": 2, "key_dim": 6, "value_dim": 5, "decay_logit": [2.0, 1.0]})"},
          {"masked_bf16", R"({"heads": 2, "key_dim": 32, "value_dim": 32, "decay_logit": [3.0, 2.0],
         "bf16": true, "tolerance": 2e-2})"},
          {"serial", R"({"form": "serial", "heads": 2, "key_dim": 32, "value_dim": 32})"},
          {"serial_decay", R"({"form": "serial", "heads": 2, "key_dim": 64, "value_dim": 32,
         "decay_logit": [3.0, 0.5]})"},
          {"serial_grouped", R"({"form": "serial", "heads": 4, "kv_heads": 1, "key_dim": 16,
         "value_dim": 24, "decay_logit": [3.0, 0.5, 1.0, 2.0]})"},
          // Only slow decays: the serial form has negative weights below γ = 1, and its denominator
          // nears zero as they grow (docs/mixers.md#hla-definitions).
          {"serial_ridge_normalised",
           R"({"form": "serial", "heads": 2, "key_dim": 16, "value_dim": 16,
         "normalize": true, "ridge_lambda": 0.3, "low": 0.1, "high": 1.1,
         "decay_logit": [7.0, 8.0]})"},
          {"serial_normalised", R"({"form": "serial", "heads": 2, "key_dim": 16, "value_dim": 16,
         "normalize": true, "low": 0.1, "high": 1.1})"},
          {"none_decay", R"({"form": "none", "heads": 2, "key_dim": 32, "value_dim": 24,
         "decay_logit": [3.0, 0.5]})"},
          {"none_ridge_normalised", R"({"form": "none", "heads": 4, "kv_heads": 2, "key_dim": 16,
         "value_dim": 16, "normalize": true, "ridge_lambda": 0.3, "low": 0.1, "high": 1.1})"},
      },
      MakeSubject);
}

INSTANTIATE_TEST_SUITE_P(Hla, MixerSuite, testing::ValuesIn(BothIntervals(Cases())), SuiteCaseName);

TEST(Hla, Core) { CheckCoreVectors(kVectors, MakeSubject); }

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

}  // namespace
}  // namespace rivulet
