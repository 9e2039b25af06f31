// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/utf8.h"

#include <cstdint>

namespace rivulet {
namespace {

// A row of Unicode's table 3-7: first bytes from..to are followed by `more` bytes, the first of
// them in [low, high], the others in [0x80, 0xbf].
struct ByteRange {
  uint8_t from, to;
  size_t more;
  uint8_t low, high;
};
constexpr ByteRange kRanges[] = {
    {0x00, 0x7f, 0, 0, 0},       {0xc2, 0xdf, 1, 0x80, 0xbf}, {0xe0, 0xe0, 2, 0xa0, 0xbf},
    {0xe1, 0xec, 2, 0x80, 0xbf}, {0xed, 0xed, 2, 0x80, 0x9f}, {0xee, 0xef, 2, 0x80, 0xbf},
    {0xf0, 0xf0, 3, 0x90, 0xbf}, {0xf1, 0xf3, 3, 0x80, 0xbf}, {0xf4, 0xf4, 3, 0x80, 0x8f},
};

// The bytes of the character that starts `text`, 0 when it is not one.
size_t CharacterLength(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  for (const ByteRange& range : kRanges) {
    if (first < range.from || first > range.to) continue;
    if (text.size() <= range.more) return 0;
    for (size_t i = 1; i <= range.more; ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      if (byte < (i == 1 ? range.low : 0x80) || byte > (i == 1 ? range.high : 0xbf)) return 0;
    }
    return range.more + 1;
  }
  return 0;
}

}  // namespace

size_t ValidUtf8Length(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const size_t character = CharacterLength(text.substr(length));
    if (character == 0) break;
    length += character;
  }
  return length;
}

}  // namespace rivulet
