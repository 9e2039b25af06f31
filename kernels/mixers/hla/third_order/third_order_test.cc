// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/hla/hla_subject.h"
#include "kernels/mixers/hla/third_order/third_order_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

constexpr char kVectors[] = "kernels/mixers/hla/third_order/vectors/vectors.json";

std::unique_ptr<SuiteSubject> MakeSubject(const Json& json) {
  HlaParameters p = ParseHlaParameters(json);
  const bool paper = p.form == "paper";
  p.config.variant = HlaVariant::kThird;
  if (paper) p.config.form = HlaForm::kPaper;
  return MakeHlaSubject(p, [=](const HeadSequence& sequence) {
    return ThirdOrderReference({sequence, paper});
  });
}

// Both forms, with and without each of: decay, normaliser, shared kv heads, odd sizes.
std::vector<SuiteCase> Cases() {
  return HlaCases(
      {
          {"plain", R"({"heads": 2, "key_dim": 32, "value_dim": 32})"},
          {"decay", R"({"heads": 2, "key_dim": 64, "value_dim": 64, "decay_logit": [3.0, 0.5]})"},
          {"decay_d16", R"({"heads": 3, "key_dim": 16, "value_dim": 16,
         "decay_logit": [6.0, -2.0, 2.0]})"},
          {"decay_d24", R"({"heads": 1, "key_dim": 24, "value_dim": 24, "decay_logit": [2.5]})"},
          {"decay_d128", R"({"heads": 1, "key_dim": 128, "value_dim": 128, "decay_logit": [2.5]})"},
          {"decay_d256", R"({"heads": 1, "key_dim": 256, "value_dim": 256, "decay_logit": [2.5]})"},
          {"grouped", R"({"heads": 4, "kv_heads": 2, "key_dim": 16, "value_dim": 24})"},
          {"grouped_decay", R"({"heads": 4, "kv_heads": 1, "key_dim": 16, "value_dim": 16,
         "decay_logit": [3.0, 1.0, 2.0, 5.0]})"},
          {"normalised", R"({"heads": 2, "key_dim": 32, "value_dim": 24, "normalize": true,
         "low": 0.1, "high": 1.1, "decay_logit": [3.0, 1.0]})"},
          {"grouped_normalised", R"({"heads": 4, "kv_heads": 2, "key_dim": 24, "value_dim": 16,
         "normalize": true, "low": 0.1, "high": 1.1})"},
          {"odd", R"({"heads": 2, "key_dim": 6, "value_dim": 5, "decay_logit": [2.0, 1.0]})"},
          {"bf16", R"({"heads": 2, "key_dim": 32, "value_dim": 32, "decay_logit": [3.0, 2.0],
         "bf16": true, "tolerance": 2e-2})"},
          // Without decay the triples it subtracts are nearly all: what is left has their rounding.
          {"paper", R"({"form": "paper", "heads": 2, "key_dim": 16, "value_dim": 24,
         "tolerance": 1e-4})"},
          {"paper_decay", R"({"form": "paper", "heads": 2, "key_dim": 64, "value_dim": 32,
         "decay_logit": [3.0, 0.5]})"},
          {"paper_decay_d128", R"({"form": "paper", "heads": 1, "key_dim": 128, "value_dim": 128,
         "decay_logit": [2.5]})"},
          {"paper_grouped", R"({"form": "paper", "heads": 4, "kv_heads": 2, "key_dim": 24,
         "value_dim": 16, "tolerance": 1e-4})"},
          {"paper_grouped_decay", R"({"form": "paper", "heads": 2, "kv_heads": 1, "key_dim": 6,
         "value_dim": 5, "decay_logit": [3.0, 1.0]})"},
          // Slow decays, as for the serial form: its weights are negative below γ = 1.
          {"paper_normalised", R"({"form": "paper", "heads": 2, "key_dim": 16, "value_dim": 16,
         "normalize": true, "low": 0.1, "high": 1.1})"},
      },
      MakeSubject);
}

INSTANTIATE_TEST_SUITE_P(ThirdOrder, MixerSuite, testing::ValuesIn(BothIntervals(Cases())),
                         SuiteCaseName);

TEST(ThirdOrder, Core) { CheckCoreVectors(kVectors, MakeSubject); }

ThirdOrderReferenceInput SmallInput(bool paper, double gamma) {
  ThirdOrderReferenceInput input;
  input.tokens = 9;
  input.key_dim = 3;
  input.value_dim = 1;
  input.paper = paper;
  input.gamma = gamma;
  for (size_t i = 0; i < input.tokens * input.key_dim; ++i) {
    input.q.push_back(GeneratedNumber("q", 0, i) - 0.5);
    input.k.push_back(GeneratedNumber("k", 0, i) - 0.5);
    if (i < input.tokens) input.v.push_back(GeneratedNumber("v", 0, i) - 0.5);
  }
  return input;
}

double Dot(const double* a, const double* b, size_t count) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// The sum over all triples as in docs/mixers.md#third-order, for the output at t.
double SumOfTriples(const ThirdOrderReferenceInput& input, size_t t) {
  const size_t d = input.key_dim;
  const auto score = [&](size_t q, size_t k) { return Dot(&input.q[q * d], &input.k[k * d], d); };
  double sum = 0.0;
  for (size_t i = 0; i <= t; ++i) {
    for (size_t u = 0; u <= t; ++u) {
      for (size_t j = 0; j <= t; ++j) {
        sum += TripleWeight(input.paper, input.gamma, t, i, u, j) * score(t, i) * score(u, i) *
               score(u, j) * input.v[j];
      }
    }
  }
  return sum;
}

TEST(ThirdOrder, TheReferenceIsTheSumOverTriples) {
  for (const bool paper : {false, true}) {
    for (const double gamma : {1.0, 0.8}) {
      const ThirdOrderReferenceInput input = SmallInput(paper, gamma);
      const std::vector<double> out = ThirdOrderReference(input);
      for (size_t t = 0; t < input.tokens; ++t) {
        EXPECT_NEAR(out[t], SumOfTriples(input, t), 1e-12) << paper << " " << gamma << " at " << t;
      }
    }
  }
}

}  // namespace
}  // namespace rivulet
