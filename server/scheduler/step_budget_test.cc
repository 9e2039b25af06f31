// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// PlanStep and StepCost on simulated machines, in virtual time: what prompts do to running streams,
// what streams do to prompts, and how prompts share. No clock: the same seed gives the same
// numbers, so limits on times may stand here. RIVULET_TEST_SEED replays a run.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/recurrence/state.h"
#include "server/scheduler/plan.h"

namespace rivulet {
namespace {

constexpr size_t kInterval = 16;  // the fold interval

// What a step takes: fixed + row · decode rows + token · prompt tokens + fold · folds.
struct Machine {
  std::string name;
  double fixed, row, token, fold;  // milliseconds
  double noise = 0.03;             // as a part of a step
  double outliers = 0;             // part of the steps that take 20 times as long
};

void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.name; }

const std::vector<Machine>& Machines() {
  static const std::vector<Machine> machines = {
      {"WeightBound", 10, 0.1, 0.1, 0.02},
      {"VeryWeightBound", 100, 0.1, 0.05, 0.02},
      {"ComputeBound", 0.2, 0.3, 0.3, 0.05},
      {"SlowAndComputeBound", 5, 30, 30, 3},
      {"TinyModel", 0.05, 0.02, 0.01, 0.005},
      {"FoldHeavy", 2, 0.2, 0.1, 1},
      {"Noisy", 5, 0.2, 0.1, 0.02, 0.3},
      {"Outliers", 5, 0.2, 0.1, 0.02, 0.05, 0.003},
      {"NoisyOutliers", 1, 0.2, 0.15, 0.1, 0.2, 0.003},
  };
  return machines;
}

struct Prompt {
  uint32_t left = 0;
  uint64_t position = 0;
  uint64_t last_turn = 0;
  uint32_t in_turn = 0;    // tokens since then
  double ended = 0;        // time; 0: not yet
  uint32_t processed = 0;  // tokens
};

class Simulation {
 public:
  Simulation(const Machine& machine, size_t streams, uint64_t seed)
      : machine_(machine), random_(seed) {
    for (size_t i = 0; i < streams; ++i) streams_.push_back(random_() % 1000);
  }

  void AddPrompt(uint32_t tokens) { prompts_.push_back({.left = tokens, .last_turn = ++turn_}); }
  void EndStreams() { streams_.clear(); }
  void SetSpeed(double factor) { speed_ = factor; }  // steps take so many times as long

  void Step() {
    const std::vector<RowView> rows = Views();
    const auto run = PlanStep(TimePoint(), rows, cost_, limits_).run;
    double ms = machine_.fixed;
    size_t decoding = 0, tokens = 0;
    for (const PlannedRow& row : run) {
      const double folds =
          static_cast<double>((rows[row.row].position % kInterval + row.tokens) / kInterval);
      ms += machine_.fold * folds;
      const bool is_prompt = rows[row.row].prompt_left > 0;
      (is_prompt ? tokens : decoding) += row.tokens;
      if (is_prompt) prompt_ms_ += (machine_.token * row.tokens + machine_.fold * folds) * speed_;
      Advance(row);
    }
    ms +=
        machine_.row * static_cast<double>(decoding) + machine_.token * static_cast<double>(tokens);
    ms *= speed_ * Disturbance();
    cost_.Observe(decoding, tokens, ms / 1000);
    now_ += ms;
    if (decoding > 0) gaps_.push_back(ms / speed_);
    steps_since_decode_ = tokens > 0 ? steps_since_decode_ + 1 : 0;
    longest_unmeasured_ = std::max(longest_unmeasured_, steps_since_decode_);
    last_tokens_ = tokens;
    for (Prompt& prompt : prompts_) {
      if (prompt.left == 0 && prompt.ended == 0) prompt.ended = now_;
    }
  }

  void Steps(size_t count) {
    for (size_t i = 0; i < count; ++i) Step();
  }
  bool PromptsRun() const {
    return std::any_of(prompts_.begin(), prompts_.end(),
                       [](const Prompt& p) { return p.left > 0; });
  }
  // Until all prompts are processed; what had been noted before is forgotten.
  void RunPrompts(size_t most_steps = 1000000) {
    Forget();
    for (size_t i = 0; i < most_steps && PromptsRun(); ++i) Step();
  }
  void Forget() {
    gaps_.clear();
    prompt_ms_ = 0;
    began_ = now_;
    longest_unmeasured_ = 0;
  }

