// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/random_parameters.h"
#include "kernels/mixers/rwkv7/rwkv7_config.h"
#include "kernels/mixers/rwkv7/rwkv7_reference.h"
#include "kernels/mixers/side_by_side.h"
#include "kernels/ops/channel_mixing/channel_mixing.h"
#include "kernels/recurrence/sum_recurrence.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/rwkv7/vectors/vectors.json";

// a is about as long as the model's, which have length one; what `replaced` times as long puts in
// its place grows a state that does not decay, for keys that are drawn without each other.
DrawnInputs Inputs(size_t key_dim, double replaced, double lowest) {
  const double key = std::sqrt(3.0 / static_cast<double>(key_dim));
  DrawnInputs drawn;
  drawn.a = {"a", -key, key};
  drawn.b = {"b", -replaced * key, replaced * key};
  drawn.decay.low = lowest;
  return drawn;
}

std::unique_ptr<SuiteSubject> MakeSubject(const HeadShape& shape, double replaced, double lowest) {
  return std::make_unique<DeclaredSubject>(
      Rwkv7Declaration(shape), Inputs(shape.key_dim, replaced, lowest),
      [=](const TokenInputs& inputs) { return Rwkv7Reference(shape, inputs); });
}

SuiteCase Core(std::string name, const HeadShape& shape, double replaced, double lowest) {
  return {std::move(name), [=] { return MakeSubject(shape, replaced, lowest); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32;
  return {Core("d16", {3, 3, 16, 16, kFloat}, 0.5, -0.6),
          Core("d24_e40", {2, 2, 24, 40, kFloat}, 1.0, -0.6),
          Core("d32_hardly_decays", {4, 4, 32, 32, kFloat}, 0.25, -0.01),
          Core("d64", {4, 4, 64, 64, kFloat}, 1.0, -0.6),
          Core("d64_e20", {2, 2, 64, 20, kFloat}, 1.0, -0.2),
          Core("d128", {2, 2, 128, 128, kFloat}, 1.0, -0.1),
          Core("d256", {1, 1, 256, 64, kFloat}, 1.0, -0.05),
          // e^{-c} would overflow: the sum of a chunk's decays reaches -160.
          Core("d20_fast_decay", {2, 2, 20, 40, kFloat}, 1.0, -10.0),
          Core("d40_bf16", {2, 2, 40, 64, DType::kBFloat16}, 0.5, -0.6)};
}

INSTANTIATE_TEST_SUITE_P(Rwkv7, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Rwkv7, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), p.at("heads"), p.at("key_dim"), p.at("value_dim")};
    return MakeSubject(shape, p.at("replaced"), p.at("lowest"));
  });
}

TEST(Rwkv7, TheStateIsOneMatrixAHead) {
  StateLayout layout;
  const SumRecurrence recurrence(Rwkv7Declaration({2, 2, 64, 64}), layout);
  EXPECT_EQ(layout.base_bytes(), 2 * 64 * 64 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), 2 * 16 * 5 * 64 * sizeof(float));  // k, b, v, u, log decay
  EXPECT_FALSE(layout.running_tail());
  EXPECT_FALSE(SumRecurrence::RunsOnDevice(recurrence.declaration()));
}

// --- whole layers --------------------------------------------------------------------------------

std::unique_ptr<Mixer> RandomLayer(bool first, uint64_t seed) {
  Rwkv7Config config{
      .shape = {2, 2, 24, 24}, .ranks = {5, 6, 7, 8}, .first = first, .fused_norm = first};
  RandomParameters parameters(seed, "", DType::kFloat32);
  return *MakeLayer(config, {48, parameters, {.fold_interval = SuiteFoldInterval()}});
}

// Its kernel holds a column of S in the registers of a warp.
TEST(Rwkv7, ADeviceHasKeysOfAtMost512Numbers) {
  for (const size_t key_dim : {24, 512, 513}) {
    Rwkv7Config config{.shape = {1, 1, key_dim, 16}, .ranks = {2, 2, 2, 2}};
    RandomParameters parameters(1, "", DType::kFloat32);
    const auto layer = MakeLayer(config, {key_dim, parameters, {}});
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ((*layer)->runs_on_device(), key_dim <= 512) << key_dim;
  }
}

// A first layer and a second one, which mixes the first one's values into its own. Both read the
// same input.
std::unique_ptr<SuiteSubject> MakeTwoLayers() {
  std::vector<SideBySide::Branch> layers;
  layers.push_back({RandomLayer(true, 1), 1, 1});
  layers.push_back({RandomLayer(false, 2), 1, 1});
  return std::make_unique<LayerSubject>(std::make_unique<SideBySide>(std::move(layers)), 48);
}

// Channel mixing has no mixer around it; the suite takes it as a subject of its own.
std::unique_ptr<SuiteSubject> MakeChannelMixing(bool gated) {
  constexpr size_t kHidden = 40, kIntermediate = 72;
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{{"x", 0, 1, kHidden, kHidden}}, kHidden);
  RandomParameters parameters(1, "", DType::kFloat32);
  std::optional<ChannelMixing::Gate> gate;
  if (gated) {
    gate = {parameters.TakeVector("x_r", {kHidden}),
            parameters.TakeLinear({{"receptance.weight", kHidden, ""}}, kHidden)};
  }
  const auto block = std::make_shared<ChannelMixing>(
      parameters.TakeVector("x_k", {kHidden}),
      parameters.TakeLinear({{"key.weight", kIntermediate, ""}}, kHidden),
      parameters.TakeLinear({{"value.weight", kHidden, ""}}, kIntermediate), std::move(gate),
      Activation::kReluSquared, subject->state_layout);
  subject->state_layout = *block->state_layout();
  subject->run = [block](const LayerStep& step, const CoreSubject::Inputs& inputs,
                         FloatMatrix out) { block->Apply(step, inputs["x"], out); };
  subject->reference = [](const CoreSubject::Inputs&) { return std::vector<double>(); };
  return subject;
}

INSTANTIATE_TEST_SUITE_P(Rwkv7Layers, MixerSuite,
                         testing::ValuesIn(BothIntervals(
                             {{"two_layers", MakeTwoLayers},
                              {"channel_mixing", [] { return MakeChannelMixing(false); }},
                              {"gated_channel_mixing", [] { return MakeChannelMixing(true); }}})),
                         SuiteCaseName);

}  // namespace
}  // namespace rivulet
