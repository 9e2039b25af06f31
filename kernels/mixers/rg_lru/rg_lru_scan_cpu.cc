// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/rg_lru/rg_lru_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixers/rg_lru/rg_lru_scan_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"
#include "kernels/ops/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// √(1 - e^{2x}) for x <= 0, without the cancellation near 0.
HWY_INLINE Block RootOfRest(const Block& x) {
  return MapBlock(
      [](auto v) HWY_ATTR { return hn::Sqrt(hn::Neg(hn::Expm1(FloatTag(), hn::Add(v, v)))); }, x);
}

void ScanBlock(const RgLruScan& scan) {
  const Block rate = LoadBlock(scan.rate);
  const float* before = scan.from;
  for (size_t t = 0; t < scan.x.rows; ++t) {
    const size_t count = scan.channels;
    const Block open = ActivateBlock<Activation::kSigmoid>(LoadUpTo(scan.input_gate.row(t), count));
    const Block log_a =
        Mul(rate, ActivateBlock<Activation::kSigmoid>(LoadUpTo(scan.recurrent_gate.row(t), count)));
    Block h = Mul(open, LoadUpTo(scan.x.row(t), count));
    if (before == nullptr) {
      h = Add(h, Sub(log_a, log_a));  // a broken gate shows, though its value is not used
    } else {
      // Highway's Exp gives 0 for NaN; a broken gate must show.
      const Block a = Add(Exp(log_a), Sub(log_a, log_a));
      h = MulAdd(a, LoadBlock(before), Mul(RootOfRest(log_a), h));
    }
    float* row = scan.rows + t * scan.row_stride;
    StoreBlock(h, row);
    StoreUpTo(h, scan.h.row(t), count);
    before = row;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ScanBlock);

void ScanRgLru(const RgLruScan& scan) { HWY_DYNAMIC_DISPATCH(ScanBlock)(scan); }

}  // namespace rivulet
#endif  // HWY_ONCE
