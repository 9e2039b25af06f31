// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// JSON's parts (RFC 8259) as expressions, from which schemas are put together. They match less than
// JSON allows where more would only harm: at most one space, or a line end and 32 spaces, between
// tokens; numbers that fit an int64 or a double; no \u escapes of surrogates (characters beyond the
// first plane are written as they are).
//
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_GRAMMAR_JSON_RULES_H_
#define RIVULET_SERVER_GRAMMAR_JSON_RULES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/grammar/expression.h"

namespace rivulet {

// One character of a JSON string out of the set, as it is or escaped.
Expression StringCharacter(const CodePointSet& set);
// All integers from `least` to `most`, without leading zeros.
Expression IntegerBetween(int64_t least, int64_t most);
inline constexpr int64_t kLargestInteger = 999'999'999'999'999'999;

struct NumberBounds {
  double least = -1e9, most = 1e9;  // no further from zero than 1e15
  bool without_least = false, without_most = false;
};
// Numbers within the bounds, as far as they lie between two integers that do: all of them if the
// bounds are integers, nothing between 0.2 and 0.8.
Expression NumberBetween(const NumberBounds& bounds);

class JsonRules {
 public:
  // Adds rules to `grammar`, which outlives it, as they are needed.
  explicit JsonRules(Grammar& grammar) : grammar_(grammar) {}

  // A new rule.
  Expression Rule(std::string name, Expression expression);

  Expression Space();
  Expression String();
  Expression Number();     // any
  Expression Integer();    // any
  Expression Character();  // of a string
  // Any text but these (UTF-8). Without escapes, so that no key can be written in two ways.
  Expression KeyOtherThan(const std::vector<std::string>& keys);
  Expression Value();  // any
  Expression Array();  // of any values
  Expression Object();

  // Items with commas between them, in brackets.
  Expression Bracketed(char open, Expression inside, char close);
  Expression Comma();

 private:
  // A rule that is made once.
  template <typename Make>
  Expression Once(std::optional<size_t>& rule, const char* name, Make make);

  Expression RestOfKey();           // of any, and the quote behind it
  Expression LongCharacterOfKey();  // of several bytes
  Expression RestOtherThan(std::span<const std::u32string> rests);

  Grammar& grammar_;
  std::optional<size_t> rest_of_key_, long_character_;
  std::optional<size_t> space_, string_, number_, integer_, character_, value_, array_, object_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_JSON_RULES_H_
