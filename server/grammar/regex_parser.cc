// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/regex_parser.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/utf8.h"
#include "server/grammar/pattern_reader.h"

namespace rivulet {
namespace {

constexpr size_t kLongest = 8 << 10;
constexpr int kDeepest = 200;
constexpr CodeRange kDigits[] = {{'0', '9'}};
constexpr CodeRange kWord[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
constexpr CodeRange kSpace[] = {{'\t', '\r'}, {' ', ' '}};
constexpr CodeRange kLineEnds[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

struct Control {
  char letter;
  char code;
};
constexpr Control kControls[] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'},
                                 {'f', '\f'}, {'v', '\v'}, {'0', '\0'}};

std::optional<CodePointSet> ClassOf(uint32_t letter) {
  switch (letter) {
    case 'd':
      return CodePointSet(kDigits);
    case 'D':
      return CodePointSet(kDigits).Complement();
    case 'w':
      return CodePointSet(kWord);
    case 'W':
      return CodePointSet(kWord).Complement();
    case 's':
      return CodePointSet(kSpace);
    case 'S':
      return CodePointSet(kSpace).Complement();
    default:
      return std::nullopt;
  }
}

class Parser {
 public:
  Parser(std::string_view regex, const RegexOptions& options) : in_(regex), options_(options) {}

  absl::StatusOr<Expression> Parse() {
    RIVULET_ASSIGN_OR_RETURN(Expression all, ParseChoice(0));
    if (!in_.at_end()) return in_.Wrong("a ) without a (");
    return all;
  }

 private:
  absl::StatusOr<Expression> ParseChoice(int depth) {
    if (depth > kDeepest) return in_.Wrong("groups are nested too deep");
    std::vector<Expression> choices;
    do {
      RIVULET_ASSIGN_OR_RETURN(Expression choice, ParseSequence(depth));
      choices.push_back(std::move(choice));
    } while (in_.TakeIf("|"));
    return Choice(std::move(choices));
  }

  Expression Anything() const {
    return Repeat(options_.write(AllCharacters()), 0, Expression::kUnbounded);
  }

  absl::StatusOr<Expression> ParseSequence(int depth) {
    std::vector<Expression> parts;
    const bool begins = in_.TakeIf("^");
    if (begins && depth > 0) return in_.NotServed("^ inside of a group");
    if (!begins && depth == 0 && options_.search) parts.push_back(Anything());
    bool ends = false;
    while (!in_.at_end() && in_.Peek() != '|' && in_.Peek() != ')') {
      if (ends) return in_.NotServed("$ in the middle");
      ends = in_.TakeIf("$");
      if (ends && depth > 0) return in_.NotServed("$ inside of a group");
      if (ends) continue;
      RIVULET_ASSIGN_OR_RETURN(Expression part, ParseRepeated(depth));
      parts.push_back(std::move(part));
    }
    if (!ends && depth == 0 && options_.search) parts.push_back(Anything());
    return Sequence(std::move(parts));
  }

  absl::StatusOr<Expression> ParseRepeated(int depth) {
    RIVULET_ASSIGN_OR_RETURN(Expression part, ParsePart(depth));
    const bool repeats = IsRepeat();
    if (!repeats) return part;
    RIVULET_ASSIGN_OR_RETURN(const RepeatBounds bounds, in_.TakeRepeat());
    if (in_.TakeIf("+")) return in_.NotServed("a possessive repeat");
    in_.TakeIf("?");
    if (IsRepeat()) return in_.Wrong("a repeat of a repeat");
    return Repeat(std::move(part), bounds.least, bounds.most);
  }

  bool IsRepeat() const {
    const uint32_t next = in_.Peek();
    return next == '?' || next == '*' || next == '+' || next == '{';
  }

  absl::StatusOr<Expression> ParsePart(int depth) {
    const uint32_t next = in_.Take();
    switch (next) {
      case '(':
        return ParseGroup(depth);
      case '[': {
        RIVULET_ASSIGN_OR_RETURN(const CodePointSet set, ParseClass());
        return options_.write(set);
      }
      case '.':
        return options_.write(CodePointSet(kLineEnds).Complement());
      case '\\': {
        RIVULET_ASSIGN_OR_RETURN(const CodePointSet set, ParseEscape(false));
        return options_.write(set);
      }
      case '^':
        return in_.NotServed("^ in the middle");
      case '?':
      case '*':
      case '+':
      case '{':
        return in_.Wrong("a repeat of nothing");
      default:
        return options_.write(CodePointSet::Of(next));
    }
  }

  absl::StatusOr<Expression> ParseGroup(int depth) {
    if (in_.TakeIf("?")) {
      const bool named = in_.TakeIf("P<") || (in_.Peek() == '<' && !in_.rest().starts_with("<=") &&
                                              !in_.rest().starts_with("<!") && in_.TakeIf("<"));
      if (!named && !in_.TakeIf(":")) return in_.NotServed("this kind of group");
      while (named && !in_.at_end() && in_.Take() != '>') {
      }
    }
    RIVULET_ASSIGN_OR_RETURN(Expression inside, ParseChoice(depth + 1));
    if (!in_.TakeIf(")")) return in_.Wrong("a ) is missing");
    return inside;
  }

  absl::StatusOr<CodePointSet> ParseEscape(bool in_class) {
    if (in_.at_end()) return in_.Wrong("\\ at the end");
    const uint32_t letter = in_.Take();
    if (const auto set = ClassOf(letter); set.has_value()) return *set;
    if (letter == 'x' || letter == 'u') {
      RIVULET_ASSIGN_OR_RETURN(const uint32_t code, in_.TakeHexadecimal(letter == 'x' ? 2 : 4));
      return CodePointSet::Of(code);
    }
    if (in_class && letter == 'b') return CodePointSet::Of('\b');
    for (const auto& [written, code] : kControls) {
      if (static_cast<uint32_t>(written) == letter) return CodePointSet::Of(code);
    }
    if (letter < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
      return in_.NotServed(
          absl::StrCat("the escape \\", std::string(1, static_cast<char>(letter))));
    }
    return CodePointSet::Of(letter);
  }

  // A member of a class: a character, or a set such as \d.
  absl::StatusOr<CodePointSet> ParseMember() {
    const uint32_t next = in_.Take();
    if (next == '[' && in_.Peek() == ':') return in_.NotServed("a POSIX class");
    return next == '\\' ? ParseEscape(true) : CodePointSet::Of(next);
  }

  static bool IsCharacter(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  absl::StatusOr<CodePointSet> ParseClass() {
    const bool negated = in_.TakeIf("^");
    CodePointSet all;
    while (in_.Peek() != ']') {
      if (in_.at_end()) return in_.Wrong("a ] is missing");
      RIVULET_ASSIGN_OR_RETURN(CodePointSet member, ParseMember());
      if (in_.Peek() == '-' && !in_.rest().starts_with("-]")) {
        in_.Take();
        if (in_.at_end()) return in_.Wrong("a ] is missing");
        RIVULET_ASSIGN_OR_RETURN(const CodePointSet last, ParseMember());
        if (!IsCharacter(member) || !IsCharacter(last)) {
          return in_.Wrong("a range whose end is a set");
        }
        const uint32_t low = member.ranges()[0].first, high = last.ranges()[0].first;
        if (low > high) return in_.Wrong("a range that is out of order");
        member = CodePointSet::Range(low, high);
      }
      all = all.Union(member);
    }
    in_.Take();
    if (all.empty()) return in_.NotServed("an empty class");
    return negated ? all.Complement() : all;
  }

  PatternReader in_;
  const RegexOptions& options_;
};

}  // namespace

absl::StatusOr<Expression> ParseRegex(std::string_view regex, const RegexOptions& options) {
  if (regex.size() > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a regular expression of ", regex.size(), " bytes: at most ", kLongest));
  }
  if (ValidUtf8Length(regex) != regex.size()) {
    return absl::InvalidArgumentError("the regular expression is not UTF-8");
  }
  return Parser(regex, options).Parse();
}

}  // namespace rivulet
