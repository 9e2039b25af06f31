// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/parallel.h"
#include "kernels/ops/rope/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/rope/rope_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

void RotateHead(const float* cosines, const float* sines, size_t half, float* x) {
  ForEachBlock(half, [=](size_t i, size_t n) HWY_ATTR {
    const Block cosine = LoadUpTo(cosines + i, n);
    const Block sine = LoadUpTo(sines + i, n);
    const Block first = LoadUpTo(x + i, n);
    const Block second = LoadUpTo(x + half + i, n);
    StoreUpTo(MulAdd(second, Sub(ZeroBlock(), sine), Mul(first, cosine)), x + i, n);
    StoreUpTo(MulAdd(first, sine, Mul(second, cosine)), x + half + i, n);
  });
}

void RotateRow(const float* cosines, const float* sines, size_t half, size_t heads,
               size_t head_stride, float* x) {
  for (size_t h = 0; h < heads; ++h) RotateHead(cosines, sines, half, x + h * head_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(RotateRow);

namespace {

// A sine and a cosine cost about this many floats of elementwise work.
constexpr size_t kFloatsAnAngle = 16;

// Long wavelengths are stretched by the factor, short ones stay, those between are blended. fp32
// and in transformers' order, since an angle is a frequency times a large position.
float Llama3Frequency(const RopeConfig& config, float frequency) {
  const float original = config.original_max_position;
  const float low = config.low_freq_factor, high = config.high_freq_factor;
  const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
  if (wavelength < original / high) return frequency;
  if (wavelength > original / low) return frequency / config.factor;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1.0f - smooth) * frequency / config.factor + smooth * frequency;
}

float ScaledFrequency(const RopeConfig& config, float frequency) {
  switch (config.scaling) {
    case RopeScaling::kNone:
      return frequency;
    case RopeScaling::kLinear:
      return frequency / config.factor;
    case RopeScaling::kLlama3:
      return Llama3Frequency(config, frequency);
  }
  return frequency;
}

// libm and not vector code: positions go up to millions of radians, where vector sines lose their
// argument; the same function for every token in every step.
void FillAngles(std::span<const float> frequencies, float position, float* cosines, float* sines) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = position * frequencies[i];
    cosines[i] = std::cos(angle);
    sines[i] = std::sin(angle);
  }
}

// Of each row; transformers rounds them to fp32 too.
float* Positions(std::span<const Segment> segments, size_t tokens, Workspace& workspace) {
  float* const positions = workspace.TakeFloats(tokens);
  for (const Segment& segment : segments) {
    for (size_t i = 0; i < segment.tokens; ++i) {
      positions[segment.first_token + i] = static_cast<float>(segment.position + i);
    }
  }
  return positions;
}

}  // namespace

std::vector<float> InverseFrequencies(const RopeConfig& config) {
  std::vector<float> frequencies(config.rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.rotary_dim);
    frequencies[i] = ScaledFrequency(config, 1.0f / std::pow(config.theta, exponent));
  }
  return frequencies;
}

RopeAngles Rope::Angles(std::span<const Segment> segments, size_t tokens, Workspace& workspace,
                        ThreadPool& pool) const {
  const FloatMatrix cosines = workspace.Take(tokens, frequencies_.size());
  const FloatMatrix sines = workspace.Take(tokens, frequencies_.size());
  const float* const positions = Positions(segments, tokens, workspace);
  ParallelRows(pool, tokens, frequencies_.size() * kFloatsAnAngle, [&](size_t t) {
    FillAngles(frequencies_, positions[t], cosines.row(t), sines.row(t));
  });
  return {cosines, sines};
}

void ApplyRope(const RopeAngles& angles, FloatMatrix x, size_t heads, size_t head_stride,
               ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(RotateRow);
  const size_t half = angles.cosines.columns;
  ParallelRows(pool, x.rows, 2 * half * heads, [&](size_t t) {
    row(angles.cosines.row(t), angles.sines.row(t), half, heads, head_stride, x.row(t));
  });
}

}  // namespace rivulet
#endif  // HWY_ONCE
