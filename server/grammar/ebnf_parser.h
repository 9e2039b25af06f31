// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A grammar in the EBNF that llama.cpp and XGrammar read (GBNF):
//
//   root   ::= "yes" | number ("," number)*     # the text as a whole matches the rule `root`
//   number ::= [0-9]{1,3}
//
// Literals "..." and classes [a-z], [^a-z] with the escapes \n \t \r \" \\ \[ \] \- \^ \xHH \uHHHH
// \UHHHHHHHH, `.` for any character, groups, `|`, and the repeats ? * + {n} {n,} {n,m}. A rule ends
// where the next one begins; its names have letters, digits, - and _.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_GRAMMAR_EBNF_PARSER_H_
#define RIVULET_SERVER_GRAMMAR_EBNF_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "server/grammar/expression.h"

namespace rivulet {

// INVALID_ARGUMENT says what is wrong and where: syntax, a rule that is missing or there twice,
// more than 64 KiB.
absl::StatusOr<Grammar> ParseEbnf(std::string_view text);

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_EBNF_PARSER_H_
