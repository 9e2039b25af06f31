// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Numbers that people write on command lines.
#ifndef RIVULET_KERNELS_BASE_NUMBERS_H_
#define RIVULET_KERNELS_BASE_NUMBERS_H_

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace rivulet {

// The decimal number that `text` is as a whole, or none: 010 is ten. No sign but a minus, which no
// unsigned type takes; no spaces, no 0x10, no inf or nan, nothing that the type cannot hold. A
// floating type takes 1.5 and 2e3, too.
template <typename Number>
std::optional<Number> ReadNumber(std::string_view text) {
  static_assert(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>);
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) return std::nullopt;
  }
  return number;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_NUMBERS_H_
