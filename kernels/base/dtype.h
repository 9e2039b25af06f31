// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The number formats that weights and bases are stored in. All arithmetic is fp32 or wider;
// these formats are only for storage in memory and in files.
#ifndef RIVULET_KERNELS_BASE_DTYPE_H_
#define RIVULET_KERNELS_BASE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace rivulet {

enum class DType : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat8,  // e4m3 (float8.h): of linear maps on a device alone, with a scale for each output
};

constexpr size_t DTypeSize(DType type) {
  return type == DType::kFloat32 ? 4 : type == DType::kFloat8 ? 1 : 2;
}

// The name used in flags, logs and GetModel: "fp32", "bf16", "fp16", "fp8".
constexpr const char* DTypeName(DType type) {
  switch (type) {
    case DType::kFloat32:
      return "fp32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "fp16";
    case DType::kFloat8:
      return "fp8";
  }
  return "unknown";
}

// bfloat16 is the upper half of an fp32: widening is exact.
inline float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even. A NaN stays a NaN.
inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE half to fp32, exact, subnormals included.
inline float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_DTYPE_H_
