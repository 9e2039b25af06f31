// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Steps through text that is known to be valid UTF-8 (Encode checks it once), without checks.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_UTF8_TEXT_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_UTF8_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rivulet {

// Bytes of the character that begins with this byte.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at `*place`, which is moved behind it.
inline uint32_t NextCodePoint(std::string_view text, size_t* place) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const size_t i = *place;
  const uint32_t lead = at(i);
  *place += Utf8Length(text[i]);
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return (lead & 0x1F) << 6 | (at(i + 1) & 0x3F);
  if (lead < 0xF0) return (lead & 0x0F) << 12 | (at(i + 1) & 0x3F) << 6 | (at(i + 2) & 0x3F);
  return (lead & 0x07) << 18 | (at(i + 1) & 0x3F) << 12 | (at(i + 2) & 0x3F) << 6 |
         (at(i + 3) & 0x3F);
}

inline void AppendUtf8(uint32_t code, std::string* text) {
  const auto put = [text](uint32_t byte) { *text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

inline std::string Utf8Of(uint32_t code) {
  std::string text;
  AppendUtf8(code, &text);
  return text;
}

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_UTF8_TEXT_H_
