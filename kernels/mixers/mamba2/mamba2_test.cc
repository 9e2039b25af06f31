// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/mamba2/mamba2_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/mamba2/vectors/vectors.json";

SuiteCase Core(std::string name, const HeadShape& shape, double slowest, double fastest) {
  return {std::move(name), [=] { return MakeMamba2Subject(shape, slowest, fastest); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("n16_p16", {3, 1, 16, 16, kFloat}, 0.1, 1.0),
          Core("n24_p24", {4, 2, 24, 24, kFloat}, 0.01, 0.5),
          Core("n32_p64_one_group", {6, 1, 32, 64, kFloat}, 0.01, 0.3),
          Core("n64_p32", {4, 4, 64, 32, kFloat}, 0.001, 0.1),
          Core("n128_p64", {4, 2, 128, 64, kFloat}, 0.01, 1.0),
          Core("n256_p20", {2, 1, 256, 20, kFloat}, 0.01, 0.1),
          Core("n16_p128_fast_decay", {2, 1, 16, 128, kFloat}, 1.0, 16.0),
          Core("n64_p64_bf16", {4, 1, 64, 64, DType::kBFloat16}, 0.05, 0.5)};
}

INSTANTIATE_TEST_SUITE_P(Mamba2, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Mamba2, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("groups"), p.at("state_size"), p.at("head_dim")};
    return MakeMamba2Subject(shape, p.at("slowest"), p.at("fastest"));
  });
}

}  // namespace
}  // namespace rivulet
