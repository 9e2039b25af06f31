// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One mixture of experts at decode and prefill, with few experts of the width that people run. The
// counters: B_expected is the bytes of the weights that one call must read (each expert that
// that were chosen, once), B/s the rate of reading them. NOTES.md says what to expect.
#include <random>
#include <set>

#include "benchmark/benchmark.h"
#include "kernels/ops/mixture_of_experts/mixture_of_experts.h"

namespace rivulet {
namespace {

AlignedBuffer<float> Random(size_t count, std::mt19937& random) {
  AlignedBuffer<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000.0f;
  }
  return values;
}

Linear RandomMap(size_t outputs, size_t inputs, std::mt19937& random) {
  const AlignedBuffer<float> weights = Random(outputs * inputs, random);
  return Linear::Pack({{weights.data(), DType::kFloat32, outputs, nullptr}}, inputs,
                      DType::kBFloat16);
}

struct Mixture {
  Mixture(const ExpertChoice& choice, size_t hidden, size_t width, std::mt19937& random)
      : router(RandomMap(choice.experts, hidden, random)) {
    for (size_t e = 0; e < choice.experts; ++e) {
      experts.push_back({RandomMap(2 * width, hidden, random), RandomMap(hidden, width, random)});
      expert_bytes = experts[0].in.weight_bytes() + experts[0].out.weight_bytes();
    }
  }
  Linear router;
  std::vector<ExpertMaps> experts;
  size_t expert_bytes = 0;
};

// How many experts the tokens have among them.
size_t Distinct(const ExpertChoice& choice, const Linear& router, ConstFloatMatrix x) {
  ThreadPool pool(1);
  Workspace workspace;
  const FloatMatrix logits = workspace.Take(x.rows, choice.experts);
  router.Apply(x, logits, pool);
  std::set<uint32_t> distinct;
  std::vector<uint32_t> ids(choice.experts_per_token);
  std::vector<float> weights(choice.experts_per_token);
  for (size_t t = 0; t < x.rows; ++t) {
    ChooseExperts(choice, logits.row(t), ids.data(), weights.data());
    distinct.insert(ids.begin(), ids.end());
  }
  return distinct.size();
}

// Args: tokens, experts, experts for a token, hidden, width, threads.
void BM_MixtureOfExperts(benchmark::State& state) {
  const auto arg = [&](int i) { return static_cast<size_t>(state.range(i)); };
  const ExpertChoice choice{arg(1), arg(2), true};
  const size_t tokens = arg(0), hidden = arg(3);
  std::mt19937 random(1);
  Mixture mixture(choice, hidden, arg(4), random);
  const AlignedBuffer<float> numbers = Random(tokens * hidden, random);
  const ConstFloatMatrix x{numbers.data(), tokens, hidden, hidden};
  const size_t bytes =
      mixture.router.weight_bytes() + Distinct(choice, mixture.router, x) * mixture.expert_bytes;
  const MixtureOfExperts experts({.choice = choice,
                                  .router = std::move(mixture.router),
                                  .experts = std::move(mixture.experts)});
  AlignedBuffer<float> y(tokens * hidden);
  ThreadPool pool(arg(5));
  Workspace workspace;
  for (auto _ : state) {
    workspace.Reset();
    experts.Apply({{}, {}, &workspace, &pool}, x, {y.data(), tokens, hidden, hidden});
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const auto expected = static_cast<double>(bytes);
  state.counters["B_expected"] = Counter(expected, Counter::kDefaults, Counter::OneK::kIs1000);
  state.counters["B/s"] =
      Counter(expected, Counter::kIsIterationInvariantRate, Counter::OneK::kIs1000);
}

// Qwen3-Next's width with an eighth of its experts, and Granite 4 H Tiny's layer.
BENCHMARK(BM_MixtureOfExperts)
    ->ArgsProduct({{1, 8, 64, 512}, {64}, {10}, {2048}, {512}, {1, 2}})
    ->ArgsProduct({{1, 8, 64, 512}, {64}, {6}, {1536}, {512}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace rivulet
