// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One draw from a row of logits, which are normal with the given standard deviation: 1 is nearly
// flat (the hard case for top_p), 4 is as peaked as a trained model's.
#include <random>

#include "benchmark/benchmark.h"
#include "kernels/ops/sampling/sampling.h"

namespace rivulet {
namespace {

std::vector<float> Logits(size_t vocab, float deviation) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

void Run(benchmark::State& state, const SamplingParams& params) {
  const auto vocab = static_cast<size_t>(state.range(0));
  const std::vector<float> logits = Logits(vocab, static_cast<float>(state.range(1)));
  SamplingScratch scratch;
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Sample(logits, params, {}, {0, position++}, scratch));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(vocab * sizeof(float)));
}

void BM_Greedy(benchmark::State& state) {
  SamplingParams params;
  params.temperature = 0.0f;
  Run(state, params);
}
void BM_Temperature(benchmark::State& state) { Run(state, {}); }
void BM_TopK(benchmark::State& state) {
  SamplingParams params;
  params.top_k = 50;
  Run(state, params);
}
void BM_TopP(benchmark::State& state) {
  SamplingParams params;
  params.top_p = 0.95f;
  Run(state, params);
}
void BM_MinP(benchmark::State& state) {
  SamplingParams params;
  params.min_p = 0.05f;
  Run(state, params);
}

void BM_TopLogprobs(benchmark::State& state) {
  const std::vector<float> logits = Logits(static_cast<size_t>(state.range(0)), 4.0f);
  for (auto _ : state) benchmark::DoNotOptimize(ChosenAndTopLogprobs(logits, 0, 20));
}

void Shapes(benchmark::internal::Benchmark* bench) {
  for (int64_t vocab : {4096, 32000, 250000}) {
    for (int64_t deviation : {1, 4}) bench->Args({vocab, deviation});
  }
  bench->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_Greedy)->Apply(Shapes);
BENCHMARK(BM_Temperature)->Apply(Shapes);
BENCHMARK(BM_TopK)->Apply(Shapes);
BENCHMARK(BM_TopP)->Apply(Shapes);
BENCHMARK(BM_MinP)->Apply(Shapes);
BENCHMARK(BM_TopLogprobs)->Arg(4096)->Arg(32000)->Arg(250000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rivulet
