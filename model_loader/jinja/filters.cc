// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Filters of one value: text, numbers, JSON. Those of sequences are in sequence_filters.cc.
#include "model_loader/jinja/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/json_text.h"
#include "model_loader/jinja/runtime.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

using Result = absl::StatusOr<Value>;

bool IsSafe(const Value& value) { return value.text() != nullptr && value.text()->safe; }

// A text filter: str(subject), changed. A result of safe text is safe.
template <typename Change>
Result ChangeText(Runtime& runtime, const Value& subject, const Change& change) {
  RIVULET_ASSIGN_OR_RETURN(const std::string text, runtime.ToString(subject));
  return runtime.NewString(std::string(change(text)), IsSafe(subject));
}

// A text filter that keeps a part of str(subject): `take` makes a view into it.
template <typename Take>
Result TakePart(Runtime& runtime, const Value& subject, const Take& take) {
  RIVULET_ASSIGN_OR_RETURN(const MarkedText text, runtime.ToMarked(subject));
  return runtime.NewText(text.Part(take(std::string_view(text.bytes))), IsSafe(subject));
}

Result Upper(Runtime& runtime, const Value& subject, Arguments&) {
  return ChangeText(runtime, subject, ToUpper);
}
Result Lower(Runtime& runtime, const Value& subject, Arguments&) {
  return ChangeText(runtime, subject, ToLower);
}
Result CapitalizeFirst(Runtime& runtime, const Value& subject, Arguments&) {
  return ChangeText(runtime, subject, Capitalize);
}
Result String(Runtime& runtime, const Value& subject, Arguments&) {
  return TakePart(runtime, subject, [](std::string_view text) { return text; });
}

// Jinja's own: words begin after white space, - ( { [ <, and the rest of a word is lower case.
std::string TitleWords(const std::string& text) {
  std::u32string word;
  std::string result;
  const auto finish = [&] {
    if (word.empty()) return;
    result += ToUpper(Encode(word.substr(0, 1))) + ToLower(Encode(word.substr(1)));
    word.clear();
  };
  for (const char32_t code : Decode(text)) {
    if (IsSpace(code) || std::u32string_view(U"-({[<").find(code) != std::u32string_view::npos) {
      finish();
      AppendUtf8(code, result);
    } else {
      word += code;
    }
  }
  finish();
  return result;
}

Result Title(Runtime& runtime, const Value& subject, Arguments&) {
  return ChangeText(runtime, subject, TitleWords);
}

Result Trim(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Value* const characters = arguments.Given(0);
  if (characters == nullptr || characters->is_none()) {
    return TakePart(runtime, subject,
                    [](std::string_view text) { return StripRight(StripLeft(text)); });
  }
  RIVULET_ASSIGN_OR_RETURN(const std::string set, runtime.ToString(*characters));
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(set.size() * 128));
  return TakePart(runtime, subject,
                  [&](std::string_view text) { return StripRight(StripLeft(text, set), set); });
}

Result Replace(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const MarkedText text, runtime.ToMarked(subject));
  RIVULET_ASSIGN_OR_RETURN(const Value old_value, arguments.Required(0));
  RIVULET_ASSIGN_OR_RETURN(const Value new_value, arguments.Required(1));
  RIVULET_ASSIGN_OR_RETURN(const std::string old_text, runtime.ToString(old_value));
  RIVULET_ASSIGN_OR_RETURN(const MarkedText new_text, runtime.ToMarked(new_value));
  const bool all = arguments.Given(2) == nullptr || arguments.Given(2)->is_none();
  RIVULET_ASSIGN_OR_RETURN(const int64_t most, all ? int64_t{-1} : arguments.Integer(2, -1));
  RIVULET_ASSIGN_OR_RETURN(MarkedText result, ReplaceText(runtime, text, old_text, new_text, most));
  return runtime.NewText(std::move(result));
}

Result Indent(Runtime& runtime, const Value& subject, Arguments& arguments) {
  if (subject.undefined() != nullptr) return UndefinedError(subject);
  if (subject.text() == nullptr) return TypeError("indent is a filter of strings");
  MarkedText indention;
  const Value* const width = arguments.Given(0);
  if (width != nullptr && width->text() != nullptr) {
    indention = *width->text();
  } else {
    RIVULET_ASSIGN_OR_RETURN(const int64_t spaces, arguments.Integer(0, 4));
    RIVULET_RETURN_IF_ERROR(
        runtime.budget().CheckRoom(static_cast<size_t>(std::max<int64_t>(0, spaces))));
    indention.bytes.assign(static_cast<size_t>(std::max<int64_t>(0, spaces)), ' ');
  }
  MarkedText text = *subject.text();
  text.Append("\n");
  const std::vector<std::string_view> lines = SplitLines(text.bytes, false);
  const size_t each = indention.bytes.size() + indention.mark_bytes() + 2 * sizeof(TextRange);
  RIVULET_RETURN_IF_ERROR(runtime.budget().CheckRoom(text.bytes.size() + lines.size() * each));
  const bool blank_too = arguments.Flag(2);
  MarkedText result = arguments.Flag(1) ? indention : MarkedText();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.Append("\n");
    if (i > 0 && (blank_too || !lines[i].empty())) result.Append(indention);
    result.Append(text.Part(lines[i]));
  }
  return runtime.NewText(std::move(result), IsSafe(subject));
}

