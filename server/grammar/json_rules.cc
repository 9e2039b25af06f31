// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/json_rules.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

constexpr uint32_t kMostSpaces = 32;
constexpr uint32_t kMostDigits = 15, kMostFraction = 17, kMostExponent = 2;
// A double keeps so many digits, so that a bound holds for the number that a parser reads.
constexpr uint32_t kExactDigits = 15;
constexpr CodeRange kMayStandRaw[] = {{' ', '!'}, {'#', '['}, {']', kLastCodePoint}};
constexpr CodeRange kLongCharacterRanges[] = {{0x80, kLastCodePoint}};
constexpr CodeRange kInFourDigits[] = {{0, 0xFFFF}};

const CodePointSet& Raw() {
  static const auto& set =
      *new CodePointSet(CodePointSet(kMayStandRaw).Intersection(AllCharacters()));
  return set;
}

struct ShortEscape {
  char code;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
                                         {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};

Expression OneOf(std::string_view bytes) {
  Expression expression{.kind = Expression::Kind::kBytes};
  for (const char byte : bytes) expression.bytes.set(static_cast<uint8_t>(byte));
  return expression;
}

Expression Digits(char first, char last) {
  Expression expression{.kind = Expression::Kind::kBytes};
  for (char digit = first; digit <= last; ++digit) {
    expression.bytes.set(static_cast<uint8_t>(digit));
  }
  return expression;
}

Expression AnyDigits(size_t count) {
  const auto times = static_cast<uint32_t>(count);
  return Repeat(Digits('0', '9'), times, times);
}

// Hexadecimal digits of either case.
Expression HexadecimalDigits(uint32_t first, uint32_t last) {
  std::string digits;
  for (uint32_t digit = first; digit <= last; ++digit) {
    digits += "0123456789abcdef"[digit];
    if (digit >= 10) digits += "ABCDEF"[digit - 10];
  }
  return OneOf(digits);
}

// `digits` hexadecimal digits, from `first` to `last`.
Expression HexadecimalBetween(uint32_t first, uint32_t last, unsigned digits) {
  if (digits == 0) return EmptyText();
  const unsigned shift = 4 * (digits - 1);
  const uint32_t low = first >> shift, high = last >> shift, mask = (1u << shift) - 1;
  if (low == high) {
    return Sequence(
        {HexadecimalDigits(low, low), HexadecimalBetween(first & mask, last & mask, digits - 1)});
  }
  std::vector<Expression> choices;
  uint32_t whole_from = low, whole_to = high;
  if ((first & mask) != 0) {
    choices.push_back(Sequence(
        {HexadecimalDigits(low, low), HexadecimalBetween(first & mask, mask, digits - 1)}));
    ++whole_from;
  }
  if ((last & mask) != mask) {
    choices.push_back(
        Sequence({HexadecimalDigits(high, high), HexadecimalBetween(0, last & mask, digits - 1)}));
    --whole_to;
  }
  if (whole_from <= whole_to) {
    choices.push_back(Sequence({HexadecimalDigits(whole_from, whole_to),
                                Repeat(HexadecimalDigits(0, 15), digits - 1, digits - 1)}));
  }
  return Choice(std::move(choices));
}

// Digits that are at least, or at most, those of the bound, and as many.
Expression DigitsFrom(std::string_view least) {
  if (least.find_first_not_of('0') == least.npos) return AnyDigits(least.size());
  std::vector<Expression> choices;
  choices.push_back(Sequence({Digits(least[0], least[0]), DigitsFrom(least.substr(1))}));
  if (least[0] < '9') {
    choices.push_back(
        Sequence({Digits(static_cast<char>(least[0] + 1), '9'), AnyDigits(least.size() - 1)}));
  }
  return Choice(std::move(choices));
}

Expression DigitsUpTo(std::string_view most) {
  if (most.find_first_not_of('9') == most.npos) return AnyDigits(most.size());
  std::vector<Expression> choices;
  choices.push_back(Sequence({Digits(most[0], most[0]), DigitsUpTo(most.substr(1))}));
  if (most[0] > '0') {
    choices.push_back(
        Sequence({Digits('0', static_cast<char>(most[0] - 1)), AnyDigits(most.size() - 1)}));
  }
  return Choice(std::move(choices));
}

// Both have the same length.
Expression DigitsBetween(std::string_view least, std::string_view most) {
  if (least.empty()) return EmptyText();
  if (least[0] == most[0]) {
    return Sequence({Digits(least[0], least[0]), DigitsBetween(least.substr(1), most.substr(1))});
  }
  const bool all = least.substr(1).find_first_not_of('0') == least.npos &&
                   most.substr(1).find_first_not_of('9') == most.npos;
  if (all) return Sequence({Digits(least[0], most[0]), AnyDigits(least.size() - 1)});
  std::vector<Expression> choices;
  choices.push_back(Sequence({Digits(least[0], least[0]), DigitsFrom(least.substr(1))}));
  choices.push_back(Sequence({Digits(most[0], most[0]), DigitsUpTo(most.substr(1))}));
  if (most[0] - least[0] > 1) {
    choices.push_back(
        Sequence({Digits(static_cast<char>(least[0] + 1), static_cast<char>(most[0] - 1)),
                  AnyDigits(least.size() - 1)}));
  }
  return Choice(std::move(choices));
}

// 0 <= least <= most.
Expression CountBetween(int64_t least, int64_t most) {
  std::vector<Expression> choices;
  while (least <= most) {
    const std::string first = absl::StrCat(least);
    const std::string last = std::min(absl::StrCat(most), std::string(first.size(), '9'),
                                      [](const std::string& a, const std::string& b) {
                                        return a.size() != b.size() ? a.size() < b.size() : a < b;
                                      });
    choices.push_back(DigitsBetween(first, last));
    if (last.size() == absl::StrCat(most).size()) break;
    least = 1;
    for (size_t i = 0; i < first.size(); ++i) least *= 10;
  }
  return Choice(std::move(choices));
}

Expression Fraction(bool is_not_zero, uint32_t most) {
  if (!is_not_zero) return Sequence({Literal("."), Repeat(Digits('0', '9'), 1, most)});
  const uint32_t zeros = std::min(most - 1, 3u);
  return Sequence({Literal("."), Repeat(Digits('0', '0'), 0, zeros), Digits('1', '9'),
                   Repeat(Digits('0', '9'), 0, most - zeros - 1)});
}

}  // namespace