  // Between two tokens of a stream, at the machine's usual speed.
  const std::vector<double>& gaps() const { return gaps_; }
  // Part of the machine's time that went into prompts.
  double PromptShare() const { return prompt_ms_ / (now_ - began_); }
  double now() const { return now_; }
  double began() const { return began_; }
  const std::vector<Prompt>& prompts() const { return prompts_; }
  size_t longest_unmeasured() const { return longest_unmeasured_; }
  size_t last_tokens() const { return last_tokens_; }
  const PlanLimits& limits() const { return limits_; }

 private:
  std::vector<RowView> Views() const {
    std::vector<RowView> rows;
    for (const uint64_t position : streams_) rows.push_back({.position = position});
    for (const Prompt& prompt : prompts_) {
      rows.push_back({.position = prompt.position,
                      .prompt_left = prompt.left,
                      .outbox_full = prompt.left == 0,
                      .last_turn = prompt.last_turn});
    }
    return rows;
  }

  void Advance(const PlannedRow& row) {
    if (row.row < streams_.size()) {
      ++streams_[row.row];
      return;
    }
    Prompt& prompt = prompts_[row.row - streams_.size()];
    prompt.left -= row.tokens;
    prompt.position += row.tokens;
    prompt.processed += row.tokens;
    prompt.in_turn += row.tokens;
    if (prompt.in_turn < kPromptTurnTokens) return;
    prompt.in_turn %= kPromptTurnTokens;
    prompt.last_turn = ++turn_;
  }

  double Disturbance() {
    std::normal_distribution<double> normal(1, machine_.noise);
    const bool outlier = std::bernoulli_distribution(machine_.outliers)(random_);
    return std::max(0.5, normal(random_)) * (outlier ? 20 : 1);
  }

  const Machine machine_;
  std::mt19937_64 random_;
  PlanLimits limits_;
  StepCost cost_{kInterval};
  std::vector<uint64_t> streams_;  // positions
  std::vector<Prompt> prompts_;
  uint64_t turn_ = 0;
  double speed_ = 1;
  double now_ = 0;  // ms
  double began_ = 0;
  double prompt_ms_ = 0;
  size_t steps_since_decode_ = 0, longest_unmeasured_ = 0, last_tokens_ = 0;
  std::vector<double> gaps_;
};

double P99(std::vector<double> gaps) {
  std::sort(gaps.begin(), gaps.end());
  return gaps[gaps.size() * 99 / 100];
}

class StepBudgetTest : public testing::TestWithParam<Machine> {
 protected:
  static constexpr uint64_t kRepeats = 10;

  // Of streams without any prompt.
  double UsualP99(size_t streams) {
    Simulation usual(GetParam(), streams, seed_ + 1000);
    usual.Steps(20000);
    return P99(usual.gaps());
  }
  // Of a prompt alone, in steps of as many tokens as one may have; outliers and all.
  static double BestTime(uint32_t tokens) {
    const Machine& machine = GetParam();
    const double steps = static_cast<double>(tokens) / PlanLimits().max_prompt_tokens;
    const double token = machine.token + machine.fold / kInterval;
    return (steps * machine.fixed + tokens * token) * (1 + 19 * machine.outliers);
  }
  Simulation Make(size_t streams) { return Simulation(GetParam(), streams, seed_); }

