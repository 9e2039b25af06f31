// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-read-order: what one fixed chain of additions a column costs a read q M of the
// recurrence.
//
// ReadSum adds the D products of a column in one ascending chain of fused multiply-adds. An
// implementation without that promise may cut the sum into independent chains and add them at the
// end. This times the same [D, E] fp32 product with 1, 2 and 4 chains a column, one query, one
// thread, for a matrix in the first-level cache and for 512 MiB of them from memory. The tail, the
// scores and the fold are the same either way and left out, so the ratio is an upper bound.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/read_order.cc"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway requires.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "hwy/highway.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

inline constexpr size_t kBlocks = 4;  // 64 columns, as ReadSum takes them for E = 64

template <size_t kChains>
HWY_INLINE void ReadColumns(const float* matrix, const float* query, size_t dim, float* out) {
  for (size_t column = 0; column < dim; column += kBlocks * kBlock) {
    Block sums[kChains][kBlocks];
    for (auto& chain : sums) {
      for (Block& sum : chain) sum = ZeroBlock();
    }
    for (size_t i = 0; i < dim; i += kChains) {
      for (size_t c = 0; c < kChains; ++c) {
        const Block q = SetBlock(query[i + c]);
        const float* row = matrix + (i + c) * dim + column;
        for (size_t b = 0; b < kBlocks; ++b) {
          sums[c][b] = MulAdd(q, LoadBlock(row + b * kBlock), sums[c][b]);
        }
      }
    }
    for (size_t c = 1; c < kChains; ++c) {
      for (size_t b = 0; b < kBlocks; ++b) sums[0][b] = Add(sums[0][b], sums[c][b]);
    }
    for (size_t b = 0; b < kBlocks; ++b) StoreBlock(sums[0][b], out + column + b * kBlock);
  }
}

void ReadOneChain(const float* matrix, const float* query, size_t dim, float* out) {
  ReadColumns<1>(matrix, query, dim, out);
}
void ReadTwoChains(const float* matrix, const float* query, size_t dim, float* out) {
  ReadColumns<2>(matrix, query, dim, out);
}
void ReadFourChains(const float* matrix, const float* query, size_t dim, float* out) {
  ReadColumns<4>(matrix, query, dim, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ReadOneChain);
HWY_EXPORT(ReadTwoChains);
HWY_EXPORT(ReadFourChains);

namespace {

using ReadFunction = void (*)(const float*, const float*, size_t, float*);

// Nanoseconds of one read: the best of 15 passes over all matrices.
double BestNanoseconds(ReadFunction read, const AlignedBuffer<float>& matrices, size_t dim) {
  using Clock = std::chrono::steady_clock;
  const size_t count = matrices.size() / (dim * dim);
  const size_t calls = std::max<size_t>(count, 20'000);
  AlignedBuffer<float> query(dim), out(dim);
  for (size_t i = 0; i < dim; ++i) query[i] = 0.01f * static_cast<float>(i + 1);
  double best = 1e9;
  for (int pass = 0; pass < 15; ++pass) {
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < calls; ++i) {
      read(matrices.data() + i % count * dim * dim, query.data(), dim, out.data());
      query[i % dim] = out[i % dim] * 1e-3f;  // each read waits for the one before
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    best = std::min(best, took.count() / static_cast<double>(calls));
  }
  return best;
}

void Run() {
  const ReadFunction reads[] = {[](const float* m, const float* q, size_t d, float* o) {
                                  HWY_DYNAMIC_DISPATCH(ReadOneChain)(m, q, d, o);
                                },
                                [](const float* m, const float* q, size_t d, float* o) {
                                  HWY_DYNAMIC_DISPATCH(ReadTwoChains)(m, q, d, o);
                                },
                                [](const float* m, const float* q, size_t d, float* o) {
                                  HWY_DYNAMIC_DISPATCH(ReadFourChains)(m, q, d, o);
                                }};
  for (const size_t dim : {64, 128}) {
    for (const size_t count : {size_t{1}, (size_t{512} << 20) / (dim * dim * sizeof(float))}) {
      AlignedBuffer<float> matrices(count * dim * dim);
      std::fill_n(matrices.data(), matrices.size(), 0.5f);
      const double one = BestNanoseconds(reads[0], matrices, dim);
      const double two = BestNanoseconds(reads[1], matrices, dim);
      const double four = BestNanoseconds(reads[2], matrices, dim);
      std::printf(
          "{\"dim\": %zu, \"from\": \"%s\", \"one\": %.1f, \"two\": %.1f, \"four\": %.1f}\n", dim,
          count == 1 ? "cache" : "memory", one, two, four);
    }
  }
}

}  // namespace
}  // namespace rivulet

int main() {
  rivulet::Run();
  return 0;
}
#endif  // HWY_ONCE
