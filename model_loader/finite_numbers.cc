// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/finite_numbers.h"

#include <algorithm>
#include <cstdint>
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
std::optional<size_t> FirstWithFullExponent(const std::byte* data, size_t count, Bits exponent) {
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

}  // namespace

std::optional<size_t> FirstNotFinite(const std::byte* data, DType dtype, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return FirstWithFullExponent<uint32_t>(data, count, 0x7f800000u);
    case DType::kBFloat16:
      return FirstWithFullExponent<uint16_t>(data, count, 0x7f80u);
    case DType::kFloat16:
      return FirstWithFullExponent<uint16_t>(data, count, 0x7c00u);
    case DType::kFloat8:
      break;  // no file has it
  }
  return std::nullopt;
}

}  // namespace rivulet