Expression StringCharacter(const CodePointSet& set) {
  std::vector<Expression> choices;
  const CodePointSet raw = set.Intersection(Raw());
  if (!raw.empty()) choices.push_back(Characters(raw));
  std::string letters;
  for (const auto& [code, letter] : kShortEscapes) {
    if (set.Contains(static_cast<uint8_t>(code))) letters += letter;
  }
  if (!letters.empty()) choices.push_back(Sequence({Literal("\\"), OneOf(letters)}));
  const CodePointSet in_four =
      set.Intersection(CodePointSet(kInFourDigits)).Intersection(AllCharacters());
  for (const CodeRange& range : in_four.ranges()) {
    choices.push_back(Sequence({Literal("\\u"), HexadecimalBetween(range.first, range.last, 4)}));
  }
  return Choice(std::move(choices));
}

Expression IntegerBetween(int64_t least, int64_t most) {
  std::vector<Expression> choices;
  if (most >= 0) choices.push_back(CountBetween(std::max<int64_t>(least, 0), most));
  if (least < 0) {
    choices.push_back(
        Sequence({Literal("-"), CountBetween(std::max<int64_t>(1, most < 0 ? -most : 1), -least)}));
  }
  return Choice(std::move(choices));
}

Expression NumberBetween(const NumberBounds& bounds) {
  const auto first = static_cast<int64_t>(std::ceil(bounds.least));
  const auto last = static_cast<int64_t>(std::floor(bounds.most));
  const auto digits =
      static_cast<uint32_t>(absl::StrCat(std::max(std::abs(first), std::abs(last))).size());
  const uint32_t most = digits < kExactDigits ? kExactDigits - digits : 1;
  const bool skips_first = bounds.without_least && static_cast<double>(first) == bounds.least;
  const bool skips_last = bounds.without_most && static_cast<double>(last) == bounds.most;
  std::vector<Expression> choices;
  if (first + skips_first <= last - skips_last) {
    choices.push_back(IntegerBetween(first + skips_first, last - skips_last));
  }
  // From an integer on, away from zero, up to the next one. `at` may need a fraction other than 0.
  const auto add = [&](const char* sign, int64_t at, int64_t end, bool skips_at) {
    if (at >= end) return;
    if (skips_at) {
      choices.push_back(Sequence({Literal(sign), CountBetween(at, at), Fraction(true, most)}));
      ++at;
    }
    if (at < end) {
      choices.push_back(
          Sequence({Literal(sign), CountBetween(at, end - 1), Fraction(false, most)}));
    }
  };
  add("", std::max<int64_t>(first, 0), last, skips_first && first >= 0);
  add("-", std::max<int64_t>(-last, 0), -first, skips_last && last <= 0);
  return Choice(std::move(choices));
}

Expression JsonRules::Rule(std::string name, Expression expression) {
  grammar_.rules.push_back({std::move(name), std::move(expression)});
  return RuleCall(grammar_.rules.size() - 1);
}

// The rule exists before its expression is made, which may call it.
template <typename Make>
Expression JsonRules::Once(std::optional<size_t>& rule, const char* name, Make make) {
  if (!rule.has_value()) {
    rule = Rule(name, EmptyText()).rule;
    Expression expression = make();
    grammar_.rules[*rule].expression = std::move(expression);
  }
  return RuleCall(*rule);
}

