// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/rg_lru/rg_lru_recurrence.h"
#include "kernels/mixers/rg_lru/rg_lru_subject.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/rg_lru/vectors/vectors.json";

SuiteCase Core(std::string name, const RgLruSubjectShape& shape) {
  return {std::move(name), [=] { return MakeRgLruSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("w1", {1, 0.5, 0.1}), Core("w16_hardly_decays", {16, 1e-4, 1e-6}),
          Core("w33", {33, 1.0, 0.01}), Core("w600_forgets_at_once", {600, 200.0, 0.1})};
}

INSTANTIATE_TEST_SUITE_P(RgLru, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(RgLru, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeRgLruSubject({p.at("width"), p.at("fastest"), p.at("slowest")});
  });
}

TEST(RgLru, TheStateIsANumberAChannel) {
  StateLayout layout;
  const RgLruRecurrence recurrence(DrawnRgLruRates({64, 1.0, 0.1}), layout);
  EXPECT_EQ(layout.base_bytes(), 64 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), 16 * 64 * sizeof(float));
  EXPECT_FALSE(layout.running_tail());  // a token can be taken back
}

}  // namespace
}  // namespace rivulet
