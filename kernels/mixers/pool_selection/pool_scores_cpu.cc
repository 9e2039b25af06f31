// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixers/pool_selection/pool_scores_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway asks.
#include "hwy/highway.h"
#include "kernels/base/simd-inl.h"
#include "kernels/mixers/pool_selection/pool_scores.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// e^x, and NaN for NaN, which Highway's Exp turns into 0.
HWY_INLINE Block ExpOrNaN(const Block& x) {
  return MapBlock(
      [](auto v) HWY_ATTR { return hn::IfThenElse(hn::Eq(v, v), hn::Exp(FloatTag(), v), v); }, x);
}

HWY_INLINE Block Gate(const float* gates, const float* biases, size_t at) {
  return Add(LoadBlock(gates + at), LoadBlock(biases + at));
}

void MeanOfPoolOnTarget(const float* keys, const float* gates, const float* biases, size_t tokens,
                        size_t padded, float* key) {
  for (size_t c = 0; c < padded; c += 16) {
    Block top = Gate(gates, biases, c);
    for (size_t i = 1; i < tokens; ++i) top = Max(top, Gate(gates, biases, i * padded + c));
    Block sum = ZeroBlock(), weights = ZeroBlock();
    for (size_t i = 0; i < tokens; ++i) {
      const size_t at = i * padded + c;
      const Block weight = ExpOrNaN(Sub(Gate(gates, biases, at), top));
      weights = Add(weights, weight);
      sum = MulAdd(weight, LoadBlock(keys + at), sum);
    }
    StoreBlock(Div(sum, weights), key + c);
  }
}

void PlainMeanOfPoolOnTarget(const float* keys, size_t tokens, size_t padded, float* key) {
  const Block count = SetBlock(static_cast<float>(tokens));
  for (size_t c = 0; c < padded; c += 16) {
    Block sum = LoadBlock(keys + c);
    for (size_t i = 1; i < tokens; ++i) sum = Add(sum, LoadBlock(keys + i * padded + c));
    StoreBlock(Div(sum, count), key + c);
  }
}

HWY_INLINE float Dot(const float* a, const float* b, size_t padded) {
  Block sum = ZeroBlock();
  for (size_t i = 0; i < padded; i += 16) sum = MulAdd(LoadBlock(a + i), LoadBlock(b + i), sum);
  return SumBlock(sum);
}

void ScorePoolsOnTarget(const float* q, const float* weights, size_t heads, const float* keys,
                        size_t pools, size_t padded, float* scores) {
  for (size_t p = 0; p < pools; ++p) {
    float score = 0;
    for (size_t h = 0; h < heads; ++h) {
      const float dot = Dot(q + h * padded, keys + p * padded, padded);
      score += weights[h] * (dot < 0 ? 0.0f : dot);  // NaN stays
    }
    scores[p] = score;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(MeanOfPoolOnTarget);
HWY_EXPORT(PlainMeanOfPoolOnTarget);
HWY_EXPORT(ScorePoolsOnTarget);

void MeanOfPool(const float* keys, const float* gates, const float* biases, size_t tokens,
                size_t padded, float* key) {
  HWY_DYNAMIC_DISPATCH(MeanOfPoolOnTarget)(keys, gates, biases, tokens, padded, key);
}

void PlainMeanOfPool(const float* keys, size_t tokens, size_t padded, float* key) {
  HWY_DYNAMIC_DISPATCH(PlainMeanOfPoolOnTarget)(keys, tokens, padded, key);
}

void ScorePools(const float* q, const float* weights, size_t heads, const float* keys, size_t pools,
                size_t padded, float* scores) {
  HWY_DYNAMIC_DISPATCH(ScorePoolsOnTarget)(q, weights, heads, keys, pools, padded, scores);
}

}  // namespace rivulet
#endif  // HWY_ONCE
