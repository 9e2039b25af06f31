// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The arguments of Device::Fenwick: a sum in pages, every term of a read weighted by its distance
// (kernels/recurrence/fenwick.h has the formulas), optionally by the delta rule. Plain values; all
// pointers are to device memory.
//
// Letters: T tokens, H heads, D key width, E value width, Lv levels, P pages; Dp and Ep are rounded
// up to 16. A chunk has 16 tokens.
#ifndef RIVULET_KERNELS_DEVICE_FENWICK_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_FENWICK_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

struct FenwickCall {
  DeviceRows rows;
  DeviceSlots slots;
  DevicePages pages;           // pages.levels: P, at most 63
  uint32_t heads = 0;          // H
  uint32_t heads_per_key = 1;  // heads that share a query and a key
  uint32_t level_count = 0;    // Lv
  uint32_t value_dim = 0;      // E
  uint32_t padded_key = 0;     // Dp
  uint32_t padded_value = 0;   // Ep
  const float* q = nullptr;    // [T, H / heads_per_key · Dp]
  uint32_t q_stride = 0;       // a multiple of 4, as k_stride
  const float* k = nullptr;    // [T, H / heads_per_key · Dp]
  uint32_t k_stride = 0;
  const float* v = nullptr;  // [T, H · v_head_stride]
  uint32_t v_stride = 0;
  uint32_t v_head_stride = 0;
  const float* g = nullptr;  // [T, H]: log decays, or the steps Δ
  uint32_t g_stride = 0;
  const float* rate = nullptr;    // [H]: g = rate · Δ; null: g as it is
  bool times_step = false;        // v = Δ · v
  const float* levels = nullptr;  // [T, H · Lv]: λ
  uint32_t levels_stride = 0;
  bool delta = false;
  const float* beta = nullptr;  // [T, H]; of the delta rule
  uint32_t beta_stride = 0;
  const float* skip = nullptr;  // [H · E]
  bool bf16_pages = false;
  // Planes. Page: matrices [H, Ep, Dp], on a GPU in fragment order (sums.cuh). Base: [H, Ep / 16,
  // P, 2] fp32, what a page has decayed by since it was written, as a sum of two floats; once for
  // each 16 value columns, because those who fold them must not wait for each other. Tail: keys
  // [H / heads_per_key, C, Dp] and values [H, C, Ep] of the rows' dtype, cumulative log decays and,
  // of the delta rule, β [H, C] fp32.
  size_t matrix_offset = 0, page_decay_offset = 0;
  size_t key_offset = 0, value_offset = 0, decay_offset = 0, beta_offset = 0;
  FloatMatrix out;  // [T, H · Ep]
};

// ByParts: each segment has its own tables.
template <typename Run>
void FenwickByParts(const FenwickCall& call, const Run& run) {
  ByParts(call, [&](FenwickCall part) {
    part.pages.segments += part.rows.before;
    run(part);
  });
}

// Bit p: page p of `pages` exists when `chunks` chunks are folded (HasPage).
constexpr uint64_t LivePages(uint64_t chunks, uint32_t pages) {
  const uint64_t last = uint64_t{1} << (pages - 1);
  return (chunks & (last - 1)) | (chunks >= last ? last : 0);
}

// The page that the fold of chunk number `chunk` makes (CarryPage).
constexpr uint32_t PageMadeBy(uint64_t chunk, uint32_t pages) {
  uint32_t page = 0;
  while (page + 1 < pages && (chunk >> page & 1) != 0) ++page;
  return page;
}

// The level of a distance that differs in `bits` bits: the last one takes all longer distances.
constexpr uint32_t FenwickLevel(uint32_t bits, uint32_t level_count) {
  return bits < level_count ? bits : level_count - 1;
}
// Page p holds 16 · 2^p tokens.
constexpr uint32_t LevelOfPage(uint32_t page, uint32_t level_count) {
  return FenwickLevel(page + 5, level_count);
}

// high + low + c as two floats again: Knuth's exact sum, then the rest. Compiled without
// contraction.
constexpr void AddLogDecay(float c, float& high, float& low) {
  const float sum = high + c, part = sum - high;
  const float rest = ((high - (sum - part)) + (c - part)) + low;
  high = sum + rest;
  low = rest - (high - sum);
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_FENWICK_OPERATIONS_H_