  const uint64_t seed_ = TestSeed();
};

// The goal of the whole budget: p99 of the gaps under 3 times what it is without the prompt, and
// the prompt gets a fifth of the machine, unless it already has as many tokens as a step may.
TEST_P(StepBudgetTest, ALongPromptLeavesRunningStreamsTheirPace) {
  for (const size_t streams : {1, 8, 64}) {
    const double usual = UsualP99(streams);
    for (const bool cold : {false, true}) {
      // Several, since the gaps of one are too few for a p99 where steps are preempted.
      std::vector<double> gaps;
      double share = 0;
      for (uint64_t i = 0; i < kRepeats; ++i) {
        Simulation simulation(GetParam(), streams, seed_ + i);
        if (!cold) simulation.Steps(300);
        simulation.AddPrompt(20000);
        simulation.RunPrompts();
        gaps.insert(gaps.end(), simulation.gaps().begin(), simulation.gaps().end());
        share += simulation.PromptShare() / kRepeats;
      }
      const double tokens_a_step = 20000.0 * kRepeats / static_cast<double>(gaps.size());
      const double p99 = P99(gaps);
      SCOPED_TRACE(testing::Message() << streams << " streams" << (cold ? ", cold" : ""));
      std::printf(
          "%zu streams%s: p99 %.2f times the usual, prompt's share %.2f, %.0f tokens a step\n",
          streams, cold ? ", cold" : "", p99 / usual, share, tokens_a_step);
      EXPECT_LT(p99, 3 * usual);
      EXPECT_TRUE(share > 0.2 || tokens_a_step > 0.8 * PlanLimits().max_prompt_tokens);
    }
  }
}

// What the rows take may change: it is measured again every so many steps.
TEST_P(StepBudgetTest, DecodeRowsAreMeasuredAgainAndAgain) {
  Simulation simulation = Make(8);
  simulation.AddPrompt(20000);
  simulation.RunPrompts();
  EXPECT_LE(simulation.longest_unmeasured(), 64u);
}

TEST_P(StepBudgetTest, AMachineThatChangesItsSpeedIsLearntAgain) {
  for (const double factor : {3.0, 1 / 3.0}) {
    for (const size_t streams : {8, 64}) {
      const double usual = UsualP99(streams);
      Simulation simulation = Make(streams);
      simulation.AddPrompt(100000000);
      simulation.Steps(500);
      simulation.SetSpeed(factor);
      simulation.Steps(400);  // to learn
      simulation.Forget();
      simulation.Steps(3000);
      std::printf("%zu streams, %.2f: p99 %.2f times the usual, share %.2f\n", streams, factor,
                  P99(simulation.gaps()) / usual, simulation.PromptShare());
      EXPECT_LT(P99(simulation.gaps()), 3 * usual);
      EXPECT_TRUE(simulation.PromptShare() > 0.2 ||
                  simulation.last_tokens() >= simulation.limits().max_prompt_tokens / 2);
    }
  }
}

TEST_P(StepBudgetTest, NoPromptStarvesAndEqualOnesGetTheSame) {
  for (const size_t count : {1, 3, 50}) {
    Simulation simulation = Make(8);
    simulation.Steps(50);
    for (size_t i = 0; i < count; ++i) simulation.AddPrompt(1000000);
    for (int i = 0; i < 3000; ++i) {
      simulation.Step();
      uint32_t least = ~uint32_t{0}, most = 0;
      for (const Prompt& prompt : simulation.prompts()) {
        least = std::min(least, prompt.processed);
        most = std::max(most, prompt.processed);
      }
      // One turn more than another, and each turn ends with a whole piece.
      const uint32_t piece = simulation.limits().max_prompt_tokens;
      ASSERT_LE(most - least, 2 * (kPromptTurnTokens + piece)) << count << " prompts, step " << i;
    }
    EXPECT_GT(simulation.prompts().back().processed, 0u);
  }
}

// A short prompt that comes while a long one runs waits for its own tokens alone, more or less.
TEST_P(StepBudgetTest, AShortPromptDoesNotWaitForALongOne) {
  Simulation alone = Make(8);
  alone.Steps(50);
  alone.AddPrompt(20000);
  alone.Steps(300);
  const double began = alone.now();
  alone.AddPrompt(100);
  while (alone.prompts()[1].left > 0) alone.Step();
  const double beside = alone.now() - began;
  Simulation whole = Make(8);
  whole.Steps(50);
  whole.AddPrompt(20000);
  const double start = whole.now();
  whole.RunPrompts();
  EXPECT_LT(beside, (whole.now() - start) / 5);
}

// Without streams. The best that the machine can do are steps of as many tokens as a step may have;
// a quarter of that is required, since steps stay short for requests that arrive meanwhile.
TEST_P(StepBudgetTest, PromptsRunFastOnceTheStreamsHaveEnded) {
  Simulation simulation = Make(8);
  simulation.Steps(50);
  simulation.AddPrompt(2000);
  simulation.RunPrompts();
  simulation.EndStreams();
  simulation.AddPrompt(20000);
  simulation.RunPrompts();
  EXPECT_LT(simulation.now() - simulation.began(), 4 * BestTime(20000));
}

// The first prompt of a server that has seen nothing.
TEST_P(StepBudgetTest, PromptsRunFastFromTheStart) {
  Simulation simulation = Make(0);
  simulation.AddPrompt(20000);
  simulation.RunPrompts();
  EXPECT_LT(simulation.now() - simulation.began(), 4 * BestTime(20000));
}

INSTANTIATE_TEST_SUITE_P(Machines, StepBudgetTest, testing::ValuesIn(Machines()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
