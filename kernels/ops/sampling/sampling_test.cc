// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/sampling/sampling.h"

#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "kernels/base/test_support.h"
#include "kernels/ops/sampling/philox.h"

namespace rivulet {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

uint32_t SampleAt(std::span<const float> logits, const SamplingParams& params, uint64_t position,
                  const TokenHistory& history = {}, uint32_t index = 0) {
  static SamplingScratch scratch;
  const auto token = Sample(logits, params, history, {index, position}, scratch);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.value_or(0);
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

// The known answers of the authors' own distribution (Random123, kat_vectors).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// --- reference: the header's eight steps, in fp64 with a full sort
// ----------------------------------

std::vector<double> ReferenceAdjust(std::span<const float> logits, const SamplingParams& p,
                                    const std::vector<uint32_t>& session,
                                    const std::vector<uint32_t>& turn) {
  std::vector<double> l(logits.begin(), logits.end());
  for (uint32_t token : std::set<uint32_t>(session.begin(), session.end())) {
    l[token] = l[token] > 0 ? l[token] / p.repetition_penalty : l[token] * p.repetition_penalty;
  }
  for (uint32_t token : std::set<uint32_t>(turn.begin(), turn.end())) {
    l[token] -=
        static_cast<double>(std::count(turn.begin(), turn.end(), token)) * p.frequency_penalty +
        p.presence_penalty;
  }
  for (const LogitBias& bias : p.logit_bias) l[bias.token] += bias.bias;
  return l;
}

std::vector<double> ReferenceDistribution(const std::vector<double>& logits,
                                          const SamplingParams& p) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (p.top_k != 0 && p.top_k < order.size()) order.resize(p.top_k);
  std::vector<double> weights;
  for (size_t i : order)
    weights.push_back(std::exp((logits[i] - logits[order[0]]) / p.temperature));
  const double goal = p.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t kept = 0;
  for (double sum = 0; kept < weights.size() && (kept == 0 || sum < goal - 1e-9);) {
    sum += weights[kept++];
  }
  weights.resize(kept);
  while (weights.back() < p.min_p) weights.pop_back();
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> distribution(logits.size(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) distribution[order[i]] = weights[i] / total;
  return distribution;
}

// What chi-square exceeds once in a billion times (Wilson and Hilferty: its cube root is normal).
double ChiSquareLimit(double freedom) {
  const double variance = 2 / (9 * freedom);
  return freedom * std::pow(1 - variance + 6 * std::sqrt(variance), 3);
}

// Draws at `draws` positions and compares frequencies by chi-square; a token of probability zero
// must never come.
void ExpectDistribution(const std::vector<double>& expected, std::span<const float> logits,
                        const SamplingParams& params, const TokenHistory& history, size_t draws) {
  std::vector<double> seen(expected.size(), 0.0);
  for (size_t i = 0; i < draws; ++i) seen[SampleAt(logits, params, i, history)] += 1;
  double statistic = 0, freedom = -1, rare_seen = 0, rare_expected = 0;
  const auto add = [&](double observed, double wanted) {
    statistic += (observed - wanted) * (observed - wanted) / wanted;
    freedom += 1;
  };
  for (size_t i = 0; i < expected.size(); ++i) {
    const double wanted = expected[i] * static_cast<double>(draws);
    if (expected[i] == 0) {
      ASSERT_EQ(seen[i], 0) << "token " << i << " was drawn, but it is not kept";
    } else if (wanted < 5) {  // chi-square needs counts: rare tokens are one class
      rare_seen += seen[i];
      rare_expected += wanted;
    } else {
      add(seen[i], wanted);
    }
  }
  if (rare_expected > 5) add(rare_seen, rare_expected);
  EXPECT_LT(statistic, ChiSquareLimit(std::max(freedom, 1.0)));
}

TEST(SamplingTest, FrequenciesFollowTheSoftmax) {
  std::mt19937_64 random(TestSeed());
  for (size_t vocab : {2, 3, 16, 100, 1003}) {
    for (float temperature : {0.3f, 1.0f, 2.5f}) {
      const std::vector<float> logits = RandomFloats(vocab, random, 2.0f);
      SamplingParams params;
      params.temperature = temperature;
      params.seed = random();
      const auto expected = ReferenceDistribution(ReferenceAdjust(logits, params, {}, {}), params);
      ExpectDistribution(expected, logits, params, {}, 40000);
    }
  }
}

TEST(SamplingTest, RandomParametersMatchTheReference) {
  std::mt19937_64 random(TestSeed());
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const size_t vocab = 5 + random() % 200;
    std::vector<float> logits = RandomFloats(vocab, random, 2.0f);
    for (float& l : logits) l = std::round(l * 4) / 4;  // many ties
    SamplingParams params;
    params.seed = random();
    params.temperature = uniform(0.2f, 2.0f);
    if (random() % 2) params.top_k = 1 + random() % vocab;
    if (random() % 2) params.top_p = uniform(0.05f, 1.0f);
    if (random() % 3 == 0) params.min_p = uniform(0.0f, 0.3f);
    std::vector<uint32_t> session, turn;
    if (random() % 2) {
      params.repetition_penalty = 2.0f;
      params.frequency_penalty = 0.5f;
      params.presence_penalty = -0.25f;
      for (int i = 0; i < 40; ++i) session.push_back(random() % vocab);
      turn.assign(session.end() - 20, session.end());
      params.logit_bias = {{static_cast<uint32_t>(random() % vocab), 1.5f}};
    }
    TokenCounts session_counts, turn_counts;
    session_counts.Add(session);
    turn_counts.Add(turn);
    const auto adjusted = ReferenceAdjust(logits, params, session, turn);
    ExpectDistribution(ReferenceDistribution(adjusted, params), logits, params,
                       {&session_counts, &turn_counts}, 4000);
  }
}

TEST(SamplingTest, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  EXPECT_EQ(SampleAt(std::vector<float>{1, 3, 2}, Greedy(), 0), 1u);
  EXPECT_EQ(SampleAt(std::vector<float>{1, 3, 3, 3}, Greedy(), 0), 1u);
  EXPECT_EQ(SampleAt(std::vector<float>{-5}, Greedy(), 0), 0u);
  std::vector<float> wide(1000, -1.0f);
  wide[999] = wide[401] = 0.5f;
  EXPECT_EQ(SampleAt(wide, Greedy(), 0), 401u);
}

TEST(SamplingTest, TopKBreaksTiesByIdAndLargeKIsOff) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  SamplingParams params;
  params.top_k = 2;
  std::set<uint32_t> seen;
  for (uint64_t i = 0; i < 500; ++i) seen.insert(SampleAt(logits, params, i));
  EXPECT_EQ(seen, (std::set<uint32_t>{1, 2}));
  params.top_k = 1000000;
  for (uint64_t i = 0; i < 2000; ++i) seen.insert(SampleAt(logits, params, i));
  EXPECT_EQ(seen.size(), 5u);
}

