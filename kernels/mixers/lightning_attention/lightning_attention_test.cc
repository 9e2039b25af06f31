// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "kernels/mixers/lightning_attention/lightning_attention_config.h"
#include "kernels/mixers/lightning_attention/lightning_attention_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

SuiteCase Core(std::string name, const HeadShape& shape) {
  return {std::move(name), [=] { return MakeLightningAttentionSubject(shape); }};
}

nlohmann::json Tensor(const std::vector<size_t>& shape, double around = 0) {
  return {{"shape", shape}, {"low", around - 0.5}, {"high", around + 0.5}};
}

// A whole layer of two heads.
SuiteCase Layer(std::string name, size_t head_dim) {
  return {std::move(name), [=]() -> std::unique_ptr<SuiteSubject> {
            const size_t hidden = 24, columns = 2 * head_dim;
            const nlohmann::json layer = {{"config", nlohmann::json::object()},
                                          {"hidden", hidden},
                                          {"tensors",
                                           {{"qkv_proj.weight", Tensor({3 * columns, hidden})},
                                            {"output_gate.weight", Tensor({columns, hidden})},
                                            {"norm.weight", Tensor({columns}, 1)},
                                            {"out_proj.weight", Tensor({hidden, columns})}}}};
            const auto make = [=](const nlohmann::json&, const MixerSource& source) {
              return MakeLayer(
                  LightningAttentionConfig{
                      .heads = 2, .head_dim = head_dim, .log_decay = LightningDecays(2)},
                  source);
            };
            std::vector<std::string> problems;
            auto mixer =
                MakeGeneratedLayer(layer, make, {.fold_interval = SuiteFoldInterval()}, &problems);
            EXPECT_TRUE(mixer.ok()) << mixer.status();
            EXPECT_TRUE(problems.empty()) << problems.front();
            return std::make_unique<LayerSubject>(*std::move(mixer), hidden);
          }};
}

std::vector<SuiteCase> Cases() {
  return {Core("d16", {3, 3, 16, 16, DType::kFloat32}),
          Core("d24", {2, 2, 24, 24, DType::kFloat32}),
          Core("d128", {2, 2, 128, 128, DType::kFloat32}), Layer("layer_d16", 16),
          Layer("layer_d12", 12)};
}

INSTANTIATE_TEST_SUITE_P(LightningAttention, MixerSuite, testing::ValuesIn(BothIntervals(Cases())),
                         SuiteCaseName);

}  // namespace
}  // namespace rivulet
