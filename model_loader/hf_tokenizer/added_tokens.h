// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The "added_tokens" of a tokenizer.json: tokens that are looked for in a text before it is
// normalized and split, or after it was normalized. Those that are special (<|im_end|>) count only
// where the text is not plain (marked_text.h).
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_ADDED_TOKENS_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_ADDED_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/literal_matcher.h"
#include "model_loader/hf_tokenizer/pattern.h"
#include "model_loader/hf_tokenizer/vocabulary.h"

namespace rivulet {

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool special = false;
  bool single_word = false;  // not beside a letter or digit
  bool left = false;         // takes the white space before it
  bool right = false;        // and behind it
  bool normalized = false;   // is looked for in the normalized text
};

// A part of a text: a token, or text between tokens.
struct TextPart {
  TextRange range;
  std::optional<uint32_t> token;
};

class AddedTokens {
 public:
  using Normalize = std::function<absl::StatusOr<std::string>(std::string_view)>;

  // Adds the token of a JSON object {"content", "id", "special", ...}. Ids go on where the model's
  // end, as in the `tokenizers` package, which does not read them: INVALID_ARGUMENT if the file
  // says otherwise. A content that is there already changes nothing.
  absl::Status Add(ConfigReader& reader, uint64_t id, const Vocabulary& model);
  // After the last Add. `normalize`: the tokenizer's normalizer.
  absl::Status Finish(const Normalize& normalize);

  enum class Text { kAsWritten, kNormalized };
  // The parts of `text`, in order. Special tokens with a byte in `plain` do not count.
  std::vector<TextPart> Split(std::string_view text, Text kind, const PlainRanges& plain) const;
  // A special token is looked for in normalized text.
  bool has_normalized_special() const { return has_normalized_special_; }

  const AddedToken* Find(uint32_t id) const;
  const AddedToken* Find(std::string_view content) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  uint64_t NextId(std::string_view content, const Vocabulary& model) const;
  void AddPart(std::string_view text, const AddedToken& token, TextRange match,
               std::vector<TextPart>* parts, size_t* end) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<uint32_t, size_t> by_id_;
  absl::flat_hash_map<std::string, size_t> by_content_;
  std::optional<uint32_t> largest_id_;
  LiteralMatcher as_written_, normalized_;  // to indices of tokens_
  bool has_normalized_special_ = false;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_ADDED_TOKENS_H_
