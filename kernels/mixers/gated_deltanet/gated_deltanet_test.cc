// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/gated_deltanet/vectors/vectors.json";

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {DeltaRuleCase("d16", {3, 3, 16, 32, kFloat}, 1.0, -0.1),
          DeltaRuleCase("d24", {2, 2, 24, 24, kFloat}, 1.0, -0.5),
          DeltaRuleCase("d32_grouped", {4, 2, 32, 32, kFloat}, 1.0, -0.05),
          DeltaRuleCase("d64_one_key_head", {3, 1, 64, 48, kFloat}, 1.0, -0.2),
          DeltaRuleCase("d64_negative", {2, 2, 64, 64, kFloat}, 1.9, -0.01),
          DeltaRuleCase("d128_grouped", {2, 1, 128, 128, kFloat}, 1.0, -0.1),
          DeltaRuleCase("d256", {1, 1, 256, 256, kFloat}, 1.0, -0.02),
          // e^{-c} would overflow: the sum of a chunk's decays reaches -160.
          DeltaRuleCase("d20_fast_decay", {2, 1, 20, 37, kFloat}, 1.0, -10.0),
          DeltaRuleCase("d40_bf16", {2, 1, 40, 64, DType::kBFloat16}, 1.0, -0.1)};
}

INSTANTIATE_TEST_SUITE_P(GatedDeltaNet, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(GatedDeltaNet, CoreVectors) { CheckCoreVectors(kVectors, DeltaRuleSubjectOf); }

}  // namespace
}  // namespace rivulet
