// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/lexer.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/base/utf8.h"
#include "model_loader/jinja/string_literal.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// \r\n and \r become \n; one newline at the end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool carriage = source[i] == '\r';
    if (carriage && i + 1 < source.size() && source[i + 1] == '\n') ++i;
    result += carriage ? '\n' : source[i];
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool IsBlank(std::string_view text) { return StripLeft(text).empty(); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (place_ < source_.size()) RIVULET_RETURN_IF_ERROR(ReadDataAndTag());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(place_); }
  bool At(std::string_view text) const { return rest().starts_with(text); }

  void Add(TokenKind kind, std::string text) {
    if (kind == TokenKind::kData && text.empty()) return;
    tokens_.push_back({kind, std::move(text), line_});
  }

  void Move(size_t bytes) {
    const auto begin = source_.begin() + static_cast<int64_t>(place_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<int64_t>(bytes), '\n'));
    place_ += bytes;
    if (bytes > 0) line_starting_ = source_[place_ - 1] == '\n';
  }

  void SkipSpace() { Move(rest().size() - StripLeft(rest()).size()); }

  // '-' or '+' at `place`, or 0.
  char SignAt(size_t place) const {
    if (place >= source_.size()) return 0;
    return source_[place] == '-' || source_[place] == '+' ? source_[place] : '\0';
  }

  // The text before a tag: stripped by the tag's sign, or up to the start of its line.
  void AddData(std::string_view text, char sign, bool is_variable) {
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && !is_variable) {
      const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
      const bool starts = line_begin > 0 || line_starting_;
      if (starts && IsBlank(text.substr(line_begin))) text = text.substr(0, line_begin);
    }
    Add(TokenKind::kData, std::string(text));
  }

  size_t NextTag() const {
    for (size_t i = place_; i + 1 < source_.size(); ++i) {
      if (source_[i] != '{') continue;
      const char next = source_[i + 1];
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return std::string_view::npos;
  }

  absl::Status ReadDataAndTag() {
    const size_t tag = NextTag();
    if (tag == std::string_view::npos) {
      Add(TokenKind::kData, std::string(rest()));
      Move(rest().size());
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    AddData(source_.substr(place_, tag - place_), sign, kind == '{');
    Move(tag - place_ + 2 + (sign != 0 ? 1 : 0));
    if (kind == '#') return SkipComment();
    if (kind == '{') return ReadTag(TokenKind::kVariableBegin, TokenKind::kVariableEnd, "}}");
    if (const size_t bytes = WordTag("raw", /*may_trim=*/false); bytes > 0) return ReadRaw(bytes);
    return ReadTag(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  }

  // The bytes of the end of a tag at `place`, with the white space that it drops; 0: it does not
  // end there. `trims`: it drops one newline.
  size_t EndAt(size_t place, std::string_view mark, bool trims, bool plus) const {
    std::string_view text = source_.substr(std::min(place, source_.size()));
    if (text.starts_with("-") && text.substr(1).starts_with(mark)) {
      return text.size() - StripLeft(text.substr(1 + mark.size())).size();
    }
    if (plus && text.starts_with("+") && text.substr(1).starts_with(mark)) return 1 + mark.size();
    if (!text.starts_with(mark)) return 0;
    return mark.size() + (trims && text.substr(mark.size()).starts_with("\n") ? 1 : 0);
  }

  // The bytes of a block that is `word` alone, from behind its opening mark; 0: it is another.
  size_t WordTag(std::string_view word, bool may_trim) const {
    std::string_view text = StripLeft(rest());
    if (!text.starts_with(word)) return 0;
    text = StripLeft(text.substr(word.size()));
    const size_t end = source_.size() - text.size();
    const size_t bytes = EndAt(end, "%}", may_trim, may_trim);
    return bytes == 0 ? 0 : end + bytes - place_;
  }

  absl::Status SkipComment() {
    const int line = line_;
    size_t end = source_.find("#}", place_);
    if (end == std::string_view::npos) return SyntaxError(line, "Missing end of comment tag");
    if (end > place_ && SignAt(end - 1) != 0) --end;
    Move(end - place_ + EndAt(end, "#}", true, true));
    return absl::OkStatus();
  }

  absl::Status ReadRaw(size_t opening) {
    const int line = line_;
    Move(opening);
    const size_t begin = place_;
    const bool starting = line_starting_;
    for (size_t tag = source_.find("{%", begin); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = SignAt(tag + 2);
      Move(tag + 2 + (sign != 0 ? 1 : 0) - place_);
      const size_t bytes = WordTag("endraw", /*may_trim=*/true);
      if (bytes == 0) continue;
      line_starting_ = starting;
      AddData(source_.substr(begin, tag - begin), sign, false);
      Move(bytes);
      return absl::OkStatus();
    }
    return SyntaxError(line, "Missing end of raw directive");
  }

  absl::Status ReadTag(TokenKind begin, TokenKind end, std::string_view mark) {
    const bool is_block = begin == TokenKind::kBlockBegin;
    open_.clear();
    Add(begin, "");
    while (true) {
      const size_t bytes = open_.empty() ? EndAt(place_, mark, is_block, is_block) : 0;
      if (bytes > 0) {
        Add(end, "");
        Move(bytes);
        return absl::OkStatus();
      }
      if (place_ == source_.size()) return SyntaxError(line_, "a tag is not closed");
      RIVULET_RETURN_IF_ERROR(ReadToken());
    }
  }

  absl::Status ReadToken() {
    const char c = source_[place_];
    if (IsSpace(FirstUtf8Character(rest()).code)) {
      SkipSpace();
      return absl::OkStatus();
    }
    if (IsAsciiDigit(c)) return ReadNumber();
    if (IsNameStart(c)) return ReadName();
    if (c == '"' || c == '\'') return ReadString(c);
    return ReadOperator();
  }

  absl::Status ReadName() {
    size_t size = 1;
    while (size < rest().size() && (IsNameStart(rest()[size]) || IsAsciiDigit(rest()[size])))
      ++size;
    Add(TokenKind::kName, std::string(rest().substr(0, size)));
    Move(size);
    return absl::OkStatus();
  }

  // Digits at `place` with single underscores between them; moves behind them.
  std::string Digits(size_t& place, std::string_view allowed = "0123456789") const {
    std::string digits;
    const auto is_digit = [&](size_t i) {
      return i < source_.size() && allowed.find(source_[i]) != std::string_view::npos;
    };
    while (is_digit(place) || (place < source_.size() && source_[place] == '_' && !digits.empty() &&
                               is_digit(place + 1))) {
      if (source_[place] != '_') digits += source_[place];
      ++place;
    }
    return digits;
  }

  std::string Exponent(size_t& place) const {
    size_t end = place;
    if (end >= source_.size() || (source_[end] | 0x20) != 'e') return "";
    std::string text = "e";
    ++end;
    if (SignAt(end) != 0) text += source_[end++];
    const std::string digits = Digits(end);
    if (digits.empty()) return "";
    place = end;
    return text + digits;
  }

  absl::Status ReadNumber() {
    size_t end = place_;
    std::string text;
    TokenKind kind = TokenKind::kInteger;
    const char mark = end + 1 < source_.size() ? static_cast<char>(source_[end + 1] | 0x20) : '\0';
    if (source_[end] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      end += 2;
      const std::string digits = Digits(end, mark == 'x'   ? "0123456789abcdefABCDEF"
                                             : mark == 'o' ? "01234567"
                                                           : "01");
      if (digits.empty()) return SyntaxError(line_, "a number has no digits");
      text = std::string("0") + mark + digits;
    } else {
      text = Digits(end);
      size_t fraction = end + 1;
      if (end < source_.size() && source_[end] == '.') {
        if (const std::string digits = Digits(fraction); !digits.empty()) {
          text += "." + digits;
          end = fraction;
          kind = TokenKind::kFloat;
        }
      }
      if (const std::string exponent = Exponent(end); !exponent.empty()) {
        text += exponent;
        kind = TokenKind::kFloat;
      }
    }
    Add(kind, std::move(text));
    Move(end - place_);
    return absl::OkStatus();
  }

  absl::Status ReadString(char quote) {
    size_t end = place_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return SyntaxError(line_, "a string is not closed");
    auto value = DecodeStringLiteral(source_.substr(place_ + 1, end - place_ - 1));
    if (!value.ok()) return SyntaxError(line_, ToStd(value.status().message()));
    Add(TokenKind::kString, *std::move(value));
    Move(end + 1 - place_);
    return absl::OkStatus();
  }

  absl::Status Balance(char c) {
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(c) != std::string_view::npos) open_ += c;
    const size_t kind = kClosing.find(c);
    if (kind == std::string_view::npos) return absl::OkStatus();
    if (open_.empty() || open_.back() != kOpening[kind]) {
      return SyntaxError(line_, absl::StrCat("unexpected '", std::string(1, c), "'"));
    }
    open_.pop_back();
    return absl::OkStatus();
  }

  absl::Status ReadOperator() {
    constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-*/%~><=.:|,;()[]{}";
    for (const std::string_view name : kLong) {
      if (!At(name)) continue;
      Add(TokenKind::kOperator, std::string(name));
      Move(2);
      return absl::OkStatus();
    }
    const char c = source_[place_];
    if (kShort.find(c) == std::string_view::npos) {
      return SyntaxError(line_,
                         absl::StrCat("unexpected char '", ToAbsl(FirstCharacter(rest())), "'"));
    }
    RIVULET_RETURN_IF_ERROR(Balance(c));
    Add(TokenKind::kOperator, std::string(1, c));
    Move(1);
    return absl::OkStatus();
  }

  const std::string_view source_;
  size_t place_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the tag before ended with a newline
  std::string open_;           // brackets
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status SyntaxError(int line, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", ToAbsl(message)));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kLargestSource) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", source.size(), " bytes, the limit is ", kLargestSource));
  }
  if (ValidUtf8Length(source) != source.size()) {
    return absl::InvalidArgumentError("it is not valid UTF-8");
  }
  const std::string normalized = NormalizeNewlines(source);
  return Lexer(normalized).Run();
}

}  // namespace rivulet::jinja
