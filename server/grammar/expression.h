// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A context-free grammar over bytes, as a tree: what a schema, a regular expression, a list of
// choices or an EBNF is turned into, and what an automaton (automaton.h) is made of.
//
// Text is UTF-8 here: a set of characters is an expression that matches their bytes.
//
// Threading: plain values.
#ifndef RIVULET_SERVER_GRAMMAR_EXPRESSION_H_
#define RIVULET_SERVER_GRAMMAR_EXPRESSION_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_loader/hf_tokenizer/code_point_set.h"

namespace rivulet {

using ByteSet = std::bitset<256>;

struct Expression {
  enum class Kind : uint8_t {
    kBytes,     // one byte out of `bytes`
    kSequence,  // all of `parts`, in order; without parts: the empty text
    kChoice,    // one of `parts`; without parts: nothing matches
    kRepeat,    // parts[0], at least `least` and at most `most` times
    kRule,      // what Grammar::rules[rule] matches
  };
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  Kind kind = Kind::kSequence;
  ByteSet bytes = {};
  std::vector<Expression> parts = {};
  uint32_t least = 0;
  uint32_t most = 0;
  size_t rule = 0;
};

struct Grammar {
  struct Rule {
    std::string name;  // for messages
    Expression expression;
  };
  std::vector<Rule> rules;
  size_t root = 0;  // in rules
};

Expression EmptyText();
Expression Literal(std::string_view text);
// One of these texts; what several begin with is there once.
Expression Literals(std::vector<std::string> texts);
Expression Sequence(std::vector<Expression> parts);
Expression Choice(std::vector<Expression> parts);
Expression Repeat(Expression part, uint32_t least, uint32_t most);
inline Expression Optional(Expression part) { return Repeat(std::move(part), 0, 1); }
Expression RuleCall(size_t rule);

// Anything up to the first `mark`, the mark, white space, and what `grammar` matches; with
// `may_lack`, also any text without the mark. REQUIRES: the mark's first character is nowhere else
// in it.
Grammar BehindMark(std::string_view mark, Grammar grammar, bool may_lack = false);
// Adds the rules of `from` to `to`: a call of its root.
Expression AddRules(Grammar from, Grammar& to);

// One character of the set, as UTF-8. Surrogates have none and are left out.
Expression Characters(const CodePointSet& set);
// All characters that UTF-8 can write.
const CodePointSet& AllCharacters();

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_EXPRESSION_H_
