// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/random_parameters.h"
#include "kernels/mixers/rwkv6/rwkv6_config.h"
#include "kernels/mixers/rwkv6/rwkv6_reference.h"
#include "kernels/recurrence/sum_recurrence.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/rwkv6/vectors/vectors.json";

// Log decays are drawn from [lowest, 0).
std::unique_ptr<SuiteSubject> MakeSubject(const HeadShape& shape, double lowest) {
  DrawnInputs drawn;
  drawn.decay.low = lowest;
  return std::make_unique<DeclaredSubject>(
      Rwkv6Declaration(shape), drawn,
      [=](const TokenInputs& inputs) { return Rwkv6Reference(shape, inputs); });
}

SuiteCase Core(std::string name, const HeadShape& shape, double lowest) {
  return {std::move(name), [=] { return MakeSubject(shape, lowest); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}, -0.1), Core("d24_e40", {2, 2, 24, 40, kFloat}, -0.5),
          Core("d32_hardly_decays", {4, 4, 32, 32, kFloat}, -0.01),
          Core("d64", {4, 4, 64, 64, kFloat}, -0.2), Core("d128", {2, 2, 128, 128, kFloat}, -0.1),
          Core("d256", {1, 1, 256, 64, kFloat}, -0.01),
          // e^{-c} would overflow: the sum of a chunk's decays reaches -160.
          Core("d20_fast_decay", {2, 2, 20, 40, kFloat}, -10.0),
          Core("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, -0.1)};
}

INSTANTIATE_TEST_SUITE_P(Rwkv6, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Rwkv6, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("heads"), p.at("key_dim"), p.at("value_dim")};
    return MakeSubject(shape, p.at("lowest"));
  });
}

TEST(Rwkv6, TheStateIsOneMatrixAHead) {
  StateLayout layout;
  const SumRecurrence recurrence(Rwkv6Declaration({2, 2, 64, 64}), layout);
  EXPECT_EQ(layout.base_bytes(), 2 * 64 * 64 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), 2 * 16 * 3 * 64 * sizeof(float));  // k, v, log decay
  EXPECT_FALSE(layout.running_tail());
  EXPECT_FALSE(SumRecurrence::RunsOnDevice(recurrence.declaration()));
}

// Its kernel holds a column of S in the registers of a warp.
TEST(Rwkv6, ADeviceHasKeysOfAtMost512Numbers) {
  for (const size_t key_dim : {24, 512, 513}) {
    const Rwkv6Config config{.shape = {1, 1, key_dim, 16}, .mixture_rank = 2, .decay_rank = 2};
    RandomParameters parameters(1, "", DType::kFloat32);
    const auto layer = MakeLayer(config, {key_dim, parameters, {}});
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ((*layer)->runs_on_device(), key_dim <= 512) << key_dim;
  }
}

}  // namespace
}  // namespace rivulet
