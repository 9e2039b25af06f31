// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The source of a template → tokens. White space is controlled as transformers sets Jinja up
// (trim_blocks and lstrip_blocks): the newline after a block or comment tag is dropped, as is the
// white space between the start of a line and such a tag; "-" in a tag strips all white space on
// its side, "+" keeps it. One newline at the end of the source is dropped.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_JINJA_LEXER_H_
#define RIVULET_MODEL_LOADER_JINJA_LEXER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rivulet::jinja {

inline constexpr size_t kLargestSource = size_t{1} << 20;

enum class TokenKind {
  kData,           // text outside of tags; `text` is what remains of it
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // `text` is its value
  kInteger,  // `text` has no underscores
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 0;

  bool Is(TokenKind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
};

// The last token is kEnd. INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// An error in a line of the template.
absl::Status SyntaxError(int line, std::string_view message);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_LEXER_H_
