// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Reads a regular expression in the syntax of tokenizer.json (Oniguruma's, with Ruby's meaning of
// options) as a sequence of parts: sets of characters, and the operators between them.
//
// It takes what tokenizers use: literals, classes with ranges, \p{..}, \s \d \w \h, nesting and &&,
// groups, alternatives, all repeats, look-ahead and look-behind, atomic groups, anchors, word
// borders, and the options i (letters of ASCII only) and m. Anything else is refused by name:
// captures that are used again, calls, conditions, \X, \R, \K, \G, comments, the option x.
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_PATTERN_SYNTAX_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_PATTERN_SYNTAX_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/code_point_set.h"

namespace rivulet {

// Either an operator, in PCRE2's syntax, or, if that is empty, one character out of sets[set].
struct PatternPart {
  std::string text;
  size_t set = 0;
};

struct PatternParts {
  std::vector<PatternPart> parts;
  std::vector<CodePointSet> sets;  // each once
};

// UNIMPLEMENTED or INVALID_ARGUMENT say what is wrong with it and where.
absl::StatusOr<PatternParts> ReadPattern(std::string_view pattern);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PATTERN_SYNTAX_H_
