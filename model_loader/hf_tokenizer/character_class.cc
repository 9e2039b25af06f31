// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/character_class.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/hf_tokenizer/unicode_data.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

constexpr int kDeepestClass = 16;

struct NamedCharacter {
  char letter;
  uint32_t code;
};
constexpr NamedCharacter kNamedCharacters[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'f', '\f'},
                                               {'v', '\v'}, {'a', '\a'}, {'e', 0x1B}};

bool IsAsciiLetterOrDigit(uint32_t code) {
  return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') ||
         (code >= 'a' && code <= 'z');
}

CharacterAtom Literal(uint32_t code) { return {CodePointSet::Of(code), code}; }

CodePointSet HexDigits() {
  static constexpr CodeRange kRanges[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  return CodePointSet(kRanges);
}

// \s and its kind, by the lower-case letter.
std::optional<CodePointSet> Shorthand(char letter) {
  switch (letter) {
    case 's':
      return WhitespaceCharacters();
    case 'd':
      return UnicodeProperty("Nd");
    case 'w':
      return RegexWordCharacters();
    case 'h':
      return HexDigits();
    default:
      return std::nullopt;
  }
}

// After \p or \P.
absl::StatusOr<CharacterAtom> ReadProperty(PatternCursor& cursor, bool negated) {
  if (!cursor.Skip("{")) return cursor.Wrong("\\p without {");
  if (cursor.Skip("^")) negated = !negated;
  const size_t end = cursor.rest().find('}');
  if (end == std::string_view::npos) return cursor.Wrong("\\p{ without }");
  const std::string_view name = cursor.rest().substr(0, end);
  const std::optional<CodePointSet> set = UnicodeProperty(name);
  if (!set.has_value()) {
    return cursor.Unsupported(absl::StrCat("the property \\p{", ToAbsl(name), "}"));
  }
  cursor.Move(end + 1);
  return CharacterAtom{negated ? set->Complement() : *set, std::nullopt};
}

absl::StatusOr<CharacterAtom> ReadHex(PatternCursor& cursor, size_t most_digits) {
  const bool braces = cursor.Skip("{");
  const std::string_view rest = cursor.rest();
  size_t digits = 0;
  while (digits < rest.size() && digits < (braces ? 8 : most_digits) &&
         absl::ascii_isxdigit(static_cast<unsigned char>(rest[digits]))) {
    ++digits;
  }
  uint32_t code = 0;
  if (!absl::SimpleHexAtoi(ToAbsl(rest.substr(0, digits)), &code) || code > kLastCodePoint) {
    return cursor.Wrong("a hexadecimal escape that is no character");
  }
  cursor.Move(digits);
  if (braces && !cursor.Skip("}")) return cursor.Wrong("\\x{ without }");
  return Literal(code);
}

CodePointSet OneOrRange(uint32_t first, uint32_t last) { return CodePointSet::Range(first, last); }

class ClassReader {
 public:
  ClassReader(PatternCursor& cursor, bool ignore_case)
      : cursor_(cursor), ignore_case_(ignore_case) {}

  // After "[", to behind "]".
  absl::StatusOr<CodePointSet> Read() {
    if (++depth_ > kDeepestClass) return cursor_.Unsupported("classes nested this deep");
    const bool negated = cursor_.Skip("^");
    CodePointSet all = CodePointSet::Range(0, kLastCodePoint), part;
    // A ] right at the start would be a literal in Oniguruma.
    if (cursor_.At("]")) return cursor_.Unsupported("an empty class, or ] at its start");
    while (!cursor_.Skip("]")) {
      if (cursor_.done()) return cursor_.Wrong("[ without ]");
      if (cursor_.Skip("&&")) {
        all = all.Intersection(std::exchange(part, CodePointSet()));
        continue;
      }
      RIVULET_ASSIGN_OR_RETURN(const CodePointSet item, ReadItem());
      part = part.Union(item);
    }
    all = all.Intersection(part);
    --depth_;
    if (ignore_case_) {
      RIVULET_ASSIGN_OR_RETURN(all, WithBothCases(all, cursor_));
    }
    return negated ? all.Complement() : all;
  }

 private:
  // One character, a range, an escape, or a class in the class.
  absl::StatusOr<CodePointSet> ReadItem() {
    if (cursor_.At("[:")) return cursor_.Unsupported("POSIX brackets");
    if (cursor_.Skip("[")) return Read();
    RIVULET_ASSIGN_OR_RETURN(const CharacterAtom first, ReadAtom());
    const std::string_view rest = cursor_.rest();
    const bool range = rest.size() > 1 && rest[0] == '-' && rest[1] != ']';
    if (!range) return first.set;
    if (!first.code.has_value()) return cursor_.Unsupported("a range that begins with a set");
    cursor_.Move(1);
    if (cursor_.At("[") || cursor_.At("&&")) return cursor_.Unsupported("- before [ or &&");
    RIVULET_ASSIGN_OR_RETURN(const CharacterAtom last, ReadAtom());
    if (!last.code.has_value() || *last.code < *first.code) {
      return cursor_.Wrong("a range that does not go upwards");
    }
    return OneOrRange(*first.code, *last.code);
  }

  absl::StatusOr<CharacterAtom> ReadAtom() {
    if (cursor_.Skip("\\b")) return Literal('\b');
    if (cursor_.Skip("\\")) return ReadEscape(cursor_);
    return Literal(cursor_.NextCharacter());
  }

  PatternCursor& cursor_;
  const bool ignore_case_;
  int depth_ = 0;
};

// Letters of ASCII, and the two others that are equal to one of them if case is ignored.
struct CasePair {
  uint32_t a, b;
};
constexpr CasePair kOddCases[] = {{'s', 0x17F}, {'k', 0x212A}};

}  // namespace

