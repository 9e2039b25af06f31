// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/pool_selection/pool_scores.h"
#include "kernels/mixers/pool_selection/pool_selection_recurrence.h"
#include "kernels/mixers/pool_selection/pool_selection_reference.h"

namespace rivulet {
namespace {

// A pool's first half counts: a mean of a power of two.
AlignedBuffer<float> FirstHalf(const PoolSelectionConfig& c) {
  AlignedBuffer<float> ape(c.pool * c.padded());
  for (size_t i = std::max<size_t>(1, c.pool / 2) * c.padded(); i < ape.size(); ++i) ape[i] = -2000;
  return ape;
}

// x to `to` in steps of 1/8, all `scale` times.
void Quantise(ConstFloatMatrix x, float scale, FloatMatrix to) {
  for (size_t t = 0; t < x.rows; ++t) {
    for (size_t i = 0; i < x.columns; ++i) to.row(t)[i] = scale * std::round(8 * x.row(t)[i]) / 8;
  }
}

// Scores are sums that fp32 holds exactly, many of them equal: the same choice for any arithmetic.
PoolSelectionInput Exact(const PoolSelectionConfig& config, const CoreSubject::Inputs& x,
                         Workspace& workspace) {
  PoolSelectionInput input;
  const auto take = [&](const char* name, float scale) {
    const FloatMatrix to = workspace.Take(x[name].rows, x[name].columns);
    Quantise(x[name], scale, to);
    return to;
  };
  input.q = take("q", 1);
  input.k = take("k", 1);
  if (!config.gated) return input;
  input.gates = take("gates", 0);
  input.weights = take("weights", 1);
  return input;
}

// What is done to the keys of pools of plain means: times a power of two that depends on where the
// pool begins.
void ByPosition(std::span<const Segment> pools, FloatMatrix keys) {
  for (size_t i = 0; i < pools.size(); ++i) {
    for (size_t c = 0; c < keys.columns; ++c) keys.row(i)[c] *= PoolFactor(pools[i].position);
  }
}

std::unique_ptr<SuiteSubject> MakeSubject(const PoolSelectionConfig& c) {
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{{"q", 0, c.heads, c.key_dim, c.padded(), -1.0, 1.0},
                              {"k", 0, 1, c.key_dim, c.padded(), -1.0, 1.0},
                              {"gates", 0, 1, c.key_dim, c.padded(), -1.0, 1.0},
                              {"weights", 0, 1, c.heads, c.heads, -1.0, 1.0}},
      c.columns());
  subject->error_bound = 0;
  const auto recurrence =
      std::make_shared<PoolSelectionRecurrence>(c, FirstHalf(c), subject->state_layout);
  subject->state_layout.SetPageKind({.rule = PageRule::kAppended});
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& x, FloatMatrix out) {
    const PoolSelectionInput input = Exact(c, x, *step.workspace);
    if (c.gated) return recurrence->Run(step, input, out);
    recurrence->Run(step, input, out, ByPosition);
  };
  subject->reference = [=](const CoreSubject::Inputs& x) {
    Workspace workspace;
    return PoolSelectionReference(c, FirstHalf(c).data(), Exact(c, x, workspace));
  };
  return subject;
}

SuiteCase Core(std::string name, const PoolSelectionConfig& config) {
  return {std::move(name), [=] { return MakeSubject(config); }};
}

std::vector<SuiteCase> Cases() {
  return {Core("p16_k4", {.pool = 16, .most = 4, .heads = 8, .key_dim = 32}),
          Core("p4_k5_d7", {.pool = 4, .most = 5, .heads = 3, .key_dim = 7}),
          Core("p1_k9", {.pool = 1, .most = 9, .heads = 2, .key_dim = 16}),
          Core("p2_k1_d40", {.pool = 2, .most = 1, .heads = 1, .key_dim = 40}),
          Core("p16_k3_plain", {.pool = 16, .most = 3, .heads = 4, .key_dim = 32, .gated = false}),
          Core("p2_k6_d9_plain", {.pool = 2, .most = 6, .heads = 3, .key_dim = 9, .gated = false}),
          Core("p8_all", {.pool = 8, .most = 100, .heads = 4, .key_dim = 16})};
}

INSTANTIATE_TEST_SUITE_P(PoolSelection, MixerSuite, testing::ValuesIn(BothIntervals(Cases())),
                         SuiteCaseName);

TEST(PoolSelection, AKeyIsAMeanUnderTheGates) {
  constexpr size_t kTokens = 16, kPadded = 48;
  std::mt19937_64 random(TestSeed());
  const std::vector<float> keys = RandomFloats(kTokens * kPadded, random);
  const std::vector<float> gates = RandomFloats(kTokens * kPadded, random, 3);
  const std::vector<float> biases = RandomFloats(kTokens * kPadded, random);
  for (const size_t tokens : {1, 2, 16}) {
    std::vector<double> reference(kPadded);
    for (size_t i = 0; i < kPadded; ++i) {
      double weights = 0;
      for (size_t t = 0; t < tokens; ++t) {
        const double weight = std::exp(double{gates[t * kPadded + i]} + biases[t * kPadded + i]);
        weights += weight;
        reference[i] += weight * keys[t * kPadded + i];
      }
      reference[i] /= weights;
    }
    ForEachFusedTarget([&](const char* target) {
      std::vector<float> key(kPadded);
      MeanOfPool(keys.data(), gates.data(), biases.data(), tokens, kPadded, key.data());
      EXPECT_TRUE(Close(key, reference, 1e-6)) << target << " " << tokens;
    });
  }
}

