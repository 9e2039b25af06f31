// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/base/aligned_buffer.h"
#include "kernels/mixers/h3/h3_scan.h"
#include "kernels/recurrence/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixers/h3/h3_scan_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// sum + Σ_{r < count} taps[r] · newest[-r]: `count` keys, the newest first.
HWY_INLINE Block AddKeys(const float* taps, const float* newest, size_t count, Block sum) {
  for (size_t r = 0; r < count; ++r) {
    sum = MulAdd(LoadBlock(taps + r * 16), LoadBlock(newest - r * 16), sum);
  }
  return sum;
}

// Σ_l taps[l] · k_{t-l} for the token at `place`: keys of the chunk, then of the ring from
// ring_next - 1 down, then from its end down.
HWY_INLINE Block ShiftToken(const H3Scan& scan, const float* taps, const float* keys,
                            const float* ring, size_t place) {
  const size_t own = std::min(scan.window, place + 1);
  const size_t before = std::min(scan.window - own, scan.ring_next);
  const size_t wrapped = scan.window - own - before;
  Block sum = AddKeys(taps, keys + place * 16, own, ZeroBlock());
  if (ring == nullptr) {
    for (size_t tap = own; tap < scan.window; ++tap) {
      sum = MulAdd(LoadBlock(taps + tap * 16), ZeroBlock(), sum);
    }
    return sum;
  }
  if (before > 0) {
    sum = AddKeys(taps + own * 16, ring + (scan.ring_next - 1) * 16, before, sum);
  }
  if (wrapped > 0) {
    sum = AddKeys(taps + (own + before) * 16, ring + (scan.ring_rows - 1) * 16, wrapped, sum);
  }
  return sum;
}

// shifted [tokens, 16] = k̄ of head row i; appends its keys.
HWY_INLINE void ShiftRows(const H3Scan& scan, size_t i, float* shifted) {
  float* keys = scan.keys + i * scan.fold_interval * 16;
  const float* ring = scan.ring == nullptr ? nullptr : scan.ring + i * scan.ring_rows * 16;
  const float* taps = scan.taps + i * scan.window * 16;
  for (size_t r = 0; r < scan.k.rows; ++r) {
    const size_t place = scan.begin + r;
    StoreBlock(LoadBlock(scan.k.row(r) + i * scan.head_stride), keys + place * 16);
    StoreBlock(ShiftToken(scan, taps, keys, ring, place), shifted + r * 16);
  }
}

// x = pole · x + u for each mode, from `from` to `to`; returns Re Σ weight · x.
HWY_INLINE Block ModesToken(const H3Scan& scan, const Block& u, const float* from, float* to) {
  Block real = ZeroBlock(), imaginary = ZeroBlock();
  for (size_t n = 0; n < scan.modes; ++n, from += 32, to += 32) {
    const float* modal = scan.modal + n * 64;
    const Block pole_real = LoadBlock(modal), pole_imaginary = LoadBlock(modal + 16);
    const Block x = LoadBlock(from), y = LoadBlock(from + 16);
    const Block next_x = Sub(MulAdd(pole_real, x, u), Mul(pole_imaginary, y));
    const Block next_y = MulAdd(pole_real, y, Mul(pole_imaginary, x));
    StoreBlock(next_x, to);
    StoreBlock(next_y, to + 16);
    real = MulAdd(LoadBlock(modal + 32), next_x, real);
    imaginary = MulAdd(LoadBlock(modal + 48), next_y, imaginary);
  }
  return Sub(real, imaginary);
}

// The rows of head row i that guesses leave.
HWY_INLINE void KeepRows(const H3Scan& scan, size_t i, const float* shifted) {
  const size_t chunk = i * scan.fold_interval;
  for (size_t r = scan.k.rows - scan.guesses; r < scan.k.rows; ++r) {
    const size_t row = (chunk + scan.begin + r) * 16;
    StoreBlock(LoadBlock(shifted + r * 16), scan.shifted_rows + row);
    StoreBlock(LoadBlock(scan.v.row(r) + i * scan.head_stride), scan.value_rows + row);
  }
}

// y_j (+)= q_i · (SSM of k̄_i v_j + D k̄_i v_j) for every token.
HWY_INLINE void PairRows(const H3Scan& scan, size_t i, size_t j, const float* shifted) {
  const size_t state = (i * scan.head_dim + j) * scan.modes * 32;
  const size_t certain = scan.k.rows - scan.guesses;
  const Block skip = LoadBlock(scan.skip);
  const float* from = scan.from + state;
  float* to = certain > 0 ? scan.to + state : scan.scratch;
  for (size_t place = scan.done; place < scan.begin; ++place) {
    const Block row = LoadBlock(scan.shifted_rows + (i * scan.fold_interval + place) * 16);
    const Block v = LoadBlock(scan.value_rows + (j * scan.fold_interval + place) * 16);
    ModesToken(scan, Mul(row, v), from, to);
    from = to;
  }
  for (size_t r = 0; r < scan.k.rows; ++r) {
    if (r >= certain) to = scan.scratch;
    const Block v = LoadBlock(scan.v.row(r) + j * scan.head_stride);
    const Block u = Mul(LoadBlock(shifted + r * 16), v);
    const Block read = MulAdd(skip, u, ModesToken(scan, u, from, to));
    const Block q = LoadBlock(scan.q.row(r) + i * scan.head_stride);
    float* y = scan.y.row(r) + j * scan.head_stride;
    StoreBlock(i == 0 ? Mul(read, q) : MulAdd(read, q, LoadBlock(y)), y);
    from = to;
  }
}

void ScanBlock(const H3Scan& scan) {
  alignas(kAlignment) float shifted[kMaxFoldInterval * 16];
  for (size_t i = 0; i < scan.head_dim; ++i) {
    ShiftRows(scan, i, shifted);
    if (scan.guesses > 0) KeepRows(scan, i, shifted);
    for (size_t j = 0; j < scan.head_dim; ++j) PairRows(scan, i, j, shifted);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ScanBlock);

void ScanHeads(const H3Scan& scan) { HWY_DYNAMIC_DISPATCH(ScanBlock)(scan); }

}  // namespace rivulet
#endif  // HWY_ONCE
