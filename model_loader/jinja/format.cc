// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// "%s" % value and "{}".format(value). Of str.format: fields by position and by name, !s and !r,
// and the format specification. Attributes and items of a field ("{0.name}") are refused, as
// templates have no use for them.
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/base/utf8.h"
#include "model_loader/jinja/runtime.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

constexpr int kLargestWidth = 1 << 20;
constexpr int kLargestPrecision = 1000;

// Of both ways of formatting.
struct Specification {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  bool comma = false;
  int width = 0;
  int precision = -1;
  char type = 0;
};

absl::Status BadFormat(std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("a format is not valid: ", ToAbsl(why)));
}

// Digits at `place`, at most `most`.
absl::StatusOr<int> ReadNumber(std::string_view text, size_t& place, int most) {
  int number = 0;
  for (; place < text.size() && text[place] >= '0' && text[place] <= '9'; ++place) {
    number = number * 10 + (text[place] - '0');
    if (number > most) return BadFormat(absl::StrCat("a width or precision over ", most));
  }
  return number;
}

std::string Pad(std::string text, const Specification& spec, char default_align) {
  const size_t characters = CountCharacters(text);
  if (characters >= static_cast<size_t>(spec.width)) return text;
  const size_t missing = static_cast<size_t>(spec.width) - characters;
  const char align = spec.align != 0 ? spec.align : default_align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (size_t i = 0; i < left; ++i) before += spec.fill;
  for (size_t i = left; i < missing; ++i) after += spec.fill;
  const bool signed_text = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
  if (align == '=' && signed_text) return text[0] + before + text.substr(1);
  return before + text + after;
}

std::string WithCommas(std::string digits) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t place = end; place > 3; place -= 3) digits.insert(place - 3, 1, ',');
  return digits;
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string WholeText(int64_t value, const Specification& spec) {
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const unsigned base = spec.type == 'x' || spec.type == 'X' ? 16
                        : spec.type == 'o'                   ? 8
                        : spec.type == 'b'                   ? 2
                                                             : 10;
  const char* const letters = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), letters[magnitude % base]);
    magnitude /= base;
  } while (magnitude > 0);
  if (spec.precision > static_cast<int>(digits.size())) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.comma) digits = WithCommas(digits);
  if (spec.alternate && base != 10) digits = std::string("0") + spec.type + digits;
  return SignOf(value < 0, spec.sign) + digits;
}

std::string RealText(double value, const Specification& spec) {
  const char kind = spec.type == '%' ? 'f' : spec.type;
  const char format[] = {'%', '.', '*', kind, 0};
  const char alternate[] = {'%', '#', '.', '*', kind, 0};
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const double magnitude = std::fabs(spec.type == '%' ? value * 100 : value);
  const char* const used = spec.alternate ? alternate : format;
  const int size = std::snprintf(nullptr, 0, used, precision, magnitude);
  std::string text(static_cast<size_t>(size) + 1, 0);
  std::snprintf(text.data(), text.size(), used, precision, magnitude);
  text.pop_back();
  if (spec.comma) text = WithCommas(text);
  return SignOf(std::signbit(value) && !std::isnan(value), spec.sign) + text +
         (spec.type == '%' ? "%" : "");
}

// The integer that a %d or {:d} writes.
absl::StatusOr<int64_t> WholeOf(const Value& value, bool allow_real) {
  if (value.integer() != nullptr) return *value.integer();
  if (value.boolean() != nullptr) return *value.boolean() ? 1 : 0;
  if (allow_real && value.real() != nullptr && std::fabs(*value.real()) < 9e18) {
    return static_cast<int64_t>(*value.real());
  }
  return BadFormat(absl::StrCat("an integer is needed, not ", ToAbsl(value.type_name())));
}

// What a field shows of a value: its own marks if it shows all of a string, or else plain if the
// value has plain bytes.
MarkedText MarkAs(const Value& value, std::string shown) {
  const Text* const held = value.text();
  if (held != nullptr && held->bytes == shown) return *held;
  return MarkedText::Of(std::move(shown), value.has_plain());
}

