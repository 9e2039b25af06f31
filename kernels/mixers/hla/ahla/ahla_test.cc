// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/hla/ahla/ahla_reference.h"
#include "kernels/mixers/hla/hla_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

constexpr char kVectors[] = "kernels/mixers/hla/ahla/vectors/vectors.json";

std::unique_ptr<SuiteSubject> MakeSubject(const Json& json) {
  HlaParameters p = ParseHlaParameters(json);
  p.config.variant = HlaVariant::kAsymmetric;
  return MakeHlaSubject(p, AhlaReference);
}

std::vector<SuiteCase> Cases() {
  return HlaCases(
      {
          {"plain", R"({"heads": 2, "key_dim": 32, "value_dim": 32})"},
          {"decay", R"({"heads": 2, "key_dim": 64, "value_dim": 64, "decay_logit": [3.0, 0.5]})"},
          {"decay_d128", R"({"heads": 1, "key_dim": 128, "value_dim": 128, "decay_logit": [2.5]})"},
          {"decay_d16", R"({"heads": 1, "key_dim": 16, "value_dim": 16, "decay_logit": [2.5]})"},
          {"decay_d24", R"({"heads": 1, "key_dim": 24, "value_dim": 24, "decay_logit": [2.5]})"},
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
      },
      MakeSubject);
}

INSTANTIATE_TEST_SUITE_P(Ahla, MixerSuite, testing::ValuesIn(BothIntervals(Cases())),
                         SuiteCaseName);

TEST(Ahla, Core) { CheckCoreVectors(kVectors, MakeSubject); }

}  // namespace
}  // namespace rivulet