TEST(PoolSelection, AScoreSumsWhatHeadsFindPositive) {
  constexpr size_t kHeads = 5, kPools = 7, kPadded = 32;
  std::mt19937_64 random(TestSeed());
  const std::vector<float> q = RandomFloats(kHeads * kPadded, random);
  const std::vector<float> weights = RandomFloats(kHeads, random);
  const std::vector<float> keys = RandomFloats(kPools * kPadded, random);
  std::vector<double> reference(kPools);
  for (size_t p = 0; p < kPools; ++p) {
    for (size_t h = 0; h < kHeads; ++h) {
      double dot = 0;
      for (size_t i = 0; i < kPadded; ++i)
        dot += double{q[h * kPadded + i]} * keys[p * kPadded + i];
      reference[p] += weights[h] * std::max(dot, 0.0);
    }
  }
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    std::vector<float> together(kPools), alone(kPools);
    ScorePools(q.data(), weights.data(), kHeads, keys.data(), kPools, kPadded, together.data());
    for (size_t p = 0; p < kPools; ++p) {
      ScorePools(q.data(), weights.data(), kHeads, keys.data() + p * kPadded, 1, kPadded,
                 &alone[p]);
    }
    if (first.empty()) first = together;
    EXPECT_TRUE(Close(together, reference, 1e-6)) << target;
    EXPECT_TRUE(SameBits(together, first)) << target;
    EXPECT_TRUE(SameBits(alone, first)) << target;
  });
}

// What one session of `tokens` tokens chooses at its end.
std::vector<float> LastChoice(const PoolSelectionConfig& config, std::vector<float> keys) {
  StateLayout layout;
  const PoolSelectionRecurrence recurrence(config, FirstHalf(config), layout);
  layout.SetPageKind({.rule = PageRule::kAppended});
  const size_t tokens = keys.size();
  TestMatrix q(tokens, config.padded()), k(tokens, config.padded()), gates(tokens, config.padded()),
      weights(tokens, 1), chosen(tokens, config.columns());
  for (const TestMatrix* m : {&q, &k, &gates}) {
    for (size_t t = 0; t < tokens; ++t) std::fill_n(m->view().row(t), config.padded(), 0.0f);
  }
  for (size_t t = 0; t < tokens; ++t) {
    k.view().row(t)[0] = keys[t];
    q.view().row(t)[0] = weights.view().row(t)[0] = 1;
  }
  std::vector<std::byte> tails(layout.tail_bytes()), pages(layout.page_bytes());
  const uint32_t slot = 0;
  const SegmentPages page{&slot, 1, 0, 0};
  const Segment segment{.tokens = tokens, .pages = &page};
  LayerState state;
  state.tails = tails.data();
  state.pages = pages.data();
  Workspace workspace;
  ThreadPool pool(1);
  recurrence.Run({{&segment, 1}, state, &workspace, &pool},
                 {q.view(), k.view(), gates.view(), weights.view()}, chosen.view());
  EXPECT_TRUE(chosen.CanariesAlive());
  const float* row = chosen.view().row(tokens - 1);
  return {row, row + config.columns()};
}

TEST(PoolSelection, TiesGoToTheEarlierPoolAndNaNComesFirst) {
  const PoolSelectionConfig config{.pool = 1, .most = 3, .heads = 1, .key_dim = 16};
  using Row = std::vector<float>;
  EXPECT_EQ(LastChoice(config, {1, 2, 2, 2, 2, 1}), (Row{3, 1, 2, 3}));
  EXPECT_EQ(LastChoice(config, {-1, -2, 0, -3, -4, 5}), (Row{3, 0, 1, 5}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(LastChoice(config, {9, 7, nan, 8, 1, 2}), (Row{3, 0, 2, 3}));
  EXPECT_EQ(LastChoice(config, {1, 2}), (Row{2, 0, 1, 0}));
}

// GLM-5.3-Flash's: what a token adds to a session beside its latent.
TEST(PoolSelection, APageHoldsOneKeyOfAPool) {
  StateLayout layout;
  const PoolSelectionConfig config{.pool = 16, .most = 128, .heads = 32, .key_dim = 128};
  const PoolSelectionRecurrence recurrence(config, FirstHalf(config), layout);
  EXPECT_EQ(layout.base_bytes(), 0u);
  EXPECT_EQ(layout.page_bytes(), 128 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), (2 * 16 + 1) * 128 * sizeof(float));
}

// The kernel of a choice has room for so much.
TEST(PoolSelection, ADeviceHasLimits) {
  const PoolSelectionConfig fits{.pool = 16, .most = 2048, .heads = 64, .key_dim = 256};
  EXPECT_TRUE(PoolSelectionRecurrence::RunsOnDevice(fits));
  EXPECT_TRUE(PoolSelectionRecurrence::RunsOnDevice({.heads = 1000}));  // no selection
  PoolSelectionConfig many = fits, wide = fits, long_list = fits;
  many.heads = 65, wide.key_dim = 257, long_list.most = 2049;
  for (const PoolSelectionConfig& config : {many, wide, long_list}) {
    EXPECT_FALSE(PoolSelectionRecurrence::RunsOnDevice(config));
  }
}

}  // namespace
}  // namespace rivulet
