// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the operations of a FakeDevice share. Each family of operations has a file, fake_*.cc.
#ifndef RIVULET_KERNELS_DEVICE_FAKE_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_FAKE_OPERATIONS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "kernels/base/activation_kind.h"
#include "kernels/base/check.h"
#include "kernels/base/dtype.h"
#include "kernels/base/widen.h"
#include "kernels/device/device.h"
#include "kernels/device/device_types.h"

namespace rivulet::fake {

constexpr uint32_t kChunk = 16;

inline float Function(Activation f, float x) {
  const auto softplus = [](float v) { return v > 20.0f ? v : std::log1p(std::exp(v)); };
  switch (f) {
    case Activation::kIdentity:
      return x;
    case Activation::kSilu:
      return x / (1.0f + std::exp(-x));
    case Activation::kSigmoid:
      return 1.0f / (1.0f + std::exp(-x));
    case Activation::kRelu:
      return std::max(x, 0.0f);
    case Activation::kEluPlusOne:
      return x > 0.0f ? x + 1.0f : std::exp(x);
    case Activation::kExp:
      return std::exp(x);
    case Activation::kSoftplus:
      return softplus(x);
    case Activation::kLogSigmoid:
      return -softplus(-x);
    case Activation::kGeluTanh:
      return 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    case Activation::kGelu:
      return 0.5f * x * std::erfc(-0.7071067812f * x);
    case Activation::kReluSquared:
      return std::max(x, 0.0f) * std::max(x, 0.0f);
    case Activation::kTanh:
      return std::tanh(x);
  }
  return x;
}

// Where a device has two bf16 parts of a number, the fake one has the halves of an fp32 number, so
// that it computes without rounding operands.
inline float FromHalves(uint16_t upper, uint16_t lower) {
  return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16 | lower);
}
inline void ToHalves(float x, uint16_t& upper, uint16_t& lower) {
  const auto bits = std::bit_cast<uint32_t>(x);
  upper = static_cast<uint16_t>(bits >> 16);
  lower = static_cast<uint16_t>(bits);
}

// `x` as a product reads it (FakeDevice::rounding).
inline float Rounded(std::optional<ProductPrecision> rounding, float x) {
  if (!rounding.has_value()) return x;
  const float high = BFloat16ToFloat(FloatToBFloat16(x));
  if (*rounding == ProductPrecision::kBFloat16) return high;
  return high + BFloat16ToFloat(FloatToBFloat16(x - high));
}

inline float OperandAt(const Operand& x, size_t row, size_t column) {
  const uint16_t* const at = x.data + row * x.stride + column;
  return FromHalves(at[0], at[x.columns]);
}
inline void StoreOperand(const Operand& y, size_t row, size_t column, float x) {
  uint16_t* const to = y.data + row * y.stride + column;
  ToHalves(x, to[0], to[y.columns]);
}

// A number of a state, in bf16 or fp32.
inline void StoreNumber(bool in_bf16, float x, std::byte* to) {
  const uint16_t bits = FloatToBFloat16(x);
  in_bf16 ? std::memcpy(to, &bits, 2) : std::memcpy(to, &x, 4);
}

// visit(segment, token, position) for every token: segments in turn (DeviceSegment::turn), tokens
// in order.
template <typename Visit>
void ForEachToken(const DeviceRows& rows, Visit&& visit) {
  for (uint32_t at = 0; at < rows.segment_count; ++at) {
    const uint32_t s = SegmentInTurn(rows, at);
    RIVULET_CHECK(s < rows.segment_count, "there is no segment that is taken in its turn");
    const DeviceSegment& segment = rows.segments[s];
    const bool is_single = segment.tokens == 0 || (segment.tokens == 1 && segment.first_token == s);
    RIVULET_CHECK(is_single || !rows.single, "a token is not where rows of single tokens have it");
    for (uint32_t i = 0; i < segment.tokens; ++i) {
      visit(segment, segment.first_token + i, segment.position + i);
    }
  }
}

// The base that a token reads: what the last fold before it wrote.
inline uint32_t BaseOf(const DeviceRows& rows, const DeviceSegment& segment, uint64_t position) {
  const uint64_t border = position - position % kChunk;
  if (border <= segment.position) return segment.base_in;
  const auto folded = static_cast<uint32_t>(border - segment.position);
  return BaseAfter(rows, segment, segment.first_token + folded - 1);
}

}  // namespace rivulet::fake

#endif  // RIVULET_KERNELS_DEVICE_FAKE_OPERATIONS_H_
