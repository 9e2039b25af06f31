// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/base/parallel.h"
#include "kernels/ops/norm/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/norm/norm_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"
#include "kernels/ops/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

float DotInOrder(const float* x, const float* y, size_t count) {
  Block sum = ZeroBlock();
  ForEachBlock(count, [&](size_t i, size_t n)
                          HWY_ATTR { sum = MulAdd(LoadUpTo(x + i, n), LoadUpTo(y + i, n), sum); });
  return SumBlock(sum);
}

float InverseRms(const float* x, size_t count, float eps) {
  const float mean = DotInOrder(x, x, count) / static_cast<float>(count);
  return 1.0f / std::sqrt(mean + eps);
}

// y = x · factor · weight, weight null means ones.
void ScaleRow(const float* x, float factor, const float* weight, float* y, size_t count) {
  const Block scale = SetBlock(factor);
  ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
    const Block scaled = Mul(LoadUpTo(x + i, n), scale);
    StoreUpTo(weight == nullptr ? scaled : Mul(scaled, LoadUpTo(weight + i, n)), y + i, n);
  });
}

// y = y · silu(gate)
void MultiplyBySilu(const float* gate, float* y, size_t count) {
  ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
    StoreUpTo(Mul(LoadUpTo(y + i, n), SiluBlock(LoadUpTo(gate + i, n))), y + i, n);
  });
}

void RmsNormRow(const float* x, const float* weight, float eps, float* y, size_t count) {
  ScaleRow(x, InverseRms(x, count, eps), weight, y, count);
}

float MeanInOrder(const float* x, size_t count) {
  Block sum = ZeroBlock();
  ForEachBlock(count, [&](size_t i, size_t n) HWY_ATTR { sum = Add(sum, LoadUpTo(x + i, n)); });
  return SumBlock(sum) / static_cast<float>(count);
}

// Two passes: the squares are of differences, so a large mean costs no digits.
void LayerNormRow(const float* x, const float* weight, const float* bias, float eps, float* y,
                  size_t count) {
  const Block mean = SetBlock(MeanInOrder(x, count));
  ForEachBlock(count, [=](size_t i, size_t n)
                          HWY_ATTR { StoreUpTo(Sub(LoadUpTo(x + i, n), mean), y + i, n); });
  const Block inverse = SetBlock(InverseRms(y, count, eps));
  ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
    const Block scaled = Mul(LoadUpTo(y + i, n), inverse);
    StoreUpTo(MulAdd(scaled, LoadUpTo(weight + i, n), LoadUpTo(bias + i, n)), y + i, n);
  });
}

void HeadNormGateRow(const float* x, size_t heads, size_t width, size_t head_stride,
                     const float* weight, float eps, const float* gate, float* y) {
  for (size_t h = 0; h < heads; ++h) {
    RmsNormRow(x + h * head_stride, weight, eps, y + h * width, width);
  }
  if (gate != nullptr) MultiplyBySilu(gate, y, heads * width);
}

void GateThenNormRow(const float* x, const float* gate, size_t groups, const float* weight,
                     float eps, float* y, size_t count) {
  ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
    StoreUpTo(Mul(LoadUpTo(x + i, n), SiluBlock(LoadUpTo(gate + i, n))), y + i, n);
  });
  const size_t width = count / groups;
  for (size_t first = 0; first < count; first += width) {
    const float* group_weight = weight == nullptr ? nullptr : weight + first;
    RmsNormRow(y + first, group_weight, eps, y + first, width);
  }
}

void L2NormRow(float* x, size_t heads, size_t width, size_t head_stride, float scale) {
  for (size_t h = 0; h < heads; ++h) {
    float* head = x + h * head_stride;
    const float factor = scale / std::sqrt(DotInOrder(head, head, width) + 1e-6f);
    ScaleRow(head, factor, nullptr, head, width);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(DotInOrder);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);
HWY_EXPORT(HeadNormGateRow);
HWY_EXPORT(GateThenNormRow);
HWY_EXPORT(L2NormRow);

float OrderedDot(const float* x, const float* y, size_t count) {
  return HWY_DYNAMIC_DISPATCH(DotInOrder)(x, y, count);
}

void RmsNorm(ConstFloatMatrix x, const float* weight, float eps, FloatMatrix y, ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(RmsNormRow);
  ParallelRows(pool, x.rows, x.columns,
               [&](size_t t) { row(x.row(t), weight, eps, y.row(t), x.columns); });
}

void LayerNorm(ConstFloatMatrix x, const float* weight, const float* bias, float eps, FloatMatrix y,
               ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(LayerNormRow);
  ParallelRows(pool, x.rows, x.columns,
               [&](size_t t) { row(x.row(t), weight, bias, eps, y.row(t), x.columns); });
}

void HeadNormGate(ConstFloatMatrix x, size_t heads, size_t width, size_t head_stride,
                  const float* weight, float eps, ConstFloatMatrix gate, FloatMatrix y,
                  ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(HeadNormGateRow);
  ParallelRows(pool, x.rows, heads * width, [&](size_t t) {
    const float* gate_row = gate.data == nullptr ? nullptr : gate.row(t);
    row(x.row(t), heads, width, head_stride, weight, eps, gate_row, y.row(t));
  });
}

void GateThenNorm(ConstFloatMatrix x, ConstFloatMatrix gate, size_t groups, const float* weight,
                  float eps, FloatMatrix y, ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(GateThenNormRow);
  ParallelRows(pool, x.rows, x.columns, [&](size_t t) {
    row(x.row(t), gate.row(t), groups, weight, eps, y.row(t), x.columns);
  });
}

void L2NormHeads(FloatMatrix x, size_t heads, size_t width, size_t head_stride, float scale,
                 ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(L2NormRow);
  ParallelRows(pool, x.rows, heads * width,
               [&](size_t t) { row(x.row(t), heads, width, head_stride, scale); });
}

}  // namespace rivulet
#endif  // HWY_ONCE
