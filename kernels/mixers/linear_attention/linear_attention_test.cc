// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/linear_attention/linear_attention_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/linear_attention/vectors/vectors.json";

SuiteCase Core(std::string name, const HeadShape& shape, bool normalised) {
  return {std::move(name), [=] { return MakeLinearAttentionSubject(shape, normalised); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}, false),
          Core("d24_normalised", {2, 2, 24, 24, kFloat}, true),
          Core("d32_grouped", {4, 2, 32, 32, kFloat}, false),
          Core("d64_normalised_grouped", {4, 1, 64, 64, kFloat}, true),
          Core("d128", {2, 2, 128, 128, kFloat}, false),
          Core("d256", {1, 1, 256, 256, kFloat}, false),
          Core("d512_e20", {1, 1, 512, 20, kFloat}, true),
          Core("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, false)};
}

INSTANTIATE_TEST_SUITE_P(LinearAttention, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(LinearAttention, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("kv_heads"), p.at("features"), p.at("value_dim")};
    return MakeLinearAttentionSubject(shape, p.at("normalised"));
  });
}

}  // namespace
}  // namespace rivulet
