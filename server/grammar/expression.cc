// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/expression.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/base/check.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

constexpr CodeRange kCharacters[] = {{0, 0xD7FF}, {0xE000, kLastCodePoint}};
// The last character of each length.
constexpr uint32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kLastCodePoint};
constexpr unsigned kContinuationBits = 6;
constexpr uint32_t kMostSpaces = 8;  // behind a mark

Expression Bytes(char first, char last) {
  Expression expression{.kind = Expression::Kind::kBytes};
  for (unsigned byte = static_cast<uint8_t>(first); byte <= static_cast<uint8_t>(last); ++byte) {
    expression.bytes.set(byte);
  }
  return expression;
}

// Characters of one length. Where a byte but the last differs between both ends, all bytes after it
// must be free, so that a range is a product of ranges of bytes; else it is divided.
void AddOfLength(uint32_t first, uint32_t last, size_t length, std::vector<Expression>& choices) {
  for (size_t free = 1; free < length; ++free) {
    const uint32_t mask = (1u << (kContinuationBits * free)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      AddOfLength(first, first | mask, length, choices);
      return AddOfLength((first | mask) + 1, last, length, choices);
    }
    if ((last & mask) != mask) {
      AddOfLength(first, (last & ~mask) - 1, length, choices);
      return AddOfLength(last & ~mask, last, length, choices);
    }
  }
  const std::string low = Utf8Of(first), high = Utf8Of(last);
  std::vector<Expression> bytes;
  for (size_t i = 0; i < length; ++i) bytes.push_back(Bytes(low[i], high[i]));
  choices.push_back(Sequence(std::move(bytes)));
}

void AddRange(CodeRange range, std::vector<Expression>& choices) {
  uint32_t first = range.first;
  for (size_t length = 1; length <= 4 && first <= range.last; ++length) {
    if (first > kLastOfLength[length - 1]) continue;
    const uint32_t last = std::min(range.last, kLastOfLength[length - 1]);
    AddOfLength(first, last, length, choices);
    first = last + 1;
  }
}

}  // namespace

Expression EmptyText() { return {}; }

Expression Literal(std::string_view text) {
  std::vector<Expression> bytes;
  for (const char byte : text) bytes.push_back(Bytes(byte, byte));
  return Sequence(std::move(bytes));
}

// Of sorted texts that differ, from their bytes at `place` on.
static Expression LiteralsFrom(std::span<const std::string> texts, size_t place) {
  if (texts.size() == 1) return Literal(std::string_view(texts[0]).substr(place));
  const std::string_view first = texts.front(), last = texts.back();
  size_t shared = place;
  while (shared < first.size() && first[shared] == last[shared]) ++shared;
  std::vector<Expression> choices;
  for (size_t begin = 0; begin < texts.size();) {
    size_t end = begin + 1;
    const auto same = [&](const std::string& text) {
      return text.size() > shared && texts[begin].size() > shared &&
             text[shared] == texts[begin][shared];
    };
    while (end < texts.size() && same(texts[end])) ++end;
    choices.push_back(LiteralsFrom(texts.subspan(begin, end - begin), shared));
    begin = end;
  }
  Expression behind = Choice(std::move(choices));
  if (shared == place) return behind;
  return Sequence({Literal(first.substr(place, shared - place)), std::move(behind)});
}

Expression Literals(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? Choice({}) : LiteralsFrom(texts, 0);
}

Expression Sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {.kind = Expression::Kind::kSequence, .parts = std::move(parts)};
}

Expression Choice(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {.kind = Expression::Kind::kChoice, .parts = std::move(parts)};
}

Expression Repeat(Expression part, uint32_t least, uint32_t most) {
  RIVULET_CHECK(least <= most, "a repeat whose least is more than its most");
  Expression repeat{.kind = Expression::Kind::kRepeat, .least = least, .most = most};
  repeat.parts.push_back(std::move(part));
  return repeat;
}

Expression RuleCall(size_t rule) { return {.kind = Expression::Kind::kRule, .rule = rule}; }

Expression Characters(const CodePointSet& set) {
  std::vector<Expression> choices;
  ByteSet ascii;
  const CodePointSet written = set.Intersection(AllCharacters());
  for (const CodeRange& range : written.ranges()) {
    for (uint32_t code = range.first; code <= std::min(range.last, kLastOfLength[0]); ++code) {
      ascii.set(code);
    }
    if (range.last > kLastOfLength[0]) {
      AddRange({std::max(range.first, kLastOfLength[0] + 1), range.last}, choices);
    }
  }
  if (ascii.any()) choices.push_back({.kind = Expression::Kind::kBytes, .bytes = ascii});
  return Choice(std::move(choices));
}

// One rule for each number of the mark's bytes that the text ends with.
Grammar BehindMark(std::string_view mark, Grammar grammar, bool may_lack) {
  const size_t first = grammar.rules.size();
  Expression space{.kind = Expression::Kind::kBytes};
  for (const char c : {' ', '\n', '\t', '\r'}) space.bytes.set(static_cast<uint8_t>(c));
  for (size_t matched = 0; matched < mark.size(); ++matched) {
    Expression others{.kind = Expression::Kind::kBytes};
    others.bytes.set();
    others.bytes.reset(static_cast<uint8_t>(mark[0]));
    others.bytes.reset(static_cast<uint8_t>(mark[matched]));
    Expression next = RuleCall(first + matched + 1);
    std::vector<Expression> choices = {
        Sequence({Bytes(mark[matched], mark[matched]), std::move(next)}),
        Sequence({std::move(others), RuleCall(first)})};
    if (matched > 0) choices.push_back(Sequence({Bytes(mark[0], mark[0]), RuleCall(first + 1)}));
    if (may_lack) choices.push_back(EmptyText());
    grammar.rules.push_back({"before the mark", Choice(std::move(choices))});
  }
  Expression spaces = Repeat(std::move(space), 0, kMostSpaces);
  grammar.rules.push_back(
      {"behind the mark", Sequence({std::move(spaces), RuleCall(grammar.root)})});
  grammar.root = first;
  return grammar;
}

namespace {

void ShiftRules(size_t by, Expression& expression) {
  expression.rule += by;
  for (Expression& part : expression.parts) ShiftRules(by, part);
}

}  // namespace

Expression AddRules(Grammar from, Grammar& to) {
  const size_t first = to.rules.size();
  for (Grammar::Rule& rule : from.rules) {
    ShiftRules(first, rule.expression);
    to.rules.push_back(std::move(rule));
  }
  return RuleCall(first + from.root);
}

const CodePointSet& AllCharacters() {
  static const auto& all = *new CodePointSet(kCharacters);
  return all;
}

}  // namespace rivulet
