// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One ANNA layer at decode (mixer_bench.h), its recurrence alone, and its hashing alone:
// hidden/sessions/threads. Heads of 64 with 16 tables of 6 SimHash bits each.
//
// A token reads the ℓ buckets of its query and, once in C tokens, reads and writes those of C keys:
// not the whole base, as other mixers do.
#include <cmath>

#include "kernels/mixers/anna/anna_config.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_recurrence.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

constexpr size_t kDim = 64, kTables = 16, kHashes = 6, kBuckets = 64;

// Of the state of one token of one head: the buckets read, those folded, and half a tail.
double StateBytes() {
  const double row = sizeof(float) * (kDim + 1.0);
  const double tail = sizeof(float) * kFoldInterval * (kDim + kTables);
  return kTables * row * (1 + 2) + tail / 2;
}

double HashBytes() { return sizeof(float) * kTables * kHashes * kDim; }

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0), heads = hidden / kDim, count = state.range(1);
  const AnnaConfig config{.hash = {HashFamily::kSimHash, heads, kDim, kTables, kHashes},
                          .shape = {heads, {kTables, kBuckets, kDim}}};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"q_proj.weight", {hidden, hidden}},
                                     {"k_proj.weight", {hidden, hidden}},
                                     {"v_proj.weight", {hidden, hidden}},
                                     {"hash_proj", {heads, kTables, kHashes, kDim}},
                                     {"o_norm.weight", {kDim}},
                                     {"o_proj.weight", {hidden, hidden}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchSessions sessions(mixer->state_layout(), count);
  const BenchRows x(count, hidden, -1.0, 1.0), y(count, hidden, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  const LayerStep step{sessions.segments, sessions.state(), &workspace, &pool};
  const double weights =
      (static_cast<double>(weight_bytes) + static_cast<double>(heads) * HashBytes()) /
      static_cast<double>(count);
  BenchSteps(state, sessions, static_cast<double>(heads) * StateBytes() + weights, pool, [&] {
    if (!mixer->Forward(step, x.view, y.view).ok()) state.SkipWithError("Forward failed");
    workspace.Reset();
  });
}

// Whole numbers, one for each table of each head.
BenchRows Buckets(size_t rows, size_t columns) {
  BenchRows buckets(rows, columns, 0.0, kBuckets);
  for (size_t i = 0; i < buckets.buffer.size(); ++i) {
    buckets.buffer[i] = std::floor(buckets.buffer[i]);
  }
  return buckets;
}

void Recurrence(benchmark::State& state) {
  const size_t hidden = state.range(0), heads = hidden / kDim, count = state.range(1);
  StateLayout layout;
  const AnnaRecurrence recurrence({heads, {kTables, kBuckets, kDim}, true}, layout);
  BenchSessions sessions(layout, count);
  const BenchRows q = Buckets(count, heads * kTables), v(count, hidden, -1.0, 1.0),
                  out(count, hidden, 0.0, 0.0);
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, static_cast<double>(heads) * StateBytes(), pool, [&] {
    recurrence.Run(sessions.segments, sessions.state(), {q.view, q.view, v.view}, out.view, pool);
  });
}

void Hash(benchmark::State& state) {
  const size_t hidden = state.range(0), heads = hidden / kDim, count = state.range(1);
  const BenchRows projections(1, heads * kTables * kHashes * kDim, -1.0, 1.0);
  const AnnaHash hash({HashFamily::kSimHash, heads, kDim, kTables, kHashes},
                      projections.buffer.data());
  StateLayout layout;
  BenchSessions sessions(layout, count);
  const BenchRows x(count, hidden, -1.0, 1.0), q = Buckets(count, heads * kTables),
                                               k = Buckets(count, heads * kTables);
  ThreadPool pool(state.range(2));
  const double bytes = static_cast<double>(heads) * HashBytes() / static_cast<double>(count);
  BenchSteps(state, sessions, bytes, pool,
             [&] { hash.Apply(x.view, x.view, q.view, k.view, pool); });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{1024, 2048}, {1, 64}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);
BENCHMARK(Hash)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
