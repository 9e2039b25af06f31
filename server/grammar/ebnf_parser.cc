// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/ebnf_parser.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/utf8.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "server/grammar/pattern_reader.h"

namespace rivulet {
namespace {

constexpr size_t kLongest = 64 << 10;
constexpr int kDeepest = 200;

bool IsNameCharacter(uint32_t code) {
  return code < 0x80 &&
         (absl::ascii_isalnum(static_cast<unsigned char>(code)) || code == '-' || code == '_');
}

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  absl::StatusOr<Grammar> Parse() {
    SkipSpace();
    while (!in_.at_end()) RIVULET_RETURN_IF_ERROR(ParseRule());
    for (size_t i = 0; i < grammar_.rules.size(); ++i) {
      if (defined_[i]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the rule ", grammar_.rules[i].name, " is used, but not defined"));
    }
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) return absl::InvalidArgumentError("there is no rule named root");
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  void SkipSpace() {
    while (!in_.at_end()) {
      if (in_.Peek() == '#') {
        while (!in_.at_end() && in_.Peek() != '\n') in_.Take();
      } else if (in_.Peek() < 0x80 && absl::ascii_isspace(static_cast<unsigned char>(in_.Peek()))) {
        in_.Take();
      } else {
        return;
      }
    }
  }

  std::string TakeName() {
    std::string name;
    while (IsNameCharacter(in_.Peek())) name += static_cast<char>(in_.Take());
    return name;
  }

  size_t NumberOf(const std::string& name) {
    const auto [entry, is_new] = numbers_.try_emplace(name, grammar_.rules.size());
    if (is_new) {
      grammar_.rules.push_back({name, EmptyText()});
      defined_.push_back(false);
    }
    return entry->second;
  }

  absl::Status ParseRule() {
    const std::string name = TakeName();
    if (name.empty()) return in_.Wrong("the name of a rule is missing");
    SkipSpace();
    if (!in_.TakeIf("::=")) return in_.Wrong(absl::StrCat("::= is missing behind ", name));
    const size_t rule = NumberOf(name);
    if (defined_[rule]) return in_.Wrong(absl::StrCat("the rule ", name, " is there twice"));
    defined_[rule] = true;
    RIVULET_ASSIGN_OR_RETURN(grammar_.rules[rule].expression, ParseChoice(0));
    return in_.Peek() == ')' ? in_.Wrong("a ) without a (") : absl::OkStatus();
  }

  absl::StatusOr<Expression> ParseChoice(int depth) {
    if (depth > kDeepest) return in_.Wrong("groups are nested too deep");
    std::vector<Expression> choices;
    do {
      RIVULET_ASSIGN_OR_RETURN(Expression choice, ParseSequence(depth));
      choices.push_back(std::move(choice));
    } while (in_.TakeIf("|"));
    return Choice(std::move(choices));
  }

  // Whether a name that comes next is that of a new rule.
  bool BeginsRule() const {
    Parser ahead = Parser(in_.rest());
    if (ahead.TakeName().empty()) return false;
    ahead.SkipSpace();
    return ahead.in_.TakeIf("::=");
  }

  absl::StatusOr<Expression> ParseSequence(int depth) {
    std::vector<Expression> parts;
    for (SkipSpace(); !in_.at_end() && in_.Peek() != '|' && in_.Peek() != ')' && !BeginsRule();
         SkipSpace()) {
      RIVULET_ASSIGN_OR_RETURN(Expression part, ParsePart(depth));
      RIVULET_ASSIGN_OR_RETURN(const RepeatBounds bounds, in_.TakeRepeat());
      const bool once = bounds.least == 1 && bounds.most == 1;
      parts.push_back(once ? std::move(part) : Repeat(std::move(part), bounds.least, bounds.most));
    }
    return Sequence(std::move(parts));
  }

  absl::StatusOr<Expression> ParsePart(int depth) {
    if (in_.TakeIf("\"")) return ParseLiteral();
    if (in_.TakeIf("[")) return ParseClass();
    if (in_.TakeIf(".")) return Characters(AllCharacters());
    if (in_.TakeIf("(")) {
      RIVULET_ASSIGN_OR_RETURN(Expression inside, ParseChoice(depth + 1));
      if (!in_.TakeIf(")")) return in_.Wrong("a ) is missing");
      return inside;
    }
    const std::string name = TakeName();
    if (name.empty()) return in_.Wrong("this is no part of a rule");
    return RuleCall(NumberOf(name));
  }

  absl::StatusOr<uint32_t> TakeCharacter() {
    const uint32_t next = in_.Take();
    if (next != '\\') return next;
    const uint32_t letter = in_.Take();
    switch (letter) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'x':
        return in_.TakeHexadecimal(2);
      case 'u':
        return in_.TakeHexadecimal(4);
      case 'U':
        return in_.TakeHexadecimal(8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
        return letter;
      default:
        return in_.Wrong("an unknown escape");
    }
  }

  absl::StatusOr<Expression> ParseLiteral() {
    std::string text;
    while (in_.Peek() != '"') {
      if (in_.at_end()) return in_.Wrong("a \" is missing");
      RIVULET_ASSIGN_OR_RETURN(const uint32_t code, TakeCharacter());
      AppendUtf8(code, &text);
    }
    in_.Take();
    return Literal(text);
  }

  absl::StatusOr<Expression> ParseClass() {
    const bool negated = in_.TakeIf("^");
    std::vector<CodeRange> ranges;
    while (in_.Peek() != ']') {
      if (in_.at_end()) return in_.Wrong("a ] is missing");
      RIVULET_ASSIGN_OR_RETURN(const uint32_t first, TakeCharacter());
      uint32_t last = first;
      if (in_.Peek() == '-' && !in_.rest().starts_with("-]")) {
        in_.Take();
        if (in_.at_end()) return in_.Wrong("a ] is missing");
        RIVULET_ASSIGN_OR_RETURN(last, TakeCharacter());
      }
      if (first > last) return in_.Wrong("a range that is out of order");
      ranges.push_back({first, last});
    }
    in_.Take();
    const CodePointSet set(ranges);
    return Characters(negated ? set.Complement() : set);
  }

  PatternReader in_;
  Grammar grammar_;
  std::vector<bool> defined_;
  absl::flat_hash_map<std::string, size_t> numbers_;
};

}  // namespace

absl::StatusOr<Grammar> ParseEbnf(std::string_view text) {
  if (text.size() > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grammar of ", text.size(), " bytes: at most ", kLongest));
  }
  if (ValidUtf8Length(text) != text.size()) {
    return absl::InvalidArgumentError("the grammar is not UTF-8");
  }
  return Parser(text).Parse();
}

}  // namespace rivulet