Expression JsonRules::Space() {
  return Once(space_, "space", [] {
    Expression lines = Sequence({Literal("\n"), Repeat(OneOf(" \t"), 0, kMostSpaces)});
    return Optional(Choice({Literal(" "), std::move(lines)}));
  });
}

Expression JsonRules::String() {
  return Once(string_, "string", [] {
    return Sequence({Literal("\""),
                     Repeat(StringCharacter(AllCharacters()), 0, Expression::kUnbounded),
                     Literal("\"")});
  });
}

Expression JsonRules::Number() {
  return Once(number_, "number", [] {
    Expression whole = Choice(
        {Literal("0"), Sequence({Digits('1', '9'), Repeat(Digits('0', '9'), 0, kMostDigits - 1)})});
    Expression exponent =
        Sequence({OneOf("eE"), Optional(OneOf("+-")), Repeat(Digits('0', '9'), 1, kMostExponent)});
    return Sequence({Optional(Literal("-")), std::move(whole),
                     Optional(Fraction(false, kMostFraction)), Optional(std::move(exponent))});
  });
}

Expression JsonRules::Integer() {
  return Once(integer_, "integer",
              [] { return IntegerBetween(-kLargestInteger, kLargestInteger); });
}

Expression JsonRules::Character() {
  return Once(character_, "character", [] { return StringCharacter(AllCharacters()); });
}

Expression JsonRules::RestOfKey() {
  return Once(rest_of_key_, "rest of a key", [] {
    return Sequence({Repeat(Characters(Raw()), 0, Expression::kUnbounded), Literal("\"")});
  });
}

Expression JsonRules::LongCharacterOfKey() {
  return Once(long_character_, "character of a key",
              [] { return Characters(Raw().Intersection(CodePointSet(kLongCharacterRanges))); });
}

// The rest of a key that is none of these, which are sorted and differ, and the quote behind it.
// What it shares with the rests of other keys are calls: schemas have thousands of keys.
Expression JsonRules::RestOtherThan(std::span<const std::u32string> rests) {
  std::vector<Expression> choices;
  if (!rests.empty() && rests[0].empty()) {
    rests = rests.subspan(1);
  } else {
    choices.push_back(Literal("\""));
  }
  CodePointSet others = Raw();
  bool any_long = true;  // every character of several bytes is among the others
  while (!rests.empty()) {
    const char32_t first = rests[0][0];
    std::vector<std::u32string> behind;
    for (; !rests.empty() && rests[0][0] == first; rests = rests.subspan(1)) {
      behind.push_back(rests[0].substr(1));
    }
    if (!Raw().Contains(first)) continue;
    any_long = any_long && first < kLongCharacterRanges[0].first;
    others = others.Intersection(CodePointSet::Of(first).Complement());
    choices.push_back(Sequence({Literal(Utf8Of(first)), RestOtherThan(behind)}));
  }
  if (any_long) {
    others = others.Intersection(CodePointSet(kLongCharacterRanges).Complement());
    choices.push_back(Sequence({LongCharacterOfKey(), RestOfKey()}));
  }
  choices.push_back(Sequence({Characters(others), RestOfKey()}));
  return Choice(std::move(choices));
}

Expression JsonRules::KeyOtherThan(const std::vector<std::string>& keys) {
  std::vector<std::u32string> rests;
  for (const std::string& key : keys) {
    std::u32string& characters = rests.emplace_back();
    for (size_t place = 0; place < key.size();) characters += NextCodePoint(key, &place);
  }
  std::sort(rests.begin(), rests.end());
  rests.erase(std::unique(rests.begin(), rests.end()), rests.end());
  // A rule of its own, so that calls at its end need no stack.
  return Rule("other key", Sequence({Literal("\""), RestOtherThan(rests)}));
}

Expression JsonRules::Value() {
  return Once(value_, "value", [this] {
    return Choice({String(), Number(), Object(), Array(), Literal("true"), Literal("false"),
                   Literal("null")});
  });
}

Expression JsonRules::Comma() { return Sequence({Space(), Literal(","), Space()}); }

Expression JsonRules::Bracketed(char open, Expression inside, char close) {
  return Sequence({Literal(std::string_view(&open, 1)), Space(), std::move(inside), Space(),
                   Literal(std::string_view(&close, 1))});
}

Expression JsonRules::Array() {
  return Once(array_, "array", [this] {
    Expression more = Repeat(Sequence({Comma(), Value()}), 0, Expression::kUnbounded);
    return Bracketed('[', Optional(Sequence({Value(), std::move(more)})), ']');
  });
}

Expression JsonRules::Object() {
  return Once(object_, "object", [this] {
    const Expression member =
        Rule("member", Sequence({String(), Space(), Literal(":"), Space(), Value()}));
    Expression more = Repeat(Sequence({Comma(), member}), 0, Expression::kUnbounded);
    return Bracketed('{', Optional(Sequence({member, std::move(more)})), '}');
  });
}

}  // namespace rivulet
