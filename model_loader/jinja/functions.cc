// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The functions that every template can call, and the conversions of numbers.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/filters.h"
#include "model_loader/jinja/runtime.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// The largest that Jinja's sandbox allows.
constexpr int64_t kLongestRange = 100'000;

Result Range(Runtime& runtime, const Value&, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value first, arguments.Required(0));
  if (first.undefined() != nullptr) return UndefinedError(first);
  RIVULET_ASSIGN_OR_RETURN(int64_t begin, arguments.Integer(0, 0));
  RIVULET_ASSIGN_OR_RETURN(int64_t end, arguments.Integer(1, 0));
  RIVULET_ASSIGN_OR_RETURN(const int64_t step, arguments.Integer(2, 1));
  if (arguments.Given(1) == nullptr) end = std::exchange(begin, 0);
  if (step == 0) return absl::InvalidArgumentError("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (__int128 i = begin; step > 0 ? i < end : i > end; i += step) {
    if (static_cast<int64_t>(items.size()) == kLongestRange) {
      return absl::InvalidArgumentError(
          absl::StrCat("Range too big. The sandbox blocks ranges larger than ", kLongestRange));
    }
    items.emplace_back(static_cast<int64_t>(i));
  }
  std::string shown = absl::StrCat("range(", begin, ", ", end);
  if (step != 1) absl::StrAppend(&shown, ", ", step);
  return runtime.NewSequence(std::move(items), SequenceKind::kRange, shown + ")");
}

