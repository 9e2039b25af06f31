// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/side_by_side.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "kernels/mixers/mixer_config.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/random_parameters.h"

namespace rivulet {
namespace {

constexpr size_t kHidden = 24;

std::unique_ptr<Mixer> Make(const MixerConfig& config, const std::string& prefix) {
  RandomParameters parameters(7, prefix, DType::kFloat32);
  MixerOptions options;
  options.fold_interval = SuiteFoldInterval();
  auto mixer = MakeMixer(config, {kHidden, parameters, options});
  EXPECT_TRUE(mixer.ok()) << mixer.status();
  return *std::move(mixer);
}

std::unique_ptr<Mixer> Attention() {
  return Make(SoftmaxAttentionConfig{.heads = 3, .kv_heads = 1, .head_dim = 8, .scale = 0.3f}, "a");
}

std::unique_ptr<Mixer> Mamba2() {
  return Make(
      Mamba2Config{.heads = 2, .head_dim = 12, .state_size = 8, .groups = 1, .norm_groups = 1},
      "m");
}

// A running state, which makes that of the whole layer one.
std::unique_ptr<Mixer> Mamba() {
  return Make(MambaConfig{.inner = 32, .state_size = 4, .rank = 3}, "s");
}

using Makers = std::vector<std::unique_ptr<Mixer> (*)()>;

std::unique_ptr<SideBySide> Together(const Makers& makers) {
  std::vector<SideBySide::Branch> branches;
  for (const auto& make : makers) {
    const float n = static_cast<float>(branches.size());
    branches.push_back({make(), 1.0f + 0.5f * n, 2.0f - n});
  }
  return std::make_unique<SideBySide>(std::move(branches));
}

SuiteCase Case(std::string name, const Makers& makers) {
  return {std::move(name),
          [=] { return std::make_unique<LayerSubject>(Together(makers), kHidden); }};
}

INSTANTIATE_TEST_SUITE_P(
    SideBySide, MixerSuite,
    testing::ValuesIn(BothIntervals({Case("mamba2_attention", {Mamba2, Attention}),
                                     Case("attention_mamba", {Attention, Mamba})})),
    SuiteCaseName);

// y [T, hidden] of a mixer alone, over one segment from position 0 in slots of its own.
std::vector<float> RunAlone(const Mixer& mixer, const std::vector<float>& x) {
  const StateLayout& layout = mixer.state_layout();
  std::vector<std::byte> memory(layout.base_bytes() + layout.tail_bytes() + 64);
  void* start = memory.data();
  size_t space = memory.size();
  std::align(64, 1, start, space);
  LayerState state;
  state.bases = static_cast<std::byte*>(start);
  state.tails = state.bases + layout.base_bytes();
  const size_t tokens = x.size() / kHidden;
  const Segment segment{.tokens = tokens};
  Workspace workspace;
  ThreadPool pool(1);
  std::vector<float> y(x.size());
  EXPECT_TRUE(mixer
                  .Forward({{&segment, 1}, state, &workspace, &pool},
                           {x.data(), tokens, kHidden, kHidden},
                           {y.data(), tokens, kHidden, kHidden})
                  .ok());
  return y;
}

TEST(SideBySide, AddsUpWhatEachGivesForItsInput) {
  constexpr size_t kTokens = 9;  // less than a chunk: no pages
  std::vector<float> x(kTokens * kHidden), scaled;
  for (size_t i = 0; i < x.size(); ++i) x[i] = GeneratedFloat("x", 0, i, -1, 1);
  for (const float value : x) scaled.push_back(1.5f * value);
  const std::vector<float> first = RunAlone(*Mamba2(), x), second = RunAlone(*Attention(), scaled);
  const std::vector<float> both = RunAlone(*Together({Mamba2, Attention}), x);
  for (size_t i = 0; i < both.size(); ++i) EXPECT_EQ(both[i], 2.0f * first[i] + second[i]) << i;
}

TEST(SideBySide, RunsOnADeviceIfAllItsMixersDo) {
  EXPECT_TRUE(Together({Mamba2, Attention})->runs_on_device());
}

}  // namespace
}  // namespace rivulet