// ---- "%s" % values

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const MarkedText& format, const Value& values)
      : runtime_(runtime), marked_(format), format_(format.bytes), values_(values) {
    const Sequence* const held = values.sequence();
    if (held != nullptr && held->kind == SequenceKind::kTuple) tuple_ = held;
  }

  absl::StatusOr<MarkedText> Run() {
    while (place_ < format_.size()) {
      const size_t field = std::min(format_.find('%', place_), format_.size());
      result_.Append(marked_.Part(format_.substr(place_, field - place_)));
      place_ = field + 1;
      if (field == format_.size()) break;
      RIVULET_RETURN_IF_ERROR(Field());
      RIVULET_RETURN_IF_ERROR(
          runtime_.budget().CheckRoom(result_.bytes.size() + result_.mark_bytes()));
    }
    const bool all = tuple_ != nullptr ? next_ == tuple_->items.size()
                                       : next_ > 0 || values_.mapping() != nullptr;
    if (all) return result_;
    return TypeError("not all arguments converted during string formatting");
  }

 private:
  absl::StatusOr<Value> TakeValue() {
    if (tuple_ == nullptr && next_++ == 0) return values_;
    if (tuple_ != nullptr && next_ < tuple_->items.size()) return tuple_->items[next_++];
    return TypeError("not enough arguments for format string");
  }

  absl::StatusOr<Value> ReadKey() {
    const size_t end = format_.find(')', place_);
    if (end == std::string_view::npos) return BadFormat("incomplete format key");
    const std::string_view key = format_.substr(place_ + 1, end - place_ - 1);
    place_ = end + 1;
    if (values_.mapping() == nullptr) return TypeError("format requires a mapping");
    const Value* const found = FindEntry(*values_.mapping(), key);
    if (found != nullptr) return *found;
    return absl::InvalidArgumentError(absl::StrCat("there is no '", ToAbsl(key), "' to format"));
  }

  absl::Status ReadSpecification(Specification& spec) {
    for (; place_ < format_.size(); ++place_) {
      const char flag = format_[place_];
      if (flag == '-')
        spec.align = '<';
      else if (flag == '+' || (flag == ' ' && spec.sign == '-'))
        spec.sign = flag;
      else if (flag == '#')
        spec.alternate = true;
      else if (flag == '0')
        zero_ = true;
      else
        break;
    }
    RIVULET_ASSIGN_OR_RETURN(spec.width, ReadNumber(format_, place_, kLargestWidth));
    if (place_ < format_.size() && format_[place_] == '.') {
      ++place_;
      RIVULET_ASSIGN_OR_RETURN(spec.precision, ReadNumber(format_, place_, kLargestPrecision));
    }
    if (place_ == format_.size()) return BadFormat("incomplete format");
    spec.type = format_[place_++];
    return absl::OkStatus();
  }

  absl::Status Field() {
    zero_ = false;
    std::optional<Value> value;
    if (place_ < format_.size() && format_[place_] == '(') {
      RIVULET_ASSIGN_OR_RETURN(value, ReadKey());
    }
    Specification spec;
    RIVULET_RETURN_IF_ERROR(ReadSpecification(spec));
    if (spec.type == '%') {
      result_.Append(marked_.Part(format_.substr(place_ - 1, 1)));
      return absl::OkStatus();
    }
    if (!value.has_value()) {
      RIVULET_ASSIGN_OR_RETURN(value, TakeValue());
    }
    RIVULET_ASSIGN_OR_RETURN(std::string text, Convert(*value, spec));
    result_.Append(MarkAs(*value, Pad(std::move(text), spec, '>')));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Convert(const Value& value, Specification& spec) {
    if (spec.type == 's' || spec.type == 'r') {
      RIVULET_ASSIGN_OR_RETURN(std::string text, spec.type == 's'
                                                     ? runtime_.ToString(value)
                                                     : runtime_.ToRepresentation(value));
      if (spec.precision < 0) return text;
      return text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
    }
    if (zero_ && spec.align != '<') {
      spec.fill = std::string(1, '0');
      spec.align = '=';
    }
    if (std::string_view("diu").find(spec.type) != std::string_view::npos) spec.type = 'd';
    if (std::string_view("doxX").find(spec.type) != std::string_view::npos) {
      RIVULET_ASSIGN_OR_RETURN(const int64_t whole, WholeOf(value, spec.type == 'd'));
      return WholeText(whole, spec);
    }
    if (std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) {
      return BadFormat(absl::StrCat("unsupported character '", std::string(1, spec.type), "'"));
    }
    if (!value.is_number()) return TypeError("a number is required to format");
    return RealText(AsDouble(value), spec);
  }

  Runtime& runtime_;
  const MarkedText& marked_;
  const std::string_view format_;  // its bytes
  const Value& values_;
  const Sequence* tuple_ = nullptr;  // null: one value
  size_t next_ = 0;
  size_t place_ = 0;
  bool zero_ = false;
  MarkedText result_;
};

// ---- "{}".format(values)

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

