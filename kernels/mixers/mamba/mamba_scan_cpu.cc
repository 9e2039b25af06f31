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

// h of state n after a token, from that before it.
HWY_INLINE Block NextState(const MambaScan& scan, size_t n, const Block& delta, const Block& step,
                           const float* b, const float* from) {
  const Block decay = Exp(Mul(delta, LoadBlock(scan.a + n * 16)));
  return MulAdd(decay, LoadBlock(from + n * 16), Mul(step, SetBlock(b[n])));
}

// One token's Σ_n h C, and h from `from` to `to`.
HWY_INLINE Block ScanToken(const MambaScan& scan, size_t t, const Block& delta, const Block& x,
                           const float* from, float* to) {
  const Block step = Mul(delta, x);
  const float* b = scan.b.row(t);
  const float* c = scan.c.row(t);
  Block y = ZeroBlock();
  for (size_t n = 0; n < scan.state_size; ++n) {
    const Block h = NextState(scan, n, delta, step, b, from);
    StoreBlock(h, to + n * 16);
    y = MulAdd(h, SetBlock(c[n]), y);
  }
  return y;
}

// h after a token that left its row, without an output.
HWY_INLINE void ReplayToken(const MambaScan& scan, size_t place, const float* from, float* to) {
  const Block dt = LoadBlock(scan.rows.dt + place * 16);
  const Block delta = ActivateBlock<Activation::kSoftplus>(dt);
  const Block step = Mul(delta, LoadBlock(scan.rows.x + place * 16));
  const float* b = scan.rows.b + place * scan.state_size;
  for (size_t n = 0; n < scan.state_size; ++n) {
    StoreBlock(NextState(scan, n, delta, step, b, from), to + n * 16);
  }
}

void ScanBlock(const MambaScan& scan) {
  const Block skip = LoadBlock(scan.skip);
  const size_t certain = scan.x.rows - scan.guesses;
  const float* from = scan.from;
  float* to = certain > 0 ? scan.to : scan.scratch;
  for (size_t place = scan.done; place < scan.begin; ++place) {
    ReplayToken(scan, place, from, to);
    from = to;
  }
  for (size_t t = 0; t < scan.x.rows; ++t) {
    const size_t count = scan.channels;
    const Block dt = LoadUpTo(scan.dt.row(t), count), x = LoadUpTo(scan.x.row(t), count);
    const Block delta = ActivateBlock<Activation::kSoftplus>(dt);
    if (t >= certain) {
      to = scan.scratch;
      StoreBlock(dt, scan.rows.dt + (scan.begin + t) * 16);
      StoreBlock(x, scan.rows.x + (scan.begin + t) * 16);
    }
    const Block y = MulAdd(skip, x, ScanToken(scan, t, delta, x, from, to));
    StoreUpTo(Mul(y, SiluBlock(LoadUpTo(scan.z.row(t), count))), scan.y.row(t), count);
    from = to;
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
