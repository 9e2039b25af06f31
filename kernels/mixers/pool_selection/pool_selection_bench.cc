// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What it costs to score a context's pools for one token, in GLM-5.3-Flash's shape: pools of 16
// tokens, 32 heads of 128. pools/heads.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/mixers/pool_selection/pool_scores.h"

namespace rivulet {
namespace {

void Score(benchmark::State& state) {
  constexpr size_t kWidth = 128;
  const size_t pools = state.range(0), heads = state.range(1);
  AlignedBuffer<float> q(heads * kWidth), keys(pools * kWidth);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 7) - 3;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<float>(i % 5) - 2;
  std::vector<float> weights(heads, 0.1f), scores(pools);
  for (auto _ : state) {
    ScorePools(q.data(), weights.data(), heads, keys.data(), pools, kWidth, scores.data());
    benchmark::DoNotOptimize(scores.data());
  }
  const double adds = static_cast<double>(state.iterations()) * static_cast<double>(pools) *
                      static_cast<double>(heads * kWidth);
  state.counters["Gmuladds"] = benchmark::Counter(adds / 1e9, benchmark::Counter::kIsRate);
}

BENCHMARK(Score)->ArgNames({"pools", "heads"})->ArgsProduct({{256, 2048, 65536}, {32}});

}  // namespace
}  // namespace rivulet
