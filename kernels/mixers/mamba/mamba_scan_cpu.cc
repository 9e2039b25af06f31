// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba/mamba_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixers/mamba/mamba_scan_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"
#include "kernels/ops/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// One token's Σ_n h C, and h from `from` to `to`.
HWY_INLINE Block ScanToken(const MambaScan& scan, size_t t, const Block& delta, const Block& x,
                           const float* from) {
  const Block step = Mul(delta, x);
  const float* b = scan.b.row(t);
  const float* c = scan.c.row(t);
  Block y = ZeroBlock();
  for (size_t n = 0; n < scan.state_size; ++n) {
    const Block decay = Exp(Mul(delta, LoadBlock(scan.a + n * 16)));
    const Block h = MulAdd(decay, LoadBlock(from + n * 16), Mul(step, SetBlock(b[n])));
    StoreBlock(h, scan.to + n * 16);
    y = MulAdd(h, SetBlock(c[n]), y);
  }
  return y;
}

void ScanBlock(const MambaScan& scan) {
  const Block skip = LoadBlock(scan.skip);
  const float* from = scan.from;
  for (size_t t = 0; t < scan.x.rows; ++t) {
    const size_t count = scan.channels;
    const Block delta = ActivateBlock<Activation::kSoftplus>(LoadUpTo(scan.dt.row(t), count));
    const Block x = LoadUpTo(scan.x.row(t), count);
    const Block y = MulAdd(skip, x, ScanToken(scan, t, delta, x, from));
    StoreUpTo(Mul(y, SiluBlock(LoadUpTo(scan.z.row(t), count))), scan.y.row(t), count);
    from = scan.to;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ScanBlock);

void ScanChannels(const MambaScan& scan) { HWY_DYNAMIC_DISPATCH(ScanBlock)(scan); }

}  // namespace rivulet
#endif  // HWY_ONCE