// What dict() and namespace() take: a mapping or pairs, then names.
absl::StatusOr<std::vector<std::pair<Value, Value>>> ReadEntries(Runtime& runtime,
                                                                 GivenArguments& given) {
  std::vector<std::pair<Value, Value>> entries;
  if (given.positional.size() > 1) return TypeError("dict expected at most 1 argument");
  if (given.positional.size() == 1) {
    const Value& from = given.positional[0];
    if (from.mapping() != nullptr) {
      entries = from.mapping()->entries;
    } else {
      RIVULET_ASSIGN_OR_RETURN(const std::vector<Value> pairs, runtime.Iterate(from));
      for (const Value& pair : pairs) {
        RIVULET_ASSIGN_OR_RETURN(const std::vector<Value> parts, runtime.Iterate(pair));
        if (parts.size() != 2) return TypeError("dict needs pairs of a key and a value");
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (auto& [name, value] : given.named) {
    entries.emplace_back(Value::Marked(MarkedText::Of(name, given.plain_names)), std::move(value));
  }
  return entries;
}

Result Dict(Runtime& runtime, const Value&, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(auto entries, ReadEntries(runtime, arguments.rest()));
  return runtime.NewMapping(std::move(entries));
}

Result MakeNamespace(Runtime& runtime, const Value&, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(auto entries, ReadEntries(runtime, arguments.rest()));
  std::vector<std::pair<std::string, Value>> attributes;
  for (auto& [key, value] : entries) {
    if (key.text() == nullptr) return TypeError("the names in a namespace must be strings");
    RIVULET_RETURN_IF_ERROR(CheckNamespaceName(key.text()->bytes));
    attributes.emplace_back(key.text()->bytes, std::move(value));
  }
  return runtime.NewNamespace(std::move(attributes));
}

Result RaiseException(Runtime& runtime, const Value&, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value message, arguments.Required(0));
  RIVULET_ASSIGN_OR_RETURN(const std::string text, runtime.ToString(message));
  return runtime.Refuse(text);
}

Result TimeNow(Runtime& runtime, const Value&, Arguments& arguments) {
  constexpr size_t kLongestFormat = 1000;
  RIVULET_ASSIGN_OR_RETURN(const Value format, arguments.Required(0));
  if (format.text() == nullptr) return TypeError("strftime_now needs a string");
  if (format.text()->bytes.size() > kLongestFormat) {
    return TypeError(absl::StrCat("the format of strftime_now is over ", kLongestFormat, " bytes"));
  }
  const Clock clock = runtime.clock();
  return runtime.NewString(
      FormatTime(clock.unix_seconds, clock.microseconds, format.text()->bytes));
}

Result NotProvided(Runtime&, const Value&, Arguments&) {
  return TypeError("this server does not provide cycler, joiner and lipsum");
}

constexpr Builtin kFunctions[] = {
    {"cycler", "*", NotProvided},        {"dict", "*", Dict},
    {"joiner", "*", NotProvided},        {"lipsum", "*", NotProvided},
    {"namespace", "*", MakeNamespace},   {"raise_exception", "message", RaiseException},
    {"range", "start stop step", Range}, {"strftime_now", "format", TimeNow},
};

// The digits that int() reads: with a sign, underscores between digits, white space around.
std::optional<std::string> CleanDigits(std::string_view text) {
  std::string digits;
  const std::string_view stripped = StripRight(StripLeft(text));
  for (size_t i = 0; i < stripped.size(); ++i) {
    if (stripped[i] != '_') {
      digits += stripped[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < stripped.size() &&
                         std::isalnum(static_cast<unsigned char>(stripped[i - 1])) &&
                         std::isalnum(static_cast<unsigned char>(stripped[i + 1]));
    if (!between) return std::nullopt;
  }
  if (digits.empty()) return std::nullopt;
  return digits;
}

std::optional<int64_t> ParseWhole(std::string_view text, int base) {
  const std::optional<std::string> digits = CleanDigits(text);
  if (!digits.has_value()) return std::nullopt;
  const size_t sign = (*digits)[0] == '-' || (*digits)[0] == '+' ? 1 : 0;
  if (sign == digits->size() || !std::isalnum(static_cast<unsigned char>((*digits)[sign])))
    return std::nullopt;
  std::string body = digits->substr(sign);
  const bool prefixed =
      body.size() > 2 && body[0] == '0' && std::isalpha(static_cast<unsigned char>(body[1]));
  if (prefixed && base != 10) {
    const char mark = static_cast<char>(body[1] | 0x20);
    const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (named == base || base == 0) {
      base = named;
      body = body.substr(2);
    }
  }
  if (base == 0) base = 10;
  const std::string written = digits->substr(0, sign) + body;
  errno = 0;
  char* end = nullptr;
  const int64_t number = std::strtoll(written.c_str(), &end, base);
  if (errno != 0 || *end != 0) return std::nullopt;
  return number;
}

}  // namespace

const Builtin* FindFunction(std::string_view name) { return FindIn(kFunctions, name); }

absl::Status CheckNamespaceName(std::string_view name) {
  if (!name.starts_with("_")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '",
      ToAbsl(name), "'"));
}

std::optional<double> ToFloat(const Value& value) {
  if (value.is_number()) return AsDouble(value);
  if (value.text() == nullptr) return std::nullopt;
  const std::optional<std::string> digits = CleanDigits(value.text()->bytes);
  if (!digits.has_value() || digits->find_first_of("xXpP(") != std::string::npos)
    return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(digits->c_str(), &end);
  if (*end != 0) return std::nullopt;
  return number;
}

std::optional<Value> ToInteger(Runtime&, const Value& value, int64_t base) {
  if (value.integer() != nullptr || value.big_integer() != nullptr) return value;
  if (value.text() != nullptr && (base == 0 || (base >= 2 && base <= 36))) {
    const std::optional<int64_t> number = ParseWhole(value.text()->bytes, static_cast<int>(base));
    if (number.has_value()) return Value(*number);
  }
  const std::optional<double> number = ToFloat(value);
  constexpr double kLimit = 9223372036854775808.0;
  if (!number.has_value() || !(std::fabs(*number) < kLimit)) return std::nullopt;
  return Value(static_cast<int64_t>(*number));
}

std::string FormatTime(int64_t unix_seconds, int32_t microseconds, const std::string& format) {
  std::string prepared;  // strftime has no %f
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      prepared += format[i];
    } else if (format[++i] == 'f') {
      absl::StrAppendFormat(&prepared, "%06d", microseconds);
    } else {
      prepared += {'%', format[i]};
    }
  }
  if (prepared.empty()) return "";
  const std::time_t seconds = unix_seconds;
  std::tm local{};
  localtime_r(&seconds, &local);
  std::string text(prepared.size() * 64 + 64, 0);
  text.resize(std::strftime(text.data(), text.size(), prepared.c_str(), &local));
  return text;
}

}  // namespace rivulet::jinja
