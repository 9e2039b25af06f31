// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/gla/gla_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/gla/vectors/vectors.json";

SuiteCase Core(std::string name, const HeadShape& shape, double lowest) {
  return {std::move(name), [=] { return MakeGlaSubject(shape, lowest); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}, -0.1), Core("d24", {2, 2, 24, 24, kFloat}, -0.5),
          Core("d32_grouped", {4, 2, 32, 32, kFloat}, -0.05),
          Core("d64_multi_query", {4, 1, 64, 64, kFloat}, -0.2),
          Core("d128", {2, 2, 128, 128, kFloat}, -0.1),
          Core("d256", {1, 1, 256, 256, kFloat}, -0.01),
          // e^{-c} would overflow: the sum of a chunk's decays reaches -160.
          Core("d20_fast_decay", {2, 1, 20, 40, kFloat}, -10.0),
          Core("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, -0.1)};
}

INSTANTIATE_TEST_SUITE_P(Gla, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Gla, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("kv_heads"), p.at("key_dim"), p.at("value_dim")};
    return MakeGlaSubject(shape, p.at("lowest"));
  });
}

}  // namespace
}  // namespace rivulet
