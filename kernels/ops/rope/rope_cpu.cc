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

// The i whose frequency makes so many turns in the original positions.
double YarnIndex(const RopeConfig& config, size_t period, double turns) {
  const double original = config.original_max_position;
  return static_cast<double>(period) * std::log(original / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(config.theta)));
}

// The share of the stretched frequency at each i: 0 up to the first i of the ramp, 1 from its last.
std::vector<float> YarnRamp(const RopeConfig& config, size_t period) {
  double first = YarnIndex(config, period, config.beta_fast);
  double last = YarnIndex(config, period, config.beta_slow);
  if (config.whole_ramp) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(period - 1));
  if (first == last) last += 0.001;  // transformers' way out of a division by zero
  std::vector<float> ramp(config.rotary_dim / 2);
  for (size_t i = 0; i < ramp.size(); ++i) {
    const float along = static_cast<float>(i) - static_cast<float>(first);
    ramp[i] = std::clamp(along / static_cast<float>(last - first), 0.0f, 1.0f);
  }
  return ramp;
}

// `power` is theta^(2 i / period), the inverse of a frequency.
float YarnFrequency(const RopeConfig& config, float power, float stretched) {
  const float kept = 1.0f - stretched;
  return 1.0f / (config.factor * power) * (1.0f - kept) + 1.0f / power * kept;
}

// `ramp`: of kYarn.
float ScaledFrequency(const RopeConfig& config, std::span<const float> ramp, size_t i,
                      float power) {
  switch (config.scaling) {
    case RopeScaling::kNone:
      return 1.0f / power;
    case RopeScaling::kLinear:
      return 1.0f / power / config.factor;
    case RopeScaling::kLlama3:
      return Llama3Frequency(config, 1.0f / power);
    case RopeScaling::kYarn:
      return YarnFrequency(config, power, ramp[i]);
    case RopeScaling::kLong:
      return 1.0f / (config.divisors[i] * power);
  }
  return 1.0f / power;
}

// libm and not vector code: positions go up to millions of radians, where vector sines lose their
// argument; the same function for every token in every step.
void FillAngles(std::span<const float> frequencies, float amplitude, float position, float* cosines,
                float* sines) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = position * frequencies[i];
    cosines[i] = std::cos(angle) * amplitude;
    sines[i] = std::sin(angle) * amplitude;
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
  const size_t period = config.period == 0 ? config.rotary_dim : config.period;
  std::vector<float> ramp;
  if (config.scaling == RopeScaling::kYarn) ramp = YarnRamp(config, period);
  std::vector<float> frequencies(config.rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(period);
    frequencies[i] = ScaledFrequency(config, ramp, i, std::pow(config.theta, exponent));
  }
  return frequencies;
}

RopeAngles Rope::Angles(std::span<const Segment> segments, size_t tokens, Workspace& workspace,
                        ThreadPool& pool) const {
  const FloatMatrix cosines = workspace.Take(tokens, frequencies_.size());
  const FloatMatrix sines = workspace.Take(tokens, frequencies_.size());
  const float* const positions = Positions(segments, tokens, workspace);
  ParallelRows(pool, tokens, frequencies_.size() * kFloatsAnAngle, [&](size_t t) {
    FillAngles(frequencies_, amplitude_, positions[t], cosines.row(t), sines.row(t));
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
