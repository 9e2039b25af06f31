// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/byte_characters.h"

#include <array>

#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

constexpr uint32_t kCodes = 0x144;  // the characters are below this

bool IsVisible(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Table {
  std::array<std::string, 256> characters;
  std::array<int, kCodes> bytes;  // -1: of none

  Table() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t code = IsVisible(byte) ? byte : next++;
      characters[byte] = Utf8Of(code);
      bytes[code] = static_cast<int>(byte);
    }
  }
};

const Table& Characters() {
  static const Table* const table = new Table;
  return *table;
}

}  // namespace

std::string_view ByteCharacter(uint8_t byte) { return Characters().characters[byte]; }

std::optional<std::string> BytesOfCharacters(std::string_view token) {
  const Table& table = Characters();
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const uint32_t code = NextCodePoint(token, &i);
    if (code >= kCodes || table.bytes[code] < 0) return std::nullopt;
    bytes += static_cast<char>(table.bytes[code]);
  }
  return bytes;
}

}  // namespace rivulet