Result Center(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const std::string text, runtime.ToString(subject));
  RIVULET_ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, 80));
  RIVULET_ASSIGN_OR_RETURN(std::string result, JustifyText(runtime, text, width, " ", '^'));
  return runtime.NewString(std::move(result), IsSafe(subject));
}

Result Truncate(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const MarkedText marked, runtime.ToMarked(subject));
  const std::string_view text = marked.bytes;
  RIVULET_ASSIGN_OR_RETURN(const int64_t length, arguments.Integer(0, 255));
  RIVULET_ASSIGN_OR_RETURN(const std::string end, arguments.String(2, "..."));
  RIVULET_ASSIGN_OR_RETURN(const int64_t leeway, arguments.Integer(3, 5));
  const auto end_length = static_cast<int64_t>(CountCharacters(end));
  if (length < end_length || leeway < 0)
    return TypeError("truncate: a length below that of its end");
  const auto characters = static_cast<int64_t>(CountCharacters(text));
  if (characters - leeway <= length) return runtime.NewText(marked);
  std::string_view kept =
      text.substr(0, ByteOffset(text, static_cast<size_t>(length - end_length)));
  if (!arguments.Flag(1)) kept = kept.substr(0, kept.rfind(' '));
  MarkedText result = marked.Part(kept);
  const Value* const given_end = arguments.Given(2);
  result.Append(MarkedText::Of(end, given_end != nullptr && given_end->has_plain()));
  return runtime.NewText(std::move(result));
}

Result Escape(Runtime& runtime, const Value& subject, Arguments&) {
  if (IsSafe(subject)) return subject;
  RIVULET_ASSIGN_OR_RETURN(const std::string text, runtime.ToString(subject));
  return runtime.NewString(EscapeHtml(text), true);
}

Result ForceEscape(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(const std::string text, runtime.ToString(subject));
  return runtime.NewString(EscapeHtml(text), true);
}

Result Safe(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(MarkedText text, runtime.ToMarked(subject));
  return runtime.NewText(std::move(text), true);
}

Result Format(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const MarkedText text, runtime.ToMarked(subject));
  GivenArguments& given = arguments.rest();
  if (!given.named.empty() && !given.positional.empty()) {
    return TypeError("can't handle positional and keyword arguments at the same time");
  }
  Value values;
  if (given.named.empty()) {
    RIVULET_ASSIGN_OR_RETURN(
        values, runtime.NewSequence(std::move(given.positional), SequenceKind::kTuple));
  } else {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : given.named) entries.emplace_back(Value::String(name), value);
    RIVULET_ASSIGN_OR_RETURN(values, runtime.NewMapping(std::move(entries)));
  }
  RIVULET_ASSIGN_OR_RETURN(MarkedText result, FormatPercent(runtime, text, values));
  return runtime.NewText(std::move(result));
}

Result UrlEncode(Runtime& runtime, const Value& subject, Arguments&) {
  constexpr std::string_view kKept = "_.-~/";
  if (subject.mapping() != nullptr || subject.sequence() != nullptr) {
    return TypeError("this server provides urlencode for text only");
  }
  RIVULET_ASSIGN_OR_RETURN(const std::string text, runtime.ToString(subject));
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    constexpr char kHex[] = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    if (plain || kKept.find(c) != std::string_view::npos) {
      result += c;
    } else {
      result += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return runtime.NewString(std::move(result));
}

Result Default(Runtime&, const Value& subject, Arguments& arguments) {
  const bool replaced = subject.undefined() != nullptr || (arguments.Flag(1) && !IsTrue(subject));
  if (!replaced) return subject;
  return arguments.Given(0) == nullptr ? Value::String("") : *arguments.Given(0);
}

Result Attribute(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const std::string name, arguments.String(0, ""));
  if (subject.undefined() != nullptr) return UndefinedError(subject);
  // An item is no attribute, even where object.name would find it.
  if (subject.mapping() != nullptr && FindMethod(subject, name) == nullptr) {
    return Runtime::NewUndefined(absl::StrCat("'dict object' has no attribute '", name, "'"));
  }
  return runtime.GetAttribute(subject, name);
}

// ---- Numbers

Result Absolute(Runtime& runtime, const Value& subject, Arguments&) {
  if (subject.real() != nullptr) return Value(std::fabs(*subject.real()));
  if (subject.undefined() != nullptr) return UndefinedError(subject);
  if (!subject.is_number()) return TypeError("bad operand type for abs()");
  RIVULET_ASSIGN_OR_RETURN(const bool negative, runtime.Less(subject, Value(int64_t{0})));
  return runtime.Compute(negative ? "-" : "+", Value(int64_t{0}), subject);
}

Result Integer(Runtime& runtime, const Value& subject, Arguments& arguments) {
  if (subject.undefined() != nullptr) return UndefinedError(subject);
  const Value otherwise = arguments.Given(0) == nullptr ? Value(int64_t{0}) : *arguments.Given(0);
  RIVULET_ASSIGN_OR_RETURN(const int64_t base, arguments.Integer(1, 10));
  return ToInteger(runtime, subject, base).value_or(otherwise);
}

