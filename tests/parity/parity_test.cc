// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Checkpoint directories, loaded and run through the engine, against what their own library or our
// float64 oracle computes: every log-probability, and the greedy continuation.
//
// Runs the fixtures of this folder. With RIVULET_PARITY_DIR=DIR also the ten
// checkpoints there that this server knows.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "gtest/gtest.h"
#include "model_loader/loaded_model.h"
#include "server/engine/cpu_engine.h"
#include "tests/parity/expected.h"

namespace rivulet {
namespace {

constexpr double kTolerance = 2e-4;  // DESIGN 5
constexpr size_t kRows = 32;         // sessions that run together

const char* const kSharedCheckpoints[] = {
    "hla_masked_a", "hla_masked_decay_a", "hla_masked_norm_a", "hla_serial_decay_a",
    "ahla_decay_a", "ahla_norm_a",        "fla_gla_a",         "fla_linear_attn_a",
    "fla_mamba2_a", "hf_mamba2_a",        "fla_retnet_a"};

std::vector<std::string> Directories() {
  const char* const root = std::getenv("RIVULET_SOURCE_DIR");
  std::vector<std::string> directories = FixtureDirectories(root != nullptr ? root : ".");
  if (const char* const shared = std::getenv("RIVULET_PARITY_DIR"); shared != nullptr) {
    for (const char* name : kSharedCheckpoints) {
      directories.push_back(std::string(shared) + "/" + name);
    }
  }
  return directories;
}

std::string NameOf(const std::string& directory) {
  return std::filesystem::path(directory).filename().string();
}

class ParityTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto expected = ReadExpected(GetParam());
    ASSERT_TRUE(expected.ok()) << expected.status();
    expected_ = *expected;
    LoadOptions load;
    load.mixer = FixtureOptions(NameOf(GetParam()));
    auto model = LoadModel(GetParam(), load);
    ASSERT_TRUE(model.ok()) << model.status();
    EngineOptions options;
    options.threads = 2;
    options.state_memory = 64 << 20;
    auto engine = MakeCpuEngine(std::shared_ptr<const LoadedModel>(*std::move(model)), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // A row of `tokens` from the start of a fresh session.
  StepRow& AddRow(StepPlan& plan, const std::vector<uint32_t>& tokens) {
    StepRow& row = plan.rows.emplace_back();
    row.segment.first_token = plan.tokens.size();
    row.segment.tokens = tokens.size();
    const auto checkpoint = engine_->AcquireCheckpoint();
    const auto tail = engine_->AcquireTail();
    EXPECT_TRUE(checkpoint.ok() && tail.ok());
    row.segment.checkpoint_in = row.segment.checkpoint_out = checkpoint.value_or(0);
    row.segment.tail = tail.value_or(0);
    plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
    return row;
  }

  void Release(const StepPlan& plan) {
    for (const StepRow& row : plan.rows) {
      engine_->ReleaseCheckpoint(row.segment.checkpoint_in);
      engine_->ReleaseTail(row.segment.tail);
    }
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
        const double difference =
            std::abs(row.scores[t].chosen.logprob - expected_.logprobs[t][token]);
        worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;
      }
    }
    Release(plan);
    return worst;
  }

  std::vector<uint32_t> Continue(size_t count) {
    SamplingParams greedy;
    greedy.temperature = 0;
    StepPlan plan;
    StepRow& row = AddRow(plan, expected_.prompt_ids);
    row.sample = true;
    row.spec.params = &greedy;
    std::vector<uint32_t> tokens;
    while (tokens.size() < count) {
      const StepResult result = engine_->Step(plan);
      EXPECT_TRUE(result.rows[0].status.ok()) << result.rows[0].status;
      tokens.push_back(result.rows[0].token);
      row.segment.position += row.segment.tokens;
      row.segment.tokens = 1;
      plan.tokens = {tokens.back()};
    }
    Release(plan);
    return tokens;
  }

  ExpectedOutputs expected_;
  std::unique_ptr<Engine> engine_;
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

INSTANTIATE_TEST_SUITE_P(Fixtures, ParityTest, testing::ValuesIn(Directories()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace rivulet
