// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention after `context` tokens, its recurrence alone: Decode is one token of each
// session (mixer_bench.h), Prompt a piece of `rows` tokens of one. 8 kv heads of `head` numbers,
// and `group` query heads to each. GFLOPS counts 4·H·head for each token that a query sees.
#include <vector>

#include "kernels/mixers/mixer_bench.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kKvHeads = 8;

struct Setting {
  size_t context, sessions, rows, head, group, threads;
  DType dtype;
};

Setting SettingOf(const benchmark::State& state, size_t sessions, size_t rows) {
  const auto at = [&](size_t i) { return static_cast<size_t>(state.range(i)); };
  return {
      at(0), sessions, rows, at(2), at(3), at(4), at(5) != 0 ? DType::kBFloat16 : DType::kFloat32};
}

// us_token must be there.
void CountOperations(const Setting& s, benchmark::State& state) {
  const double seen = 4.0 * kKvHeads * static_cast<double>(s.group * s.head * s.context);
  state.counters["GFLOPS"] = seen / state.counters["us_token"].value * 1e-3;
}

struct Bench {
  explicit Bench(const Setting& s)
      : recurrence({s.group * kKvHeads, kKvHeads, s.head, 0, s.dtype}, layout),
        sessions(layout, std::vector<uint64_t>(s.sessions, s.context), s.rows),
        q(s.sessions * s.rows, s.group * kKvHeads * PaddedColumns(s.head), -0.1, 0.1),
        kv(s.sessions * s.rows, kKvHeads * PaddedColumns(s.head), -1.0, 1.0),
        out(s.sessions * s.rows, s.group * kKvHeads * s.head, 0.0, 0.0),
        pool(s.threads) {}

  void Run() {
    workspace.Reset();
    recurrence.Run(sessions.segments, sessions.state(), {q.view, kv.view, kv.view}, out.view,
                   workspace, pool);
  }

  StateLayout layout;
  SoftmaxAttentionRecurrence recurrence;
  BenchSessions sessions;
  BenchRows q, kv, out;
  ThreadPool pool;
  Workspace workspace;
};

void Decode(benchmark::State& state) {
  const Setting setting = SettingOf(state, state.range(1), 1);
  Bench bench(setting);
  BenchSteps(state, bench.sessions, bench.sessions.bytes_a_token(), bench.pool,
             [&] { bench.Run(); });
  CountOperations(setting, state);
}

void Prompt(benchmark::State& state) {
  const Setting setting = SettingOf(state, 1, state.range(1));
  Bench bench(setting);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    bench.sessions.Plan();
    bench.Run();
    bench.sessions.Commit();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto tokens = static_cast<double>(state.iterations() * setting.rows);
  state.counters["us_token"] = seconds.count() / tokens * 1e6;
  CountOperations(setting, state);
}

BENCHMARK(Decode)
    ->ArgNames({"context", "sessions", "head", "group", "threads", "bf16"})
    ->ArgsProduct({{16384, 65536}, {1}, {64, 128}, {1, 4}, {1, 2}, {0, 1}})
    ->ArgsProduct({{128, 1024}, {1, 16}, {128}, {1, 4}, {1, 2}, {0, 1}})
    ->ArgsProduct({{1048576}, {1}, {64}, {1, 4}, {1, 2}, {1}})
    ->UseRealTime();
BENCHMARK(Prompt)
    ->ArgNames({"context", "rows", "head", "group", "threads", "bf16"})
    ->ArgsProduct({{1024, 16384}, {16, 64, 256}, {64, 128}, {1, 4}, {1, 2}, {0}})
    ->UseRealTime();

}  // namespace
}  // namespace rivulet
