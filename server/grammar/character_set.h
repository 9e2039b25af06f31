// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A set of characters as an automaton over bytes tells them apart: some of ASCII, and all others or
// none.
//
// Threading: plain values.
#ifndef RIVULET_SERVER_GRAMMAR_CHARACTER_SET_H_
#define RIVULET_SERVER_GRAMMAR_CHARACTER_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "server/grammar/expression.h"

namespace rivulet {

inline constexpr uint32_t kBytesOfAscii = 128;

struct CharacterSet {
  ByteSet ascii;
  bool others = false;  // every character of several bytes

  bool operator==(const CharacterSet&) const = default;
  bool Contains(const CharacterSet& other) const {
    return (ascii | other.ascii) == ascii && (others || !other.others);
  }
  template <typename H>
  friend H AbslHashValue(H h, const CharacterSet& set) {
    return H::combine(std::move(h), std::hash<ByteSet>()(set.ascii), set.others);
  }
};

struct ByteRange {
  uint8_t first = 0, last = 0;
  bool Contains(uint8_t byte) const { return first <= byte && byte <= last; }
};

// Characters whose UTF-8 has one byte of each of the first `length` ranges.
struct LongCharacters {
  size_t length;
  std::array<ByteRange, 4> ranges;
  std::span<const ByteRange> bytes() const { return std::span(ranges).first(length); }
};

// All characters of several bytes, as RFC 3629 has them: no longer than needed, no surrogates,
// nothing past U+10FFFF.
inline constexpr ByteRange kMiddle = {0x80, 0xBF};
inline constexpr LongCharacters kLongCharacters[] = {
    {2, {{{0xC2, 0xDF}, kMiddle}}},
    {3, {{{0xE0, 0xE0}, {0xA0, 0xBF}, kMiddle}}},
    {3, {{{0xE1, 0xEC}, kMiddle, kMiddle}}},
    {3, {{{0xED, 0xED}, {0x80, 0x9F}, kMiddle}}},
    {3, {{{0xEE, 0xEF}, kMiddle, kMiddle}}},
    {4, {{{0xF0, 0xF0}, {0x90, 0xBF}, kMiddle, kMiddle}}},
    {4, {{{0xF1, 0xF3}, kMiddle, kMiddle, kMiddle}}},
    {4, {{{0xF4, 0xF4}, {0x80, 0x8F}, kMiddle, kMiddle}}},
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_CHARACTER_SET_H_
