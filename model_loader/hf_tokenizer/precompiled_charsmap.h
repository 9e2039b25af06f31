// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// SentencePiece's table of replacements, "precompiled_charsmap", as the `tokenizers` package
// applies it: to graphemes of up to five bytes, else to single characters, and always the shortest
// entry that the text begins with.
//
// A damaged table gives other text, never a read outside of it.
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_PRECOMPILED_CHARSMAP_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_PRECOMPILED_CHARSMAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rivulet {

class PrecompiledCharsmap {
 public:
  static absl::StatusOr<PrecompiledCharsmap> Parse(std::string_view base64);

  std::string Apply(std::string_view text) const;

 private:
  std::optional<std::string_view> Replacement(std::string_view text) const;
  void AppendGrapheme(std::string_view grapheme, std::string* result) const;
  uint32_t Unit(size_t index) const { return index < trie_.size() ? trie_[index] : 0; }

  std::vector<uint32_t> trie_;  // a double array
  std::string replacements_;    // each ends with a zero byte
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PRECOMPILED_CHARSMAP_H_
