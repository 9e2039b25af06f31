// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ at decode and prefill sizes, and the machine's limits beside it: the read bandwidth of
// memory (what one token is bound by) and the multiply-add rate (what many tokens are bound by).
// Counters: B_expected is the bytes of weights that one Apply reads; GB/s and GFLOP/s are the
// rates. NOTES.md has predictions and results.
#include <atomic>
#include <chrono>
#include <random>

#include "benchmark/benchmark.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/linear/machine_limits.h"

namespace rivulet {
namespace {

AlignedBuffer<float> Random(size_t count) {
  std::mt19937 random(1);
  AlignedBuffer<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000.0f;
  }
  return values;
}

using benchmark::Counter;

Counter Rate(double amount) {
  return Counter(amount, Counter::kIsIterationInvariantRate, Counter::OneK::kIs1000);
}

// Args: tokens, inputs, outputs, bf16, threads.
void BM_Linear(benchmark::State& state) {
  const auto tokens = static_cast<size_t>(state.range(0));
  const auto inputs = static_cast<size_t>(state.range(1));
  const auto outputs = static_cast<size_t>(state.range(2));
  const DType dtype = state.range(3) != 0 ? DType::kBFloat16 : DType::kFloat32;
  ThreadPool pool(static_cast<size_t>(state.range(4)));
  const AlignedBuffer<float> weight = Random(inputs * outputs);
  const Linear linear =
      Linear::Pack({{weight.data(), DType::kFloat32, outputs, nullptr}}, inputs, dtype);
  const AlignedBuffer<float> x = Random(tokens * inputs);
  AlignedBuffer<float> y(tokens * outputs);
  for (auto _ : state) {
    linear.Apply({x.data(), tokens, inputs, inputs}, {y.data(), tokens, outputs, outputs}, pool);
    benchmark::ClobberMemory();
  }
  const auto bytes = static_cast<double>(linear.weight_bytes());
  state.counters["B_expected"] = Counter(bytes, Counter::kDefaults, Counter::OneK::kIs1000);
  state.counters["B/s"] = Rate(bytes);
  state.counters["FLOP/s"] = Rate(2.0 * static_cast<double>(tokens * inputs * outputs));
}

// Reads a buffer larger than every cache, each thread a part of it. Args: threads.
void BM_ReadBandwidth(benchmark::State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  constexpr size_t kFloats = size_t{64} << 20;
  const AlignedBuffer<float> data = Random(kFloats);
  ThreadPool pool(threads);
  constexpr size_t kParts = 64;
  for (auto _ : state) {
    pool.ParallelFor(kParts, [&](size_t i) {
      ReadFloats(data.data() + i * (kFloats / kParts), kFloats / kParts);
    });
  }
  state.counters["B/s"] = Rate(static_cast<double>(kFloats * sizeof(float)));
}

// Multiply-adds on registers alone. Args: threads.
void BM_MultiplyAddRate(benchmark::State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  ThreadPool pool(threads);
  constexpr size_t kRounds = 1 << 16;
  for (auto _ : state) {
    pool.ParallelFor(threads, [](size_t) { MultiplyAdds(kRounds); });
  }
  state.counters["FLOP/s"] = Rate(static_cast<double>(threads * kRounds * kFlopsOfRound));
}

void Decode(benchmark::internal::Benchmark* bench) {
  for (int64_t threads : {1, 2}) {
    for (int64_t bf16 : {0, 1}) {
      bench->Args({1, 4096, 16384, bf16, threads});  // 268 MB or 134 MB: larger than cache
      bench->Args({1, 768, 3072, bf16, threads});    // in cache
      bench->Args({1, 256, 1024, bf16, threads});    // a bundled model's
      bench->Args({4, 4096, 16384, bf16, threads});
      bench->Args({16, 4096, 16384, bf16, threads});
    }
  }
}
void Prefill(benchmark::internal::Benchmark* bench) {
  for (int64_t threads : {1, 2}) {
    for (int64_t bf16 : {0, 1}) {
      bench->Args({64, 1024, 4096, bf16, threads});
      bench->Args({512, 1024, 4096, bf16, threads});
      bench->Args({256, 4096, 4096, bf16, threads});
      bench->Args({128, 256, 1024, bf16, threads});
    }
  }
}

BENCHMARK(BM_ReadBandwidth)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MultiplyAddRate)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Linear)->Name("Decode")->Apply(Decode)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Linear)->Name("Prefill")->Apply(Prefill)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rivulet
