// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/tensor_data.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace rivulet {
namespace {

constexpr size_t kPiece = 1024;

// In all three formats a number is NaN or infinite when every bit of its exponent is set.
template <typename Bits>
bool HasNotFinite(const Bits* bits, size_t count, Bits exponent) {
  Bits found = 0;
  for (size_t i = 0; i < count; ++i) found |= (bits[i] & exponent) == exponent;
  return found != 0;
}

template <typename Bits>
std::optional<size_t> FirstWithFullExponent(const uint8_t* data, size_t count, Bits exponent) {
  Bits piece[kPiece];
  for (size_t start = 0; start < count; start += kPiece) {
    const size_t size = std::min(kPiece, count - start);
    std::memcpy(piece, data + start * sizeof(Bits), size * sizeof(Bits));
    if (!HasNotFinite(piece, size, exponent)) continue;
    size_t i = 0;
    while ((piece[i] & exponent) != exponent) ++i;
    return start + i;
  }
  return std::nullopt;
}

template <typename Bits>
Bits BitsAt(const uint8_t* data, size_t index) {
  Bits bits;
  std::memcpy(&bits, data + index * sizeof(Bits), sizeof(Bits));
  return bits;
}

}  // namespace

std::optional<size_t> FirstNotFinite(const uint8_t* data, DType dtype, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return FirstWithFullExponent<uint32_t>(data, count, 0x7f800000u);
    case DType::kBFloat16:
      return FirstWithFullExponent<uint16_t>(data, count, 0x7f80u);
    case DType::kFloat16:
      return FirstWithFullExponent<uint16_t>(data, count, 0x7c00u);
  }
  return std::nullopt;
}

float NumberAt(const uint8_t* data, DType dtype, size_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return std::bit_cast<float>(BitsAt<uint32_t>(data, index));
    case DType::kBFloat16:
      return BFloat16ToFloat(BitsAt<uint16_t>(data, index));
    case DType::kFloat16:
      return Float16ToFloat(BitsAt<uint16_t>(data, index));
  }
  return 0;
}

void WidenToFloat(const uint8_t* data, DType dtype, size_t count, float* out) {
  if (dtype == DType::kFloat32) {
    if (count != 0) std::memcpy(out, data, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) out[i] = NumberAt(data, dtype, i);
}

}  // namespace rivulet