TEST(SamplingTest, TopPStopsAsSoonAsItIsReached) {
  SamplingParams params;
  params.top_p = 0.5f;
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(SampleAt(std::vector<float>{1, 1}, params, i), 0u);
    ASSERT_LE(SampleAt(std::vector<float>{1, 1, 1}, params, i), 1u);
  }
}

TEST(SamplingTest, TheTiniestTopPAndTemperatureAndTheHighestMinPAreGreedy) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> logits = RandomFloats(5000, random, 3.0f);
  const uint32_t best = SampleAt(logits, Greedy(), 0);
  SamplingParams top_p, min_p, cold, top_k;
  top_p.top_p = 1e-20f;
  min_p.min_p = std::nextafter(1.0f, 0.0f);
  cold.temperature = std::numeric_limits<float>::denorm_min();
  top_k.top_k = 1;
  for (const SamplingParams& params : {top_p, min_p, cold, top_k}) {
    for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(SampleAt(logits, params, i), best);
  }
}

// Numbers depend on (seed, index, position): the same again, on every target, and others elsewhere.
TEST(SamplingTest, DrawsDependOnSeedIndexAndPositionAlone) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> logits = RandomFloats(50257, random, 1.0f);
  SamplingParams params;
  params.top_p = 0.95f;
  params.seed = 42;
  const auto draws = [&](uint32_t index, uint64_t first) {
    std::vector<uint32_t> tokens;
    for (uint64_t i = 0; i < 20; ++i)
      tokens.push_back(SampleAt(logits, params, first + i, {}, index));
    return tokens;
  };
  const std::vector<uint32_t> first = draws(0, 0);
  ForEachFusedTarget([&](const char* target) { EXPECT_EQ(draws(0, 0), first) << target; });
  EXPECT_NE(draws(1, 0), first);
  EXPECT_NE(draws(0, uint64_t{1} << 32), first);
  params.seed = 42 + (uint64_t{1} << 32);
  EXPECT_NE(draws(0, 0), first);
}

