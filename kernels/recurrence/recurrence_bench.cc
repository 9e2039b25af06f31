// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One head's read, fold, and delta rule. bytes_per_second counts the base's bytes alone,
// which is what decode cannot avoid: D * E * 4 a read, twice that a fold. Sums rotate over `heads`
// different bases, so that the bytes come from memory or from the cache level that the total
// fits.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/recurrence/delta.h"
#include "kernels/recurrence/recurrence.h"

namespace rivulet {
namespace {

struct Heads {
  Heads(size_t dim, Decay decay, size_t count)
      : shape{.key_dim = dim, .value_dim = dim, .decay = decay},
        matrices(count * shape.matrix_elements()),
        rows(kFoldInterval * dim),
        decays(kFoldInterval * dim),
        out(kFoldInterval * dim),
        heads(count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < matrices.size(); ++i) matrices[i] = normal(random);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = normal(random);
    for (size_t i = 0; i < decays.size(); ++i) decays[i] = -0.01f * static_cast<float>(i / dim + 1);
  }
  SumTail tail() const {
    const size_t d = shape.key_dim;
    return {.key = rows.data(),
            .key_stride = d,
            .value = rows.data(),
            .value_stride = d,
            .log_decay = decays.data(),
            .decay_stride = d,
            .chunk = kFoldInterval};
  }
  SumBase base(size_t i) {
    return {matrices.data() + (i % heads) * shape.matrix_elements(), nullptr};
  }
  SumShape shape;
  AlignedBuffer<float> matrices, rows, decays, out;
  size_t heads;
};

void Report(benchmark::State& state, const Heads& heads, size_t passes, size_t queries) {
  const int64_t bytes = static_cast<int64_t>(heads.shape.matrix_elements() * 4 * passes);
  state.SetBytesProcessed(state.iterations() * bytes);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(queries));
}

// Arguments: head size, decay, number of heads rotated over, queries at once (1: decode at place
// 8).
void BM_Read(benchmark::State& state) {
  Heads heads(state.range(0), static_cast<Decay>(state.range(1)), state.range(2));
  const size_t n = state.range(3), d = heads.shape.key_dim;
  const SumQuery query{{heads.rows.data(), n, d, d}, n == 1 ? size_t{8} : size_t{0}, false};
  size_t i = 0;
  for (auto _ : state) {
    ReadSum(heads.shape, heads.base(i++), heads.tail(), query, {heads.out.data(), n, d, d},
            nullptr);
    benchmark::ClobberMemory();
  }
  Report(state, heads, 1, n);
}
BENCHMARK(BM_Read)->ArgsProduct({{64, 128}, {0, 1, 2}, {1, 4096}, {1, 16}});

void BM_Fold(benchmark::State& state) {
  Heads heads(state.range(0), static_cast<Decay>(state.range(1)), state.range(2));
  size_t i = 0;
  for (auto _ : state) {
    FoldSum(heads.shape, heads.base(i), heads.base(i), heads.tail());
    ++i;
    benchmark::ClobberMemory();
  }
  Report(state, heads, 2, kFoldInterval);
}
BENCHMARK(BM_Fold)->ArgsProduct({{64, 128}, {0, 1, 2}, {1, 4096}});

// Arguments: head size, decay (none or scalar), number of heads rotated over, tokens at once (1:
// decode at place 8). Two queries a token, one pass over the base.
void BM_Delta(benchmark::State& state) {
  Heads heads(state.range(0), static_cast<Decay>(state.range(1)), state.range(2));
  const size_t n = state.range(3), d = heads.shape.key_dim, begin = n == 1 ? 8 : 0;
  AlignedBuffer<float> keys(kFoldInterval * d), solved(kFoldInterval * d), beta(kFoldInterval);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = scale * heads.rows[i];
  std::fill_n(beta.data(), beta.size(), 0.5f);
  const SumTail tail{.key = keys.data(),
                     .key_stride = d,
                     .value = solved.data(),
                     .value_stride = d,
                     .log_decay = heads.decays.data(),
                     .decay_stride = d,
                     .chunk = kFoldInterval};
  const DeltaPiece piece{
      {keys.data(), n, d, d}, {heads.rows.data(), n, d, d}, beta.data(), 1, begin, solved.data()};
  DeltaScores scores;
  size_t i = 0;
  for (auto _ : state) {
    ScoreDelta(tail, piece.queries, begin, scores);
    SolveDelta(heads.shape, heads.base(i++), tail, piece, scores, {heads.out.data(), n, d, d});
    benchmark::ClobberMemory();
  }
  Report(state, heads, 1, n);
}
BENCHMARK(BM_Delta)->ArgsProduct({{64, 128}, {0, 1}, {1, 4096}, {1, 16}});

}  // namespace
}  // namespace rivulet