bool PatternCursor::Skip(std::string_view text) {
  if (!At(text)) return false;
  place_ += text.size();
  return true;
}

uint32_t PatternCursor::NextCharacter() { return NextCodePoint(pattern_, &place_); }

absl::Status PatternCursor::Unsupported(std::string_view what) const {
  return absl::UnimplementedError(
      absl::StrCat(ToAbsl(what), " (at byte ", place_, ") is not supported"));
}

absl::Status PatternCursor::Wrong(std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("it has ", ToAbsl(what), " (at byte ", place_, ")"));
}

absl::StatusOr<CharacterAtom> ReadEscape(PatternCursor& cursor) {
  if (cursor.done()) return cursor.Wrong("a backslash at its end");
  const uint32_t code = cursor.NextCharacter();
  if (!IsAsciiLetterOrDigit(code)) return Literal(code);
  const char letter = static_cast<char>(code);
  for (const NamedCharacter& named : kNamedCharacters) {
    if (named.letter == letter) return Literal(named.code);
  }
  if (letter == 'p' || letter == 'P') return ReadProperty(cursor, letter == 'P');
  if (letter == 'x') return ReadHex(cursor, 2);
  if (letter == 'u') return ReadHex(cursor, 4);
  const bool upper = letter >= 'A' && letter <= 'Z';
  const std::optional<CodePointSet> set =
      Shorthand(upper ? static_cast<char>(letter + 32) : letter);
  if (set.has_value()) return CharacterAtom{upper ? set->Complement() : *set, std::nullopt};
  return cursor.Unsupported(absl::StrCat("the escape \\", absl::string_view(&letter, 1)));
}

absl::StatusOr<CodePointSet> ReadClass(PatternCursor& cursor, bool ignore_case) {
  return ClassReader(cursor, ignore_case).Read();
}

absl::StatusOr<CodePointSet> WithBothCases(const CodePointSet& set, const PatternCursor& cursor) {
  std::vector<CodeRange> added;
  for (uint32_t lower = 'a'; lower <= 'z'; ++lower) {
    if (set.Contains(lower)) added.push_back({lower - 32, lower - 32});
    if (set.Contains(lower - 32)) added.push_back({lower, lower});
  }
  for (const CasePair& pair : kOddCases) {
    if (set.Contains(pair.a) || set.Contains(pair.a - 32)) added.push_back({pair.b, pair.b});
    if (!set.Contains(pair.b)) continue;
    added.push_back({pair.a, pair.a});
    added.push_back({pair.a - 32, pair.a - 32});
  }
  // What has all letters has their other cases.
  static const CodePointSet* const cased = new CodePointSet(
      UnicodeProperty("Lu")->Union(*UnicodeProperty("Ll")).Union(*UnicodeProperty("Lt")));
  const CodePointSet others = cased->Intersection(CodePointSet::Range(0x80, kLastCodePoint))
                                  .Intersection(CodePointSet::Of(0x17F).Complement())
                                  .Intersection(CodePointSet::Of(0x212A).Complement());
  const CodePointSet found = set.Intersection(others);
  if (!found.empty() && found != others) {
    return cursor.Unsupported("ignoring the case of letters outside of ASCII");
  }
  return set.Union(CodePointSet(added));
}

}  // namespace rivulet
