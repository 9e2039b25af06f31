// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A regular expression as an Expression: what ECMA-262, Python and Rust have in common. Literals,
// `.` (all but line ends), classes, \d \w \s (ASCII) and their opposites, \t \n \r \f \v \0 \xHH
// \uHHHH, groups, alternatives, all repeats (lazy and greedy ones match the same texts), ^ at the
// beginning and $ at the end. Refused by name: look-around, back references, \b, \p{..}, options,
// possessive repeats and anchors elsewhere.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_GRAMMAR_REGEX_PARSER_H_
#define RIVULET_SERVER_GRAMMAR_REGEX_PARSER_H_

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/code_point_set.h"
#include "server/grammar/expression.h"

namespace rivulet {

struct RegexOptions {
  // Matches texts in which the expression is found somewhere; otherwise the whole text has to
  // match.
  bool search = false;
  // How one character out of a set is written; in a JSON string, for example, with escapes.
  std::function<Expression(const CodePointSet&)> write = Characters;
};

// INVALID_ARGUMENT: not a regular expression, or more than 8 KiB. UNIMPLEMENTED names what is not
// served.
absl::StatusOr<Expression> ParseRegex(std::string_view regex, const RegexOptions& options = {});

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_REGEX_PARSER_H_
