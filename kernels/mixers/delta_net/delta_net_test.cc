// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/delta_net/vectors/vectors.json";

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {DeltaRuleCase("d16", {3, 3, 16, 16, kFloat}, 1.0),
          DeltaRuleCase("d24", {2, 2, 24, 24, kFloat}, 1.0),
          DeltaRuleCase("d32_wide", {2, 2, 32, 80, kFloat}, 1.0),
          DeltaRuleCase("d64", {4, 4, 64, 64, kFloat}, 1.0),
          DeltaRuleCase("d64_negative", {2, 2, 64, 32, kFloat}, 1.9),
          DeltaRuleCase("d128", {2, 2, 128, 128, kFloat}, 1.0),
          DeltaRuleCase("d256", {1, 1, 256, 256, kFloat}, 1.0),
          DeltaRuleCase("d20_odd_values", {2, 2, 20, 37, kFloat}, 1.0),
          DeltaRuleCase("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, 1.0)};
}

INSTANTIATE_TEST_SUITE_P(DeltaNet, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(DeltaNet, CoreVectors) { CheckCoreVectors(kVectors, DeltaRuleSubjectOf); }

}  // namespace
}  // namespace rivulet
