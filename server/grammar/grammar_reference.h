// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a grammar matches, straight from its definition: slow, without an automaton. For tests only.
#ifndef RIVULET_SERVER_GRAMMAR_GRAMMAR_REFERENCE_H_
#define RIVULET_SERVER_GRAMMAR_GRAMMAR_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "server/grammar/expression.h"

namespace rivulet {

// For grammars without left recursion in which every expression matches some text.
class GrammarReference {
 public:
  GrammarReference(const Grammar& grammar, std::string_view text) : grammar_(grammar), text_(text) {
    ends_ = Ends(RuleCall(grammar.root), 0);
  }

  bool Matches() const { return ends_.contains(text_.size()); }
  // Whether some text that begins so matches.
  bool MayContinue() const { return ran_out_ || Matches(); }

 private:
  using Places = std::set<size_t>;

  // Where the expression may end that begins at `begin`.
  Places Ends(const Expression& expression, size_t begin) {
    switch (expression.kind) {
      case Expression::Kind::kBytes:
        if (begin == text_.size()) ran_out_ = ran_out_ || expression.bytes.any();
        if (begin == text_.size() || !expression.bytes[static_cast<uint8_t>(text_[begin])]) {
          return {};
        }
        return {begin + 1};
      case Expression::Kind::kSequence: {
        Places places = {begin};
        for (const Expression& part : expression.parts) places = EndsOfEach(part, places);
        return places;
      }
      case Expression::Kind::kChoice: {
        Places places;
        for (const Expression& part : expression.parts) places.merge(Ends(part, begin));
        return places;
      }
      case Expression::Kind::kRepeat:
        return EndsOfRepeat(expression, begin);
      case Expression::Kind::kRule: {
        const auto key = std::make_pair(expression.rule, begin);
        if (const auto known = known_.find(key); known != known_.end()) return known->second;
        Places places = Ends(grammar_.rules[expression.rule].expression, begin);
        return known_[key] = places;
      }
    }
    return {};
  }

  Places EndsOfEach(const Expression& part, const Places& begins) {
    Places places;
    for (const size_t begin : begins) places.merge(Ends(part, begin));
    return places;
  }

  Places EndsOfRepeat(const Expression& repeat, size_t begin) {
    Places now = {begin}, all;
    for (uint32_t i = 0; !now.empty(); ++i) {
      const size_t known = all.size();
      if (i >= repeat.least) all.insert(now.begin(), now.end());
      if (i == repeat.most) break;
      if (i > repeat.least + text_.size() && all.size() == known) break;
      now = EndsOfEach(repeat.parts[0], now);
    }
    return all;
  }

  const Grammar& grammar_;
  const std::string_view text_;
  bool ran_out_ = false;
  std::map<std::pair<size_t, size_t>, Places> known_;
  Places ends_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_GRAMMAR_REFERENCE_H_
