// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The character that a byte-level tokenizer (GPT-2's and its kind) writes for a byte: itself if it
// can be seen, else one from U+0100 on.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_BYTE_CHARACTERS_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_BYTE_CHARACTERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rivulet {

// In UTF-8: one or two bytes.
std::string_view ByteCharacter(uint8_t byte);

// The bytes that `token` stands for. Nothing if one of its characters stands for no byte. REQUIRES:
// valid UTF-8.
std::optional<std::string> BytesOfCharacters(std::string_view token);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_BYTE_CHARACTERS_H_
