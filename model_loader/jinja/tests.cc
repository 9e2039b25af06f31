// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What can follow `is`.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/filters.h"
#include "model_loader/jinja/runtime.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result ToValue(const absl::StatusOr<bool>& result) {
  RIVULET_RETURN_IF_ERROR(result.status());
  return Value(*result);
}

Result IsDefined(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.undefined() == nullptr);
}
Result IsUndefined(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.undefined() != nullptr);
}
Result IsNone(Runtime&, const Value& subject, Arguments&) { return Value(subject.is_none()); }
Result IsBoolean(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.boolean() != nullptr);
}
Result IsTrueValue(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.boolean() != nullptr && *subject.boolean());
}
Result IsFalseValue(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.boolean() != nullptr && !*subject.boolean());
}
Result IsInteger(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.integer() != nullptr || subject.big_integer() != nullptr);
}
Result IsFloat(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.real() != nullptr);
}
Result IsNumber(Runtime&, const Value& subject, Arguments&) { return Value(subject.is_number()); }
Result IsString(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.text() != nullptr);
}
Result IsMapping(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.mapping() != nullptr);
}
// Something with a length and items by position or key; for Python an undefined value is one too.
Result IsSequence(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.text() != nullptr || subject.mapping() != nullptr || subject.is_indexed() ||
               subject.undefined() != nullptr);
}
Result IsIterable(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.text() != nullptr || subject.mapping() != nullptr ||
               subject.sequence() != nullptr || subject.undefined() != nullptr ||
               subject.loop() != nullptr);
}
Result IsCallable(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.callable() != nullptr || subject.loop() != nullptr ||
               subject.undefined() != nullptr);
}
Result IsEscaped(Runtime&, const Value& subject, Arguments&) {
  return Value(subject.text() != nullptr && subject.text()->safe);
}

Result IsDivisible(Runtime& runtime, const Value& subject, const Value& divisor) {
  RIVULET_ASSIGN_OR_RETURN(const Value rest, runtime.Compute("%", subject, divisor));
  return Value(!IsTrue(rest));
}
Result IsEven(Runtime& runtime, const Value& subject, Arguments&) {
  return IsDivisible(runtime, subject, Value(int64_t{2}));
}
Result IsOdd(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(const Value even, IsDivisible(runtime, subject, Value(int64_t{2})));
  return Value(!IsTrue(even));
}
Result IsDivisibleBy(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value divisor, arguments.Required(0));
  return IsDivisible(runtime, subject, divisor);
}

Result IsEqualTo(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value other, arguments.Required(0));
  return ToValue(runtime.Equal(subject, other));
}
Result IsNotEqualTo(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value equal, IsEqualTo(runtime, subject, arguments));
  return Value(!IsTrue(equal));
}
Result IsSameAs(Runtime&, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value other, arguments.Required(0));
  return Value(subject.Is(other));
}
Result IsLess(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value other, arguments.Required(0));
  return ToValue(runtime.Less(subject, other));
}
Result IsGreater(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value other, arguments.Required(0));
  return ToValue(runtime.Less(other, subject));
}
Result IsAtMost(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value other, arguments.Required(0));
  return ToValue(runtime.LessOrEqual(subject, other));
}
Result IsAtLeast(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value other, arguments.Required(0));
  return ToValue(runtime.LessOrEqual(other, subject));
}
Result IsIn(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value container, arguments.Required(0));
  return ToValue(runtime.Contains(container, subject));
}

// Whether it has letters of one case and none of the other.
template <typename Has, typename HasNot>
Result HasCase(Runtime& runtime, const Value& subject, const Has& has, const HasNot& has_not) {
  RIVULET_ASSIGN_OR_RETURN(const std::string text, runtime.ToString(subject));
  const std::u32string characters = Decode(text);
  return Value(std::any_of(characters.begin(), characters.end(), has) &&
               std::none_of(characters.begin(), characters.end(),
                            [&](char32_t code) { return has_not(code) || IsTitle(code); }));
}
Result IsLowerCase(Runtime& runtime, const Value& subject, Arguments&) {
  return HasCase(runtime, subject, IsLower, IsUpper);
}
Result IsUpperCase(Runtime& runtime, const Value& subject, Arguments&) {
  return HasCase(runtime, subject, IsUpper, IsLower);
}

Result IsFilter(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(const std::string name, runtime.ToString(subject));
  return Value(FindFilter(name) != nullptr || IsUnsupportedFilter(name));
}
Result IsTest(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(const std::string name, runtime.ToString(subject));
  return Value(FindTest(name) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", "other", IsNotEqualTo},
    {"<", "other", IsLess},
    {"<=", "other", IsAtMost},
    {"==", "other", IsEqualTo},
    {">", "other", IsGreater},
    {">=", "other", IsAtLeast},
    {"boolean", "", IsBoolean},
    {"callable", "", IsCallable},
    {"defined", "", IsDefined},
    {"divisibleby", "num", IsDivisibleBy},
    {"eq", "other", IsEqualTo},
    {"equalto", "other", IsEqualTo},
    {"escaped", "", IsEscaped},
    {"even", "", IsEven},
    {"false", "", IsFalseValue},
    {"filter", "", IsFilter},
    {"float", "", IsFloat},
    {"ge", "other", IsAtLeast},
    {"greaterthan", "other", IsGreater},
    {"gt", "other", IsGreater},
    {"in", "seq", IsIn},
    {"integer", "", IsInteger},
    {"iterable", "", IsIterable},
    {"le", "other", IsAtMost},
    {"lessthan", "other", IsLess},
    {"lower", "", IsLowerCase},
    {"lt", "other", IsLess},
    {"mapping", "", IsMapping},
    {"ne", "other", IsNotEqualTo},
    {"none", "", IsNone},
    {"number", "", IsNumber},
    {"odd", "", IsOdd},
    {"sameas", "other", IsSameAs},
    {"sequence", "", IsSequence},
    {"string", "", IsString},
    {"test", "", IsTest},
    {"true", "", IsTrueValue},
    {"undefined", "", IsUndefined},
    {"upper", "", IsUpperCase},
};

}  // namespace

const Builtin* FindTest(std::string_view name) { return FindIn(kTests, name); }

}  // namespace rivulet::jinja
