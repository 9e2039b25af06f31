// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/parallel.h"
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

void GateMultiplyArray(Activation f, const float* gate, const float* up, float* y, size_t count) {
  VisitActivation(f, [=](auto constant) HWY_ATTR {
    ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
      const Block open = ActivateBlock<decltype(constant)::value>(LoadUpTo(gate + i, n));
      StoreUpTo(Mul(open, LoadUpTo(up + i, n)), y + i, n);
    });
  });
}

void SoftCapArray(float cap, const float* x, float* y, size_t count) {
  const Block width = SetBlock(cap);
  ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
    const Block from = LoadUpTo(x + i, n);
    const Block share =
        MapBlock([](auto v) HWY_ATTR { return hn::Tanh(FloatTag(), v); }, Div(from, width));
    StoreUpTo(MulAdd(width, share, Sub(from, from)), y + i, n);
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

// The last block of a head: `count` numbers, then zeros, even if f(0) is not.
HWY_INLINE void StoreHeadEnd(const Block& block, float* to, size_t count) {
  alignas(64) float lane[16];
  StoreBlock(block, lane);
  StoreBlock(LoadPartial(lane, count), to);
}

template <Activation f>
HWY_INLINE void PadHead(const float* x, size_t width, const Block& scale, float* y) {
  ForEachBlock(width, [=](size_t i, size_t n) HWY_ATTR {
    const Block scaled = Mul(ActivateBlock<f>(LoadUpTo(x + i, n)), scale);
    if (n == 16) return StoreBlock(scaled, y + i);
    StoreHeadEnd(scaled, y + i, n);
  });
}

void PadHeadsRow(const float* x, size_t heads, size_t width, Activation f, float scale, float* y) {
  const Block factor = SetBlock(scale);
  VisitActivation(f, [=](auto constant) HWY_ATTR {
    for (size_t h = 0; h < heads; ++h) {
      PadHead<decltype(constant)::value>(x + h * width, width, factor,
                                         y + h * PaddedColumns(width));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ActivateArray);
HWY_EXPORT(GateMultiplyArray);
HWY_EXPORT(SoftCapArray);
HWY_EXPORT(SoftmaxArray);
HWY_EXPORT(LogSumExpArray);
HWY_EXPORT(PadHeadsRow);

void Activate(Activation f, const float* x, float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(ActivateArray)(f, x, y, count);
}

void GateMultiply(Activation f, const float* gate, const float* up, float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(GateMultiplyArray)(f, gate, up, y, count);
}

void ClampGateAndUp(float limit, float* gate, float* up, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    gate[i] = gate[i] > limit ? limit : gate[i];
    up[i] = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
  }
}

void SoftCap(float cap, const float* x, float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(SoftCapArray)(cap, x, y, count);
}

float Softmax(const float* x, float* y, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxArray)(x, y, count);
}

float LogSumExp(const float* x, size_t count) {
  return HWY_DYNAMIC_DISPATCH(LogSumExpArray)(x, count);
}

void PadHeads(ConstFloatMatrix x, size_t heads, size_t width, Activation f, float scale,
              FloatMatrix y, ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(PadHeadsRow);
  ParallelRows(pool, x.rows, heads * width,
               [&](size_t t) { row(x.row(t), heads, width, f, scale, y.row(t)); });
}

}  // namespace rivulet
#endif  // HWY_ONCE
