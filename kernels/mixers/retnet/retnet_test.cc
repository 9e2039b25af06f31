// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/retnet/retnet_config.h"
#include "kernels/mixers/retnet/retnet_subject.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/retnet/vectors/vectors.json";

SuiteCase Core(std::string name, const HeadShape& shape) {
  return {std::move(name), [=] { return MakeRetNetSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}),
          Core("d24", {2, 2, 24, 48, kFloat}),
          Core("d32_grouped", {4, 2, 32, 64, kFloat}),
          Core("d64_multi_query", {4, 1, 64, 64, kFloat}),
          Core("d128", {2, 2, 128, 256, kFloat}),
          Core("d256", {1, 1, 256, 512, kFloat}),
          Core("d40_bf16", {2, 2, 40, 80, DType::kBFloat16})};
}

INSTANTIATE_TEST_SUITE_P(RetNet, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(RetNet, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeRetNetSubject({p.at("heads"), p.at("kv_heads"), p.at("key_dim"), p.at("value_dim")});
  });
}

TEST(RetNet, DecayIsThatOfTheHead) {
  EXPECT_NEAR(RetentionLogDecay(0), std::log(31.0 / 32.0), 1e-15);
  EXPECT_NEAR(RetentionLogDecay(7), std::log1p(-std::exp2(-12.0)), 1e-15);
  EXPECT_LT(RetentionLogDecay(19), 0.0);
  EXPECT_EQ(RetentionLogDecay(20), 0.0);
}

}  // namespace
}  // namespace rivulet