absl::StatusOr<Specification> ParseSpecification(std::string_view text) {
  Specification spec;
  size_t place = 0;
  if (!text.empty()) {
    const size_t first = FirstUtf8Character(text).bytes;
    if (first < text.size() && IsAlign(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      place = first + 1;
    } else if (IsAlign(text[0])) {
      spec.align = text[0];
      place = 1;
    }
  }
  const auto take = [&](std::string_view any) {
    const bool found = place < text.size() && any.find(text[place]) != std::string_view::npos;
    return found ? text[place++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0 && spec.align == 0) {
    spec.fill = std::string(1, '0');
    spec.align = '=';
  }
  RIVULET_ASSIGN_OR_RETURN(spec.width, ReadNumber(text, place, kLargestWidth));
  spec.comma = take(",") != 0;
  if (take(".") != 0) {
    RIVULET_ASSIGN_OR_RETURN(spec.precision, ReadNumber(text, place, kLargestPrecision));
  }
  spec.type = take("sdfFeEgGxXob%");
  if (place != text.size()) return BadFormat(absl::StrCat("'", ToAbsl(text), "'"));
  return spec;
}

absl::StatusOr<std::string> FormatWith(Runtime& runtime, const Value& value,
                                       std::string_view text) {
  RIVULET_ASSIGN_OR_RETURN(Specification spec, ParseSpecification(text));
  const bool whole = value.integer() != nullptr || (value.boolean() != nullptr && spec.type != 0);
  if (whole && (spec.type == 0 || std::string_view("dxXob").find(spec.type) != std::string::npos)) {
    if (spec.precision >= 0) return BadFormat("precision not allowed in integer format");
    RIVULET_ASSIGN_OR_RETURN(const int64_t number, WholeOf(value, false));
    return Pad(WholeText(number, spec), spec, '>');
  }
  if (value.is_number() && std::string_view("fFeEgG%").find(spec.type) < 7) {
    return Pad(RealText(AsDouble(value), spec), spec, '>');
  }
  if (spec.type != 0 && spec.type != 's') {
    return BadFormat(absl::StrCat("unknown code '", std::string(1, spec.type),
                                  "' for a value of type ", ToAbsl(value.type_name())));
  }
  if (value.real() != nullptr && !text.empty() && (spec.precision >= 0 || spec.comma)) {
    return BadFormat("give the type of a float: f, e or g");
  }
  RIVULET_ASSIGN_OR_RETURN(std::string shown, runtime.ToString(value));
  if (spec.precision >= 0) shown.resize(ByteOffset(shown, static_cast<size_t>(spec.precision)));
  return Pad(std::move(shown), spec, value.is_number() ? '>' : '<');
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const MarkedText& format, const GivenArguments& arguments)
      : runtime_(runtime), marked_(format), format_(format.bytes), arguments_(arguments) {}

  absl::StatusOr<MarkedText> Run() {
    for (size_t place = 0; place < format_.size(); ++place) {
      const size_t brace = std::min(format_.find_first_of("{}", place), format_.size());
      result_.Append(marked_.Part(format_.substr(place, brace - place)));
      place = brace;
      if (brace == format_.size()) break;
      const char c = format_[place];
      const bool doubled = place + 1 < format_.size() && format_[place + 1] == c;
      if (doubled) {
        result_.Append(marked_.Part(format_.substr(place++, 1)));
        continue;
      }
      const size_t end = format_.find_first_of("{}", place + 1);
      if (c == '}' || end == std::string_view::npos || format_[end] == '{') {
        return BadFormat(c == '}' ? "single '}'" : "a field is not closed, or is nested");
      }
      RIVULET_RETURN_IF_ERROR(Field(format_.substr(place + 1, end - place - 1)));
      RIVULET_RETURN_IF_ERROR(
          runtime_.budget().CheckRoom(result_.bytes.size() + result_.mark_bytes()));
      place = end;
    }
    return result_;
  }

 private:
  absl::StatusOr<Value> Find(std::string_view name) {
    size_t place = 0;
    RIVULET_ASSIGN_OR_RETURN(const int index, ReadNumber(name, place, kLargestWidth));
    if (place == name.size()) {
      const size_t position = name.empty() ? next_++ : static_cast<size_t>(index);
      if (position < arguments_.positional.size()) return arguments_.positional[position];
    }
    for (const auto& [other, value] : arguments_.named) {
      if (other == name) return value;
    }
    return BadFormat(absl::StrCat("there is no value for the field '", ToAbsl(name), "'"));
  }

  absl::Status Field(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    if (conversion != 0 && conversion != 'r' && conversion != 's') {
      return BadFormat("only the conversions !r and !s are known");
    }
    RIVULET_ASSIGN_OR_RETURN(Value value, Find(name));
    if (conversion != 0) {
      RIVULET_ASSIGN_OR_RETURN(std::string text, conversion == 'r'
                                                     ? runtime_.ToRepresentation(value)
                                                     : runtime_.ToString(value));
      value = Value::Marked(MarkAs(value, std::move(text)));
    }
    const std::string_view spec = field.substr(std::min(colon + 1, field.size()));
    RIVULET_ASSIGN_OR_RETURN(std::string text, FormatWith(runtime_, value, spec));
    result_.Append(MarkAs(value, std::move(text)));
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const MarkedText& marked_;
  const std::string_view format_;  // its bytes
  const GivenArguments& arguments_;
  size_t next_ = 0;
  MarkedText result_;
};

}  // namespace

absl::StatusOr<MarkedText> FormatPercent(Runtime& runtime, const MarkedText& format,
                                         const Value& values) {
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(format.bytes.size()));
  return PercentFormatter(runtime, format, values).Run();
}

absl::StatusOr<MarkedText> FormatBraces(Runtime& runtime, const MarkedText& format,
                                        const GivenArguments& arguments) {
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(format.bytes.size()));
  return BraceFormatter(runtime, format, arguments).Run();
}

}  // namespace rivulet::jinja
