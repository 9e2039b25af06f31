// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/mamba/mamba_recurrence.h"
#include "kernels/mixers/mamba/mamba_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/mamba/vectors/vectors.json";

SuiteCase Core(std::string name, const MambaShape& shape, double slowest, double fastest,
               bool forgets = false) {
  return {std::move(name), [=] { return MakeMambaSubject(shape, slowest, fastest, forgets); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("n1_i40", {40, 1}, 0.1, 1.0),
          Core("n8_i16", {16, 8}, 0.01, 1.0),
          Core("n8_i300_many_units", {300, 8}, 0.01, 16.0),
          Core("n16_i33", {33, 16}, 0.001, 0.1),
          Core("n16_i1", {1, 16}, 0.1, 16.0),
          Core("n24_i19", {19, 24}, 0.01, 1.0),
          Core("n64_i20", {20, 64}, 0.001, 1.0),
          Core("n256_i5", {5, 256}, 0.01, 0.3),
          Core("n16_i33_forgets", {33, 16}, 0.001, 0.1, true),
          Core("n8_i300_forgets", {300, 8}, 0.01, 16.0, true),
          Core("n24_i19_forgets", {19, 24}, 0.01, 1.0, true)};
}

INSTANTIATE_TEST_SUITE_P(Mamba, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Mamba, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeMambaSubject(MambaShape{p.at("channels"), p.at("state_size")}, p.at("slowest"),
                            p.at("fastest"));
  });
}

TEST(Mamba, StateIsTheRunningStateOnceInEachPart) {
  StateLayout layout;
  const MambaShape shape{33, 16};
  const MambaRecurrence recurrence(shape, DrawnMambaConstants(shape, 0.1, 1.0), layout);
  EXPECT_EQ(layout.base_bytes(), 48 * 16 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), layout.base_bytes());
}

}  // namespace
}  // namespace rivulet
