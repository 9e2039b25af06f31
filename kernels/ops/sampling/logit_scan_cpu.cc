// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/ops/sampling/logit_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/sampling/logit_scan_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// 0 · x is NaN for an infinity or a NaN and stays so in the sum; else the sum is zero.
LogitScan ScanRow(const float* logits, size_t vocab) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  Block max = SetBlock(kMinusInfinity);
  Block zeros = ZeroBlock();
  size_t i = 0;
  for (; i + 16 <= vocab; i += 16) {
    const Block x = LoadBlock(logits + i);
    max = Max(max, x);
    zeros = MulAdd(x, ZeroBlock(), zeros);
  }
  if (i < vocab) {
    max = Max(max, LoadPartial(logits + i, vocab - i, kMinusInfinity));
    zeros = MulAdd(LoadPartial(logits + i, vocab - i), ZeroBlock(), zeros);
  }
  return {MaxBlock(max), SumBlock(zeros) == 0.0f};
}

void ExpRow(const float* logits, float max, float inverse_temperature, size_t vocab,
            float* weights) {
  const Block shift = SetBlock(max);
  const Block scale = SetBlock(inverse_temperature);
  ForEachBlock(vocab, [=](size_t i, size_t n) HWY_ATTR {
    StoreUpTo(Exp(Mul(Sub(LoadUpTo(logits + i, n), shift), scale)), weights + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ScanRow);
HWY_EXPORT(ExpRow);

LogitScan ScanLogits(const float* logits, size_t vocab) {
  return HWY_DYNAMIC_DISPATCH(ScanRow)(logits, vocab);
}

void ExpWeights(const float* logits, float max, float inverse_temperature, size_t vocab,
                float* weights) {
  HWY_DYNAMIC_DISPATCH(ExpRow)(logits, max, inverse_temperature, vocab, weights);
}

}  // namespace rivulet
#endif  // HWY_ONCE
