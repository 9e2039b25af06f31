// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Checkpoint directories, loaded and run through the engine, against what their own library or our
// float64 oracle computes: every log-probability, and the greedy continuation.
//
// Runs the fixtures of this folder. With RIVULET_PARITY_DIR=DIR also every checkpoint there.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "kernels/base/worst_difference.h"
#include "kernels/mixers/mixer.h"
#include "model_loader/loaded_model.h"
#include "model_loader/mixers/parsers.h"
#include "server/engine/cpu_engine.h"
#include "server/session/session.h"
#include "tests/parity/expected.h"

namespace rivulet {
namespace {

constexpr double kTolerance = 2e-4;  // docs/architecture.md#bit-equality
constexpr size_t kRows = 32;         // sessions that run together

std::string NameOf(const std::string& directory) {
  return std::filesystem::path(directory).filename().string();
}

class ParityTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto expected = ReadExpected(GetParam());
    ASSERT_TRUE(expected.ok()) << expected.status();
    expected_ = *expected;
    Load(FixtureOptions(NameOf(GetParam())));
  }

  // What became of the packed weights on disk.
  PackedCacheUse Load(const LoadOptions& how) {
    auto model = LoadModel(GetParam(), how);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    PackedCacheUse use = (*model)->packed_cache;
    EngineOptions options;
    options.threads = 2;
    options.state_memory = 256 << 20;
    options.state_context = 256;
    auto engine = MakeCpuEngine(std::shared_ptr<const LoadedModel>(*std::move(model)), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    if (engine.ok()) engine_ = *std::move(engine);
    return use;
  }

  // Of each input token, after those before it.
  std::vector<float> Scores() {
    StepPlan plan;
    AddRow(plan, expected_.input_ids).score_targets = expected_.input_ids;
    const StepResult result = engine_->Step(plan);
    EXPECT_TRUE(result.rows[0].status.ok()) << result.rows[0].status;
    std::vector<float> scores;
    for (const Logprobs& score : result.rows[0].scores) scores.push_back(score.chosen.logprob);
    sessions_.back()->CommitSegment();
    sessions_.clear();
    return scores;
  }

  // A row of `tokens` from the start of a fresh session, which lives until Commit.
  StepRow& AddRow(StepPlan& plan, const std::vector<uint32_t>& tokens) {
    auto session = Session::Create(engine_->states());
    EXPECT_TRUE(session.ok()) << session.status();
    sessions_.push_back(*std::move(session));
    return AddTokens(plan, *sessions_.back(), tokens);
  }

  static StepRow& AddTokens(StepPlan& plan, Session& session, const std::vector<uint32_t>& tokens) {
    session.Append(tokens);
    StepRow& row = plan.rows.emplace_back();
    const auto segment = session.PlanSegment(plan.tokens.size(), tokens.size());
    EXPECT_TRUE(segment.ok()) << segment.status();
    row.segment = segment.value_or(Segment());
    plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
    return row;
  }

  // The largest |log-probability - expected| of tokens [first, last) after every input token.
  double WorstOf(uint32_t first, uint32_t last) {
    StepPlan plan;
    for (uint32_t token = first; token < last; ++token) {
      AddRow(plan, expected_.input_ids).score_targets.assign(expected_.input_ids.size(), token);
    }
    const StepResult result = engine_->Step(plan);
    double worst = 0;
    for (uint32_t token = first; token < last; ++token) {
      const RowResult& row = result.rows[token - first];
      EXPECT_TRUE(row.status.ok()) << row.status;
      EXPECT_EQ(row.scores.size(), expected_.input_ids.size());
      for (size_t t = 0; t < row.scores.size(); ++t) {
        worst = WorstDifference(worst, row.scores[t].chosen.logprob, expected_.logprobs[t][token]);
      }
    }
    for (const auto& session : sessions_) session->CommitSegment();
    sessions_.clear();
    return worst;
  }

  std::vector<uint32_t> Continue(size_t count) {
    SamplingParams greedy;
    greedy.temperature = 0;
    std::vector<uint32_t> tokens, next = expected_.prompt_ids;
    sessions_.push_back(*Session::Create(engine_->states()));
    while (tokens.size() < count) {
      StepPlan plan;
      StepRow& row = AddTokens(plan, *sessions_.back(), next);
      row.samples = 1;
      row.spec.params = &greedy;
      const StepResult result = engine_->Step(plan);
      EXPECT_TRUE(result.rows[0].status.ok()) << result.rows[0].status;
      sessions_.back()->CommitSegment();
      tokens.push_back(result.rows[0].samples[0].token);
      next = {tokens.back()};
    }
    sessions_.clear();
    return tokens;
  }

  ExpectedOutputs expected_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Session>> sessions_;  // before the engine
};

TEST_P(ParityTest, LogProbabilities) {
  double worst = 0;
  for (size_t first = 0; first < expected_.vocab(); first += kRows) {
    const size_t last = std::min(first + kRows, expected_.vocab());
    worst = std::max(worst, WorstOf(static_cast<uint32_t>(first), static_cast<uint32_t>(last)));
  }
  std::cout << NameOf(GetParam()) << ": largest difference " << worst << std::endl;
  EXPECT_LE(worst, kTolerance);
}

TEST_P(ParityTest, GreedyContinuation) {
  EXPECT_EQ(Continue(expected_.greedy_ids.size()), expected_.greedy_ids);
}

TEST_P(ParityTest, WeightsThatWerePackedBeforeGiveTheSameBits) {
  LoadOptions options = FixtureOptions(NameOf(GetParam()));
  options.threads = 2;
  options.packed_cache = TestDirectory();
  const std::vector<float> plain = Scores();
  EXPECT_EQ(plain.size(), expected_.input_ids.size());
  const PackedCacheUse first = Load(options);
  EXPECT_TRUE(first.written) << first.failed;
  EXPECT_EQ(Scores(), plain);
  const PackedCacheUse second = Load(options);
  EXPECT_TRUE(second.read && !second.written) << second.unused << second.failed;
  EXPECT_EQ(Scores(), plain);
}

// The types of the mixers in all fixtures.
std::set<std::string> FixtureMixers() {
  std::set<std::string> types;
  for (const std::string& directory : FixtureDirectories()) {
    const auto model = LoadModel(directory, FixtureOptions(NameOf(directory)));
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) continue;
    for (const LayerSpec& layer : (*model)->spec.layers) types.insert(layer.mixer_type);
  }
  return types;
}

TEST(FixturesTest, HaveEveryRegisteredMixer) {
  const std::set<std::string> types = FixtureMixers();
  const auto found = [&](const MixerParser& mixer) {
    return types.contains(std::string(mixer.type));
  };
  for (const MixerParser& mixer : MixerParsers()) {
    // Under any of its names.
    EXPECT_TRUE(std::ranges::any_of(
        MixerParsers(),
        [&](const MixerParser& other) { return other.parse == mixer.parse && found(other); }))
        << mixer.type << " has no checkpoint in tests/parity/fixtures; make_fixtures.py makes one";
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ParityTest, testing::ValuesIn(ParityDirectories()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace rivulet
