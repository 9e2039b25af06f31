// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The choice by a sigmoid; that by a softmax: mixture_of_experts_test.cc.
#include "kernels/ops/mixture_of_experts/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/base/test_support.h"
#include "kernels/device/experts_operations.h"
#include "kernels/device/fake_device.h"

namespace rivulet {
namespace {

struct Chosen {
  std::vector<uint32_t> ids;
  std::vector<float> weights;
};

Chosen Choose(const ExpertChoice& choice, std::vector<float> logits,
              const std::vector<float>& correction = {}) {
  Chosen chosen;
  chosen.ids.resize(choice.experts_per_token);
  chosen.weights.resize(choice.experts_per_token);
  ChooseExperts(choice, logits.data(), chosen.ids.data(), chosen.weights.data(),
                correction.empty() ? nullptr : correction.data());
  return chosen;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Indices by falling value.
std::vector<size_t> Order(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

// The definition, in fp64: whole sorts.
std::vector<double> Reference(const ExpertChoice& choice, const std::vector<float>& logits,
                              const std::vector<float>& correction) {
  const size_t size = choice.experts / choice.groups;
  std::vector<double> scores, sums;
  for (size_t e = 0; e < choice.experts; ++e) scores.push_back(Sigmoid(logits[e]) + correction[e]);
  for (size_t g = 0; g < choice.groups; ++g) {
    std::vector<double> group(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    std::sort(group.rbegin(), group.rend());
    sums.push_back(group[0] + group[1]);
  }
  const std::vector<size_t> groups = Order(sums);
  for (size_t i = choice.groups_per_token; i < choice.groups; ++i) {
    for (size_t e = 0; e < size; ++e) scores[groups[i] * size + e] = -INFINITY;
  }
  std::vector<double> weights(choice.experts);
  double sum = 0;
  const std::vector<size_t> order = Order(scores);
  for (size_t i = 0; i < choice.experts_per_token; ++i) sum += Sigmoid(logits[order[i]]);
  for (size_t i = 0; i < choice.experts_per_token; ++i) {
    const double share = choice.weights_sum_to_one ? sum : 1;
    weights[order[i]] = choice.scaling * Sigmoid(logits[order[i]]) / share;
  }
  return weights;
}

TEST(ExpertChoiceTest, SigmoidWithGroupsAndCorrectionsIsTheDefinition) {
  std::mt19937_64 random(TestSeed());
  for (const size_t groups : {1, 2, 4, 8}) {
    for (size_t open = 1; open <= groups; ++open) {
      for (const bool sum_to_one : {true, false}) {
        ExpertChoice choice{.experts = 32,
                            .experts_per_token = 1 + random() % (open * 32 / groups),
                            .weights_sum_to_one = sum_to_one,
                            .scores = ExpertScores::kSigmoid,
                            .groups = groups,
                            .groups_per_token = open,
                            .scaling = 2.5f};
        const std::vector<float> logits = RandomFloats(32, random, 4.0f);
        const std::vector<float> correction = RandomFloats(32, random);
        const std::vector<double> reference = Reference(choice, logits, correction);
        const Chosen chosen = Choose(choice, logits, correction);
        EXPECT_TRUE(std::is_sorted(chosen.ids.begin(), chosen.ids.end()));
        for (size_t i = 0; i < chosen.ids.size(); ++i) {
          EXPECT_GT(reference[chosen.ids[i]], 0) << groups << " " << open;
          EXPECT_NEAR(chosen.weights[i], reference[chosen.ids[i]], 1e-5) << groups << " " << open;
        }
      }
    }
  }
}

// A correction decides which experts come, not what they weigh.
TEST(ExpertChoiceTest, CorrectionsDoNotWeigh) {
  const ExpertChoice choice{.experts = 3,
                            .experts_per_token = 1,
                            .weights_sum_to_one = false,
                            .scores = ExpertScores::kSigmoid};
  const Chosen chosen = Choose(choice, {2, 1, 0}, {0, 0, 5});
  EXPECT_EQ(chosen.ids, std::vector<uint32_t>{2});
  EXPECT_FLOAT_EQ(chosen.weights[0], 0.5f);
}

TEST(ExpertChoiceTest, NotANumberKeepsIdsDistinctAndInRange) {
  std::mt19937_64 random(TestSeed());
  for (int repeat = 0; repeat < 200; ++repeat) {
    const ExpertChoice choice{.experts = 8,
                              .experts_per_token = 4,
                              .scores = ExpertScores::kSigmoid,
                              .groups = 4,
                              .groups_per_token = 2};
    std::vector<float> logits = RandomFloats(8, random, 100.0f);
    for (float& logit : logits) {
      if (random() % 2 == 0) logit = random() % 2 == 0 ? NAN : INFINITY;
    }
    const std::vector<uint32_t> ids = Choose(choice, logits).ids;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_LT(ids[i], 8u);
      if (i > 0) {
        EXPECT_LT(ids[i - 1], ids[i]);
      }
    }
  }
}

// The same by the fake device, with which the GPU is compared (kernels/device/experts_test).
Chosen ChooseOnDevice(const ExpertChoice& choice, std::vector<float> logits,
                      const std::vector<float>& correction) {
  const auto experts = static_cast<uint32_t>(choice.experts);
  const auto chosen = static_cast<uint32_t>(choice.experts_per_token);
  FakeDevice device;
  DeviceSegment segment{};
  segment.tokens = 1;
  Chosen result{std::vector<uint32_t>(chosen), std::vector<float>(chosen)};
  std::vector<uint32_t> rows(chosen), tokens(chosen);
  std::vector<float> scores(choice.experts + choice.groups);
  std::vector<ExpertTile> tiles(chosen);
  ExpertRouting routing{.experts = experts, .per_token = chosen, .tile_rows = kExpertTileRows};
  routing.most_tiles = chosen;
  routing.expert = result.ids.data(), routing.weight = result.weights.data();
  routing.row = rows.data(), routing.token_of_row = tokens.data(), routing.tiles = tiles.data();
  device.Route({.rows = {&segment, nullptr, 1, 1, true},
                .logits = {logits.data(), 1, logits.size(), logits.size()},
                .weights_sum_to_one = choice.weights_sum_to_one,
                .scaling = choice.scaling,
                .sigmoid = choice.scores == ExpertScores::kSigmoid,
                .correction = correction.empty() ? nullptr : correction.data(),
                .groups = static_cast<uint32_t>(choice.groups),
                .groups_per_token = static_cast<uint32_t>(choice.groups_per_token),
                .scores = {scores.data(), 1, scores.size(), scores.size()},
                .routing = routing});
  return result;
}

// With equal logits, and some that are no numbers.
TEST(ExpertChoiceTest, ADeviceChoosesTheSame) {
  std::mt19937_64 random(TestSeed());
  for (int repeat = 0; repeat < 1000; ++repeat) {
    const size_t groups = size_t{1} << random() % 4, open = 1 + random() % groups;
    const size_t experts = groups * (2 + random() % 5);
    const ExpertChoice choice{
        .experts = experts,
        .experts_per_token = 1 + random() % (open * experts / groups),
        .weights_sum_to_one = random() % 2 == 0,
        .scores = random() % 4 == 0 ? ExpertScores::kSoftmax : ExpertScores::kSigmoid,
        .groups = groups,
        .groups_per_token = open,
        .scaling = random() % 2 == 0 ? 1.0f : 2.5f};
    std::vector<float> logits(experts), correction(random() % 2 == 0 ? experts : 0);
    for (float& logit : logits) logit = static_cast<float>(random() % 9) - 4;
    for (float& number : correction) number = static_cast<float>(random() % 3) / 4;
    const bool none = random() % 4 == 0;  // with a NaN logit, from which weights may be NaN
    if (none) logits[random() % experts] = NAN;
    if (random() % 4 == 0) logits[random() % experts] = -INFINITY;
    if (random() % 4 == 0 && !correction.empty()) correction[random() % experts] = -INFINITY;
    const Chosen expected = Choose(choice, logits, correction);
    const Chosen chosen = ChooseOnDevice(choice, logits, correction);
    ASSERT_EQ(chosen.ids, expected.ids) << repeat;
    for (size_t i = 0; i < chosen.ids.size(); ++i) {
      if (none && (std::isnan(expected.weights[i]) || std::isnan(chosen.weights[i]))) continue;
      EXPECT_NEAR(chosen.weights[i], expected.weights[i], 1e-5) << repeat;
    }
  }
}

// Scaling also holds for the choice by a softmax.
TEST(ExpertChoiceTest, ScalesTheWeights) {
  const ExpertChoice choice{.experts = 2, .experts_per_token = 2, .scaling = 3};
  const Chosen chosen = Choose(choice, {0, 0});
  EXPECT_FLOAT_EQ(chosen.weights[0], 1.5f);
}

}  // namespace
}  // namespace rivulet
