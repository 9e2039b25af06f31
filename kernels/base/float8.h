// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// e4m3: a sign, four bits of exponent, three of mantissa, no infinity; the largest number is 448,
// the smallest normal one 2^-6, the smallest one 2^-9. A row of weights is stored as such numbers
// times one fp32 scale. Every e4m3 number is a bf16 number.
#ifndef RIVULET_KERNELS_BASE_FLOAT8_H_
#define RIVULET_KERNELS_BASE_FLOAT8_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace rivulet {

inline constexpr float kLargestFloat8 = 448.0f;

// Round to nearest, ties to even; larger numbers become the largest. REQUIRES: not a NaN.
inline uint8_t FloatToFloat8(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  constexpr uint32_t kSmallestNormal = (127 - 6) << 23;
  if (magnitude < kSmallestNormal) {  // a multiple of 2^-9
    const float steps = std::nearbyint(std::bit_cast<float>(magnitude) * 512.0f);
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(steps));
  }
  const uint32_t rounded = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  const uint32_t code = rounded - ((127 - 7) << 3);
  return static_cast<uint8_t>(sign | (code < 0x7eu ? code : 0x7eu));
}

inline float Float8ToFloat(uint8_t code) {
  const uint32_t exponent = code >> 3 & 0xfu, mantissa = code & 7u;
  const float magnitude = exponent == 0
                              ? static_cast<float>(mantissa) * 0x1p-9f
                              : std::bit_cast<float>((exponent + 127 - 7) << 23 | mantissa << 20);
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

// `count` finite numbers as to[i] · the result.
inline float RoundToFloat8(const float* numbers, size_t count, uint8_t* to) {
  float largest = 0.0f;
  for (size_t i = 0; i < count; ++i) largest = std::fmax(largest, std::fabs(numbers[i]));
  constexpr float kSmallest = 1e-30f;  // so that the scale and its inverse are normal numbers
  const float scale = largest < kSmallest ? 1.0f : largest / kLargestFloat8;
  for (size_t i = 0; i < count; ++i) to[i] = FloatToFloat8(numbers[i] / scale);
  return scale;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_FLOAT8_H_
