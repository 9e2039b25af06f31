// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/pattern_syntax.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/hf_tokenizer/character_class.h"
#include "model_loader/hf_tokenizer/unicode_data.h"

namespace rivulet {
namespace {

struct Options {
  bool ignore_case = false;
  bool dot_is_all = false;  // Ruby's (?m)
};

// With the case ignored, Oniguruma lets one character stand for these two.
constexpr std::string_view kFoldedPairs[] = {"ss", "st", "ff", "fi", "fl"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : cursor_(pattern) {}

  absl::StatusOr<PatternParts> Read() {
    while (!cursor_.done()) RIVULET_RETURN_IF_ERROR(ReadPart());
    if (!groups_.empty()) return cursor_.Wrong("( without )");
    return std::move(result_);
  }

 private:
  struct Group {
    size_t begin;  // its first part
    Options outside;
  };

  absl::Status ReadPart() {
    if (cursor_.Skip("(")) return OpenGroup();
    if (cursor_.Skip(")")) return CloseGroup();
    if (cursor_.Skip("|")) return Between("|");
    if (cursor_.At("*") || cursor_.At("+") || cursor_.At("?")) return ReadRepeat();
    if (cursor_.At("{") && ReadsAsInterval()) return ReadInterval();
    return ReadAtom();
  }

  // What separates or stands between atoms, so that no repeat may follow.
  absl::Status Between(std::string_view text) {
    Emit(text);
    atom_.reset();
    letter_ = 0;
    return absl::OkStatus();
  }

  // An assertion without width. It cannot be repeated.
  absl::Status Anchor(std::string_view text) { return Between(text); }

  absl::Status OpenGroup() {
    Group group = {result_.parts.size(), options_};
    std::string_view opening = "(?:";
    if (cursor_.At("?")) {
      RIVULET_ASSIGN_OR_RETURN(opening, ReadGroupKind());
      if (opening.empty()) return absl::OkStatus();
    }
    groups_.push_back(group);
    return Between(opening);
  }

  // After "(", at "?". Empty: options for the rest of the group, which opened none.
  absl::StatusOr<std::string_view> ReadGroupKind() {
    static constexpr std::string_view kKinds[] = {"?:", "?=", "?!", "?<=", "?<!", "?>"};
    static constexpr std::string_view kOpenings[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (size_t i = 0; i < std::size(kKinds); ++i) {
      if (cursor_.Skip(kKinds[i])) return kOpenings[i];
    }
    const size_t name_end = cursor_.rest().find('>');
    if (cursor_.At("?<") && name_end != std::string_view::npos) {  // a name that nothing may use
      cursor_.Move(name_end + 1);
      return std::string_view("(?:");
    }
    return ReadOptions();
  }

  // "?i:", "?mi-m)" ...
  absl::StatusOr<std::string_view> ReadOptions() {
    const bool starts_group = GroupIsEmpty();
    cursor_.Move(1);
    Options options = options_;
    for (bool on = true; !cursor_.At(":") && !cursor_.At(")");) {
      if (cursor_.Skip("-")) {
        on = false;
      } else if (cursor_.Skip("i")) {
        options.ignore_case = on;
      } else if (cursor_.Skip("m")) {
        options.dot_is_all = on;
      } else {
        return cursor_.Unsupported("this kind of group");
      }
    }
    options_ = options;
    if (cursor_.Skip(":")) return std::string_view("(?:");
    if (!starts_group) return cursor_.Unsupported("an option in the middle of a group");
    cursor_.Move(1);
    return std::string_view();
  }

  bool GroupIsEmpty() const {
    const size_t begin = groups_.empty() ? 0 : groups_.back().begin + 1;
    return result_.parts.size() == begin;
  }

  absl::Status CloseGroup() {
    if (groups_.empty()) return cursor_.Wrong(") without (");
    const Group group = groups_.back();
    groups_.pop_back();
    options_ = group.outside;
    RIVULET_RETURN_IF_ERROR(Between(")"));
    atom_ = group.begin;
    repeated_ = false;
    return absl::OkStatus();
  }

  absl::Status ReadRepeat() {
    std::string repeat(cursor_.rest().substr(0, 1));
    cursor_.Move(1);
    if (!atom_.has_value()) return cursor_.Wrong("a repeat of nothing");
    if (cursor_.Skip("?")) {
      repeat += '?';
    } else if (cursor_.Skip("+")) {
      repeat += '+';
    }
    return Repeat(repeat);
  }

  // A repeat of a repeat needs a group around the first: "+" after it would make it possessive.
  absl::Status Repeat(std::string_view repeat) {
    const size_t begin = *atom_;
    if (repeated_) {
      result_.parts.insert(result_.parts.begin() + static_cast<ptrdiff_t>(begin), {"(?:", 0});
      Emit(")");
    }
    Emit(repeat);
    letter_ = 0;
    repeated_ = true;
    return absl::OkStatus();
  }

  // "{3}", "{1,3}", "{1,}" or "{,3}"; other braces are literals.
  bool ReadsAsInterval() const {
    const std::string_view rest = cursor_.rest();
    size_t i = 1, digits = 0, commas = 0;
    for (; i < rest.size() && (IsDigit(rest[i]) || rest[i] == ','); ++i) {
      ++(rest[i] == ',' ? commas : digits);
    }
    return i < rest.size() && rest[i] == '}' && digits > 0 && commas <= 1;
  }

  // In Ruby's syntax "{1,3}+" repeats the repeat, and "{3}?" makes it optional.
  absl::Status ReadInterval() {
    if (!atom_.has_value()) return cursor_.Wrong("a repeat of nothing");
    const size_t end = cursor_.rest().find('}');
    std::string repeat(cursor_.rest().substr(0, end + 1));
    cursor_.Move(end + 1);
    const bool exact = repeat.find(',') == std::string::npos;
    if (repeat[1] == ',') repeat = absl::StrCat("{0", repeat.substr(1));
    if (!exact && cursor_.Skip("?")) repeat += '?';
    return Repeat(repeat);
  }

  absl::Status ReadAtom() {
    if (cursor_.Skip("^")) return AnchorWithSet("(?:\\A|(?<=", NewLine(), "))");
    if (cursor_.Skip("$")) return AnchorWithSet("(?:\\z|(?=", NewLine(), "))");
    if (cursor_.Skip("."))
      return PutSet(options_.dot_is_all ? Everything() : NewLine().Complement());
    if (cursor_.Skip("[")) {
      RIVULET_ASSIGN_OR_RETURN(const CodePointSet set, ReadClass(cursor_, options_.ignore_case));
      return PutSet(set);
    }
    if (cursor_.Skip("\\")) return ReadBackslash();
    const uint32_t code = cursor_.NextCharacter();
    return PutAtom({CodePointSet::Of(code), code});
  }

  absl::Status ReadBackslash() {
    if (cursor_.Skip("A")) return Anchor("\\A");
    if (cursor_.Skip("z")) return Anchor("\\z");
    if (cursor_.Skip("Z")) return AnchorWithSet("(?=", NewLine(), "?\\z)");
    if (cursor_.Skip("b")) return WordBorder("(?<!", "(?=", "(?<=", "(?!");
    if (cursor_.Skip("B")) return WordBorder("(?<!", "(?!", "(?<=", "(?=");
    RIVULET_ASSIGN_OR_RETURN(const CharacterAtom atom, ReadEscape(cursor_));
    return PutAtom(atom);
  }

  absl::Status AnchorWithSet(std::string_view before, const CodePointSet& set,
                             std::string_view after) {
    Emit(before);
    EmitSet(set);
    return Anchor(after);
  }

  // (a word)(b word)|(c word)(d word)
  absl::Status WordBorder(std::string_view a, std::string_view b, std::string_view c,
                          std::string_view d) {
    const CodePointSet& word = RegexWordCharacters();
    Emit("(?:");
    for (const std::string_view look : {a, b, c, d}) {
      if (look == c) Emit("|");
      Emit(look);
      EmitSet(word);
      Emit(")");
    }
    return Anchor(")");
  }

  absl::Status PutAtom(const CharacterAtom& atom) {
    if (!options_.ignore_case) return PutSet(atom.set);
    RIVULET_RETURN_IF_ERROR(CheckFolding(atom.code));
    RIVULET_ASSIGN_OR_RETURN(const CodePointSet set, WithBothCases(atom.set, cursor_));
    const uint32_t letter = letter_;
    RIVULET_RETURN_IF_ERROR(PutSet(set));
    letter_ = letter;
    return absl::OkStatus();
  }

  absl::Status CheckFolding(std::optional<uint32_t> code) {
    const uint32_t before = std::exchange(letter_, code.has_value() ? LowerCase(*code) : 0);
    for (const std::string_view pair : kFoldedPairs) {
      if (before == static_cast<uint8_t>(pair[0]) && letter_ == static_cast<uint8_t>(pair[1])) {
        return cursor_.Unsupported(absl::StrCat(
            "\"", ToAbsl(pair), "\" with the case ignored, which one letter may equal"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status PutSet(const CodePointSet& set) {
    atom_ = result_.parts.size();
    repeated_ = false;
    letter_ = 0;
    EmitSet(set);
    return absl::OkStatus();
  }

  void Emit(std::string_view text) { result_.parts.push_back({std::string(text), 0}); }
  void EmitSet(const CodePointSet& set) {
    const auto known = std::find(result_.sets.begin(), result_.sets.end(), set);
    result_.parts.push_back({"", static_cast<size_t>(known - result_.sets.begin())});
    if (known == result_.sets.end()) result_.sets.push_back(set);
  }

  static CodePointSet NewLine() { return CodePointSet::Of('\n'); }
  static CodePointSet Everything() { return CodePointSet::Range(0, kLastCodePoint); }

  PatternCursor cursor_;
  PatternParts result_;
  std::vector<Group> groups_;
  Options options_;
  std::optional<size_t> atom_;  // the first part of what a repeat would repeat
  bool repeated_ = false;       // a repeat stands behind it already
  uint32_t letter_ = 0;         // the last literal, in lower case, if the case is ignored
};

}  // namespace

absl::StatusOr<PatternParts> ReadPattern(std::string_view pattern) {
  return PatternReader(pattern).Read();
}

}  // namespace rivulet
