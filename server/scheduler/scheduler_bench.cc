// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the engine thread spends on a step beside the engine: Plan and Commit, with so many rows
// that decode, a tokenizer, and clients that take all there is after each step (their time is not
// counted). The engine is FakeEngine, whose time is not counted either. And what it takes to choose
// how many drafts each row checks.
#include <chrono>
#include <deque>

#include "benchmark/benchmark.h"
#include "server/drafts/lookup_drafter.h"
#include "server/scheduler/draft_choice.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

double SecondsSince(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds of a step without `run`, which executes its plan.
template <typename Run>
double PlanAndCommit(Scheduler& scheduler, const Run& run) {
  const TimePoint planned = Clock::now();
  const StepPlan& plan = scheduler.Plan(planned);
  double seconds = SecondsSince(planned);
  StepResult result = run(plan);
  const TimePoint committed = Clock::now();
  scheduler.Commit(std::move(result), committed);
  seconds += SecondsSince(committed);
  return seconds;
}

void DecodeStep(benchmark::State& state) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  FakeEngine engine(rows);
  engine.next_token = [](const StepRow& row) {
    return static_cast<uint32_t>(row.spec.position % 26);
  };
  FakeTokenizer tokenizer;
  Metrics metrics;
  SessionTable sessions({}, metrics);
  Dispatcher dispatcher;
  SchedulerOptions options;
  options.max_queue = rows;
  options.tokenizer = &tokenizer;
  Scheduler scheduler(engine, sessions, dispatcher, metrics, options);
  std::deque<Client> clients;
  for (uint32_t i = 0; i < rows; ++i) {
    Client& client = clients.emplace_back(1);
    auto request = MakeRequest(client, {1, 2, 3}, 1u << 30);
    if (!scheduler.Submit(request).ok()) return state.SkipWithError("refused");
  }
  for (auto _ : state) {
    state.SetIterationTime(
        PlanAndCommit(scheduler, [&](const StepPlan& plan) { return engine.Step(plan); }));
    for (Client& client : clients) client.Read();
  }
  state.counters["ns_per_row"] =
      benchmark::Counter(static_cast<double>(rows), benchmark::Counter::kIsIterationInvariantRate |
                                                        benchmark::Counter::kInvert);
}
BENCHMARK(DecodeStep)->Arg(1)->Arg(8)->Arg(64)->Arg(256)->Arg(1024)->UseManualTime();

// The same with look-ups, in text that is new (0) or repeats (1). Drafts make a step of a
// millisecond longer by 0.3, and by half a microsecond each. `follow_us`: what FollowDrafts takes,
// which is not counted.
void DecodeStepWithLookups(benchmark::State& state) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  const bool repeats = state.range(1) != 0;
  FakeEngine engine(rows);
  engine.next_token = [repeats](const StepRow& row) {
    const uint64_t place = row.spec.position % (repeats ? 50 : 1u << 30);
    return static_cast<uint32_t>((place * place * 2654435761u >> 7) % FakeEngine::kVocab);
  };
  FakeTokenizer tokenizer;
  Metrics metrics;
  SessionTable sessions({}, metrics);
  Dispatcher dispatcher;
  LookupSource source({}, metrics);
  SchedulerOptions options;
  options.max_queue = rows;
  options.tokenizer = &tokenizer;
  options.drafts.source = &source;
  Scheduler scheduler(engine, sessions, dispatcher, metrics, options);
  std::deque<Client> clients;
  for (uint32_t i = 0; i < rows; ++i) {
    Client& client = clients.emplace_back(1);
    auto request = MakeRequest(client, {1, 2, 3}, 1u << 30);
    if (!scheduler.Submit(request).ok()) return state.SkipWithError("refused");
  }
  double follow = 0;
  for (auto _ : state) {
    state.SetIterationTime(PlanAndCommit(scheduler, [&](const StepPlan& plan) {
      StepResult result = engine.Step(plan);
      const size_t drafts = plan.tokens.size() - plan.rows.size();
      result.device_seconds = 1e-3;
      if (drafts > 0) result.device_seconds += 3e-4 + 5e-7 * static_cast<double>(drafts);
      const TimePoint followed = Clock::now();
      scheduler.FollowDrafts();
      follow += SecondsSince(followed);
      return result;
    }));
    for (Client& client : clients) client.Read();
  }
  state.counters["follow_us"] =
      benchmark::Counter(1e6 * follow, benchmark::Counter::kAvgIterations);
  state.counters["drafts"] = benchmark::Counter(
      static_cast<double>(metrics.draft_tokens[static_cast<size_t>(DraftSource::kLookup)].value()),
      benchmark::Counter::kAvgIterations);
}
BENCHMARK(DecodeStepWithLookups)
    ->Args({8, 0})
    ->Args({64, 0})
    ->Args({256, 0})
    ->Args({64, 1})
    ->UseManualTime()
    ->Iterations(2000);

// Three drafts a row lengthen a step by a quarter, and each row has fifteen likely ones.
void ChooseDrafts(benchmark::State& state) {
  const auto rows = static_cast<size_t>(state.range(0));
  StepCost cost(16);
  DraftChoice choice(cost);
  for (int i = 0; i < 4; ++i) cost.Observe(rows, 0, 1.0);
  for (int i = 0; i < 8; ++i) choice.Observe({rows, 3 * rows, 2 * rows, 1.25});
  choice.Observe({rows, 0, 0, 1.0});
  DraftProspect prospect;
  prospect.chances.fill(0.8f);
  prospect.count = kMostDrafts;
  prospect.standing = {.gain = 4, .credit = 0.5};
  const std::vector<DraftProspect> prospects(rows, prospect);
  size_t drafts = 0;
  for (auto _ : state) {
    for (const uint32_t count : choice.Choose(prospects)) drafts += count;
  }
  state.counters["drafts"] =
      benchmark::Counter(static_cast<double>(drafts), benchmark::Counter::kAvgIterations);
}
BENCHMARK(ChooseDrafts)->Arg(1)->Arg(8)->Arg(64)->Arg(256);

}  // namespace
}  // namespace rivulet