// Neighbouring positions, indices and seeds must be independent, not only different.
TEST(SamplingTest, NeighbouringDrawsAreIndependent) {
  const std::vector<float> logits = {0, 0, 0, 0};
  SamplingParams params;
  for (int neighbour = 0; neighbour < 3; ++neighbour) {
    std::vector<double> pairs(16, 0.0);
    constexpr int kDraws = 40000;
    for (uint64_t i = 0; i < kDraws; ++i) {
      params.seed = neighbour == 2 ? i : 7;
      const uint32_t a = SampleAt(logits, params, 2 * i);
      params.seed += neighbour == 2;
      const uint32_t b =
          SampleAt(logits, params, neighbour == 0 ? 2 * i + 1 : 2 * i, {}, neighbour == 1 ? 1 : 0);
      pairs[a * 4 + b] += 1;
    }
    double statistic = 0;
    for (double count : pairs) statistic += std::pow(count - kDraws / 16.0, 2) / (kDraws / 16.0);
    EXPECT_LT(statistic, ChiSquareLimit(15)) << neighbour;
  }
}

TEST(SamplingTest, PenaltiesAndBiasMoveTheGreedyChoice) {
  const std::vector<float> logits = {2.0f, 1.9f, -1.0f};
  TokenCounts session, turn;
  session.Add(0u);
  SamplingParams params = Greedy();
  params.repetition_penalty = 1.2f;
  EXPECT_EQ(SampleAt(logits, params, 0, {&session, &turn}), 1u);
  EXPECT_EQ(SampleAt(logits, params, 0), 0u) << "no history, no penalty";
  params = Greedy();
  params.presence_penalty = 0.5f;
  EXPECT_EQ(SampleAt(logits, params, 0, {&session, &turn}), 0u) << "said in an earlier turn";
  turn.Add(0u);
  EXPECT_EQ(SampleAt(logits, params, 0, {&session, &turn}), 1u);
  params = Greedy();
  params.logit_bias = {{2, 100.0f}};
  EXPECT_EQ(SampleAt(logits, params, 0), 2u);
}

TEST(SamplingTest, FrequencyCountsEachTimeAndPresenceOnce) {
  TokenCounts turn;
  turn.Add(std::vector<uint32_t>{0, 0, 0});
  SamplingParams params = Greedy();
  params.frequency_penalty = 0.5f;
  EXPECT_EQ(SampleAt(std::vector<float>{2, 0.49f}, params, 0, {nullptr, &turn}), 0u);
  EXPECT_EQ(SampleAt(std::vector<float>{2, 0.51f}, params, 0, {nullptr, &turn}), 1u);
  params.presence_penalty = 0.25f;
  EXPECT_EQ(SampleAt(std::vector<float>{2, 0.24f}, params, 0, {nullptr, &turn}), 0u);
  EXPECT_EQ(SampleAt(std::vector<float>{2, 0.26f}, params, 0, {nullptr, &turn}), 1u);
}

TEST(SamplingTest, RepetitionPenaltyLowersNegativeLogitsToo) {
  TokenCounts session;
  session.Add(0u);
  SamplingParams params = Greedy();
  params.repetition_penalty = 1.5f;
  EXPECT_EQ(SampleAt(std::vector<float>{-1.0f, -1.2f}, params, 0, {&session, nullptr}), 1u);
}

TEST(SamplingTest, RecentTokensCountLikeThoseInTheCounts) {
  std::mt19937_64 random(TestSeed());
  SamplingParams params = Greedy();
  params.repetition_penalty = 1.7f;
  params.frequency_penalty = 0.3f;
  params.presence_penalty = 0.2f;
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits = RandomFloats(12, random, 1.0f);
    std::vector<uint32_t> said(random() % 20);
    for (uint32_t& token : said) token = random() % logits.size();
    const size_t recent = random() % (said.size() + 1);
    TokenCounts all, session, turn;
    all.Add(said);
    session.Add(std::span(said).first(said.size() - recent));
    turn.Add(std::span(said).first(said.size() - recent));
    EXPECT_EQ(SampleAt(logits, params, 0, {&session, &turn, std::span(said).last(recent)}),
              SampleAt(logits, params, 0, {&all, &all}));
    if (recent < said.size()) continue;
    EXPECT_EQ(SampleAt(logits, params, 0, {nullptr, nullptr, said}),
              SampleAt(logits, params, 0, {&all, &all}));
  }
}

TEST(SamplingTest, HugeLogitsAndPenaltiesStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  TokenCounts session;
  session.Add(1u);
  SamplingParams params;
  params.repetition_penalty = 1e-3f;
  EXPECT_EQ(SampleAt(std::vector<float>{-kMax, kMax, 0}, params, 0, {&session, nullptr}), 1u);
}

