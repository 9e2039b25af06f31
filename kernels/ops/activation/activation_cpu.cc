// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "kernels/ops/activation/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/activation/activation_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"
#include "kernels/ops/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

void ActivateArray(Activation f, const float* x, float* y, size_t count) {
  VisitActivation(f, [=](auto constant) HWY_ATTR {
    ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
      StoreUpTo(ActivateBlock<decltype(constant)::value>(LoadUpTo(x + i, n)), y + i, n);
    });
  });
}

void SiluMultiplyArray(const float* gate, const float* up, float* y, size_t count) {
  ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
    const Block silu = SiluBlock(LoadUpTo(gate + i, n));
    StoreUpTo(Mul(silu, LoadUpTo(up + i, n)), y + i, n);
  });
}

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float MaxOfArray(const float* x, size_t count) {
  Block max = SetBlock(kMinusInfinity);
  ForEachBlock(count, [&](size_t i, size_t n)
                          HWY_ATTR { max = Max(max, LoadUpTo(x + i, n, kMinusInfinity)); });
  return MaxBlock(max);
}

// Σ e^{x - max}: one chain a lane, then the fixed tree. The padding's -inf adds e^-inf = 0.
// Writes the terms to y unless it is null.
float SumOfExp(const float* x, float max, float* y, size_t count) {
  const Block shift = SetBlock(max);
  Block sum = ZeroBlock();
  ForEachBlock(count, [&](size_t i, size_t n) HWY_ATTR {
    const Block term = Exp(Sub(LoadUpTo(x + i, n, kMinusInfinity), shift));
    if (y != nullptr) StoreUpTo(term, y + i, n);
    sum = Add(sum, term);
  });
  return SumBlock(sum);
}

float LogSumExpArray(const float* x, size_t count) {
  const float max = MaxOfArray(x, count);
  return max + std::log(SumOfExp(x, max, nullptr, count));
}

float SoftmaxArray(const float* x, float* y, size_t count) {
  const float max = MaxOfArray(x, count);
  const float sum = SumOfExp(x, max, y, count);
  const Block divisor = SetBlock(sum);
  ForEachBlock(count, [=](size_t i, size_t n)
                          HWY_ATTR { StoreUpTo(Div(LoadUpTo(y + i, n), divisor), y + i, n); });
  return max + std::log(sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ActivateArray);
HWY_EXPORT(SiluMultiplyArray);
HWY_EXPORT(SoftmaxArray);
HWY_EXPORT(LogSumExpArray);

void Activate(Activation f, const float* x, float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(ActivateArray)(f, x, y, count);
}

void SiluMultiply(const float* gate, const float* up, float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(SiluMultiplyArray)(gate, up, y, count);
}

float Softmax(const float* x, float* y, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxArray)(x, y, count);
}

float LogSumExp(const float* x, size_t count) {
  return HWY_DYNAMIC_DISPATCH(LogSumExpArray)(x, count);
}

}  // namespace rivulet
#endif  // HWY_ONCE