Result Float(Runtime&, const Value& subject, Arguments& arguments) {
  if (subject.undefined() != nullptr) return UndefinedError(subject);
  const std::optional<double> number = ToFloat(subject);
  if (number.has_value()) return Value(*number);
  return arguments.Given(0) == nullptr ? Value(0.0) : *arguments.Given(0);
}

// Python's round is exact: it rounds the decimal digits of the number, and a tie to even.
double RoundDecimal(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::isinf(scale) ? 0 : std::nearbyint(value / scale) * scale;
  }
  std::array<char, 700> digits;
  std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), value);
  return std::strtod(digits.data(), nullptr);
}

Result Round(Runtime&, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t precision, arguments.Integer(0, 0));
  RIVULET_ASSIGN_OR_RETURN(const std::string method, arguments.String(1, "common"));
  if (subject.undefined() != nullptr) return UndefinedError(subject);
  if (!subject.is_number()) return TypeError("round is a filter of numbers");
  if (method == "common") {
    if (subject.real() != nullptr) return Value(RoundDecimal(*subject.real(), precision));
    if (precision >= 0 && subject.integer() != nullptr) return subject;
    return Value(static_cast<int64_t>(RoundDecimal(AsDouble(subject), precision)));
  }
  if (method != "ceil" && method != "floor") {
    return TypeError("method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = AsDouble(subject) * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// ---- JSON

absl::Status ReadSeparators(Runtime& runtime, const Value& value, JsonStyle& style) {
  if (value.is_none()) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const std::vector<Value> parts, runtime.Iterate(value));
  if (parts.size() != 2) return TypeError("tojson: separators are two strings");
  RIVULET_ASSIGN_OR_RETURN(style.between_items, runtime.ToString(parts[0]));
  RIVULET_ASSIGN_OR_RETURN(style.after_key, runtime.ToString(parts[1]));
  return absl::OkStatus();
}

absl::Status ReadIndent(Runtime& runtime, const Value& value, JsonStyle& style) {
  if (value.is_none()) return absl::OkStatus();
  style.between_items = std::string(1, ',');
  if (value.text() != nullptr) {
    style.indent = value.text()->bytes;
    return absl::OkStatus();
  }
  const bool whole = value.integer() != nullptr || value.boolean() != nullptr;
  if (!whole) return TypeError("tojson: indent is an integer or a string");
  const auto spaces = static_cast<size_t>(std::max(0.0, AsDouble(value)));
  RIVULET_RETURN_IF_ERROR(runtime.budget().CheckRoom(spaces));
  style.indent = std::string(spaces, ' ');
  return absl::OkStatus();
}

Result ToJson(Runtime& runtime, const Value& subject, Arguments& arguments) {
  JsonStyle style;
  style.only_ascii = arguments.Flag(0);
  if (const Value* const indent = arguments.Given(1)) {
    RIVULET_RETURN_IF_ERROR(ReadIndent(runtime, *indent, style));
  }
  if (const Value* const separators = arguments.Given(2)) {
    RIVULET_RETURN_IF_ERROR(ReadSeparators(runtime, *separators, style));
  }
  style.sort_keys = arguments.Flag(3);
  std::string text;
  RIVULET_RETURN_IF_ERROR(AppendJson(subject, style, runtime.budget().limits().memory / 4, text));
  return runtime.NewString(std::move(text));
}

constexpr Builtin kFilters[] = {
    {"abs", "", Absolute},
    {"attr", "name", Attribute},
    {"capitalize", "", CapitalizeFirst},
    {"center", "width", Center},
    {"d", "default_value boolean", Default},
    {"default", "default_value boolean", Default},
    {"e", "", Escape},
    {"escape", "", Escape},
    {"float", "default", Float},
    {"forceescape", "", ForceEscape},
    {"format", "*", Format},
    {"indent", "width first blank", Indent},
    {"int", "default base", Integer},
    {"lower", "", Lower},
    {"replace", "old new count", Replace},
    {"round", "precision method", Round},
    {"safe", "", Safe},
    {"string", "", String},
    {"title", "", Title},
    {"tojson", "ensure_ascii indent separators sort_keys", ToJson},
    {"trim", "chars", Trim},
    {"truncate", "length killwords end leeway", Truncate},
    {"upper", "", Upper},
    {"urlencode", "", UrlEncode},
};

}  // namespace

const Builtin* FindIn(std::span<const Builtin> builtins, std::string_view name) {
  for (const Builtin& builtin : builtins) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

const Builtin* FindFilter(std::string_view name) {
  const Builtin* const found = FindIn(kFilters, name);
  return found != nullptr ? found : FindSequenceFilter(name);
}

bool IsUnsupportedFilter(std::string_view name) {
  constexpr std::string_view kNames[] = {"filesizeformat", "pprint",    "random",   "striptags",
                                         "urlize",         "wordcount", "wordwrap", "xmlattr"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace rivulet::jinja