TEST(SamplingTest, LogitsThatAreNotFiniteAreAnErrorThatNamesThem) {
  SamplingScratch scratch;
  for (float bad : {kInf, -kInf, std::nanf("")}) {
    for (size_t vocab : {1, 15, 16, 40, 1000}) {
      std::vector<float> logits(vocab, 0.5f);
      logits[vocab - 1] = bad;
      const auto token = Sample(logits, {}, {}, {}, scratch);
      ASSERT_EQ(token.status().code(), absl::StatusCode::kInternal) << bad << " " << vocab;
      const std::string message(token.status().message());
      EXPECT_NE(message.find("token " + std::to_string(vocab - 1)), std::string::npos) << message;
      EXPECT_FALSE(ChosenAndTopLogprobs(logits, 0, 1).ok());
    }
  }
}

TEST(SamplingTest, LogprobsAreNaturalLogarithmsOfTheRawProbabilities) {
  std::mt19937_64 random(TestSeed());
  for (size_t vocab : {1, 5, 300, 50257}) {
    std::vector<float> logits = RandomFloats(vocab, random, 3.0f);
    for (float& l : logits) l = std::round(l * 8) / 8;
    double sum = 0;
    for (float l : logits) sum += std::exp(double{l});
    std::vector<uint32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    const uint32_t chosen = random() % vocab;
    for (size_t n : {0, 1, 3, 20}) {
      const auto result = ChosenAndTopLogprobs(logits, chosen, n);
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(result->chosen.token, chosen);
      EXPECT_NEAR(result->chosen.logprob, logits[chosen] - std::log(sum), 2e-5);
      ASSERT_EQ(result->top.size(), std::min(n, vocab));
      for (size_t i = 0; i < result->top.size(); ++i) {
        EXPECT_EQ(result->top[i].token, order[i]);
        EXPECT_NEAR(result->top[i].logprob, logits[order[i]] - std::log(sum), 2e-5);
      }
    }
  }
}

TEST(SamplingTest, ParametersOutOfRangeAreNamed) {
  const auto message = [](auto&& change) {
    SamplingParams params;
    change(params);
    const absl::Status status = CheckSamplingParams(params, 100);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckSamplingParams({}, 100).ok());
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = 1.5f; }),
            "sampling.top_p is 1.5; it must be above 0 and at most 1 (1 is off)");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = 1.0000001f; }),
            "sampling.top_p is 1.0000001; it must be above 0 and at most 1 (1 is off)");
  const float nan = std::nanf("");
  for (float bad : {-1.0f, nan, kInf}) {
    EXPECT_NE(message([=](SamplingParams& p) { p.temperature = bad; }).find("temperature"),
              std::string::npos);
    EXPECT_NE(message([=](SamplingParams& p) { p.min_p = bad; }).find("min_p"), std::string::npos);
    EXPECT_NE(message([=](SamplingParams& p) { p.repetition_penalty = bad; }).find("repetition"),
              std::string::npos);
  }
  for (float bad : {-2.5f, nan}) {
    EXPECT_NE(message([=](SamplingParams& p) { p.frequency_penalty = bad; }).find("frequency"),
              std::string::npos);
    EXPECT_NE(message([=](SamplingParams& p) { p.presence_penalty = bad; }).find("presence"),
              std::string::npos);
  }
  EXPECT_NE(message([](SamplingParams& p) { p.top_p = 0; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) {
              p.logit_bias = {{3, 101.0f}};
            }).find("logit_bias[3] is 101"),
            std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) {
              p.logit_bias = {{100, 1.0f}};
            }).find("token 100"),
            std::string::npos);
}

TEST(TokenCountsTest, CountsForksAndClears) {
  TokenCounts counts;
  EXPECT_TRUE(counts.empty());
  const std::vector<uint32_t> tokens = {5, 7, 5, 5};
  counts.Add(tokens);
  TokenCounts fork = counts;
  fork.Add(7u);
  EXPECT_EQ(counts.count(5), 3u);
  EXPECT_EQ(counts.count(7), 1u);
  EXPECT_EQ(counts.count(6), 0u);
  EXPECT_EQ(fork.count(7), 2u);
  EXPECT_EQ(counts.distinct(), 2u);
  std::map<uint32_t, uint32_t> visited;
  counts.ForEach([&](uint32_t token, uint32_t count) { visited[token] = count; });
  EXPECT_EQ(visited, (std::map<uint32_t, uint32_t>{{5, 3}, {7, 1}}));
  fork.Add(9, 2);
  const TokenCounts rest = fork.Without(counts);
  EXPECT_EQ(rest.count(5), 0u);
  EXPECT_EQ(rest.count(7), 1u);
  EXPECT_EQ(rest.count(9), 2u);
  EXPECT_EQ(rest.distinct(), 2u);
  counts.Clear();
  EXPECT_TRUE(counts.empty());
}

}  // namespace
}  // namespace rivulet
