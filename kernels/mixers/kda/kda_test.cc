// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/kda/kda_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/kda/vectors/vectors.json";

SuiteCase Core(std::string name, const HeadShape& shape, double beta, double lowest) {
  return {std::move(name), [=] { return MakeKdaSubject(shape, beta, lowest); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}, 1.0, -0.1),
          Core("d24_e40_negative", {2, 2, 24, 40, kFloat}, 2.0, -0.5),
          Core("d32_grouped", {4, 2, 32, 32, kFloat}, 1.0, -0.05),
          Core("d64_e20", {4, 1, 64, 20, kFloat}, 1.0, -0.2),
          Core("d128", {2, 2, 128, 128, kFloat}, 1.0, -0.1),
          Core("d256", {1, 1, 256, 64, kFloat}, 1.0, -0.01),
          // e^{-c} would overflow: the sum of a chunk's decays reaches -160.
          Core("d20_fast_decay", {2, 1, 20, 40, kFloat}, 1.0, -10.0),
          Core("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, 1.0, -0.1)};
}

INSTANTIATE_TEST_SUITE_P(Kda, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Kda, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("value_heads"), p.at("key_heads"), p.at("key_dim"),
                          p.at("value_dim")};
    return MakeKdaSubject(shape, p.at("beta"), p.at("lowest"));
  });
}

}  // namespace
}  // namespace rivulet
