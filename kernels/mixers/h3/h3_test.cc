// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/h3/h3_recurrence.h"
#include "kernels/mixers/h3/h3_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/h3/vectors/vectors.json";

SuiteCase Core(std::string name, const H3Shape& shape, double radius, bool forgets = false) {
  return {std::move(name), [=] { return MakeH3Subject(shape, radius, forgets); }};
}

// The window's edges: 1, no more than a chunk, one chunk and a token, several chunks.
std::vector<SuiteCase> CoreCases() {
  return {Core("n1_m1_hd1", {33, 1, 1, 1}, 0.9),
          Core("n8_m4_hd1", {16, 1, 8, 4}, 0.99),
          Core("n16_m8_hd2", {7, 2, 16, 8}, 0.99),
          Core("n17_m8_hd1", {20, 1, 17, 8}, 0.999),
          Core("n18_m3_hd4", {5, 4, 18, 3}, 0.95),
          Core("n64_m32_hd1", {50, 1, 64, 32}, 0.999),
          Core("n64_m32_hd2", {19, 2, 64, 32}, 0.99),
          Core("n256_m128_hd1", {3, 1, 256, 128}, 0.99),
          Core("n18_m3_hd4_forgets", {5, 4, 18, 3}, 0.95, true),
          Core("n64_m32_hd2_forgets", {19, 2, 64, 32}, 0.99, true)};
}

INSTANTIATE_TEST_SUITE_P(H3, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(H3, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const H3Shape shape{p.at("heads"), p.at("head_dim"), p.at("window"), p.at("modes")};
    return MakeH3Subject(shape, p.at("radius"));
  });
}

TEST(H3, TheStateOfAPublicLayer) {
  StateLayout layout;
  const H3Shape shape{48, 1, 64, 32};
  const H3Recurrence recurrence(shape, DrawnH3Constants(shape, 0.9), layout);
  EXPECT_EQ(layout.base_bytes(), 48 * (64 + 64) * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), 48 * (16 + 64) * sizeof(float));
}

}  // namespace
}  // namespace rivulet
