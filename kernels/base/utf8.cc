// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/utf8.h"

namespace rivulet {
namespace {

// Length in bytes of the character that `lead` begins; 0 if it begins none.
size_t SequenceLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// False for overlong forms, surrogates and values beyond Unicode.
bool IsScalarOfLength(char32_t code, size_t length) {
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  return code >= kSmallest[length] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

}  // namespace

Utf8Character FirstUtf8Character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = SequenceLength(lead);
  if (length == 0 || length > text.size()) return {};
  char32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    code = code << 6 | (next & 0x3F);
  }
  if (!IsScalarOfLength(code, length)) return {};
  return {code, length, true};
}

size_t ValidUtf8Length(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Character character = FirstUtf8Character(text.substr(length));
    if (!character.valid) break;
    length += character.bytes;
  }
  return length;
}

}  // namespace rivulet
