// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Arithmetic and comparisons, as Python has them.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/runtime.h"

namespace rivulet::jinja {
namespace {

absl::Status Unsupported(std::string_view operation, const Value& left, const Value& right) {
  return TypeError(absl::StrCat("unsupported operand types for ", ToAbsl(operation), ": '",
                                ToAbsl(left.type_name()), "' and '", ToAbsl(right.type_name()),
                                "'"));
}

absl::Status TooLarge() {
  return absl::InvalidArgumentError("an integer does not fit into 64 bits");
}

// An integer or a boolean.
bool IsWhole(const Value& value) {
  return value.integer() != nullptr || value.boolean() != nullptr;
}

int64_t WholeOf(const Value& value) {
  return value.integer() != nullptr ? *value.integer() : (*value.boolean() ? 1 : 0);
}

absl::StatusOr<Value> Power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return absl::InvalidArgumentError("0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  if (base == 0 || base == 1) return Value(exponent == 0 ? result : base);
  if (base == -1) return Value(exponent % 2 == 0 ? result : base);
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return Value(result);
}

// Both round towards minus infinity.
absl::StatusOr<Value> FloorDivide(int64_t left, int64_t right) {
  if (left == INT64_MIN && right == -1) return TooLarge();
  const int64_t quotient = left / right;
  return Value(left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient);
}

absl::StatusOr<Value> Modulo(int64_t left, int64_t right) {
  if (right == -1) return Value(int64_t{0});
  const int64_t rest = left % right;
  return Value(rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest);
}

absl::StatusOr<Value> ComputeWhole(std::string_view operation, int64_t left, int64_t right) {
  int64_t result = 0;
  if (operation == "+")
    return __builtin_add_overflow(left, right, &result) ? TooLarge()
                                                        : absl::StatusOr<Value>(Value(result));
  if (operation == "-")
    return __builtin_sub_overflow(left, right, &result) ? TooLarge()
                                                        : absl::StatusOr<Value>(Value(result));
  if (operation == "*")
    return __builtin_mul_overflow(left, right, &result) ? TooLarge()
                                                        : absl::StatusOr<Value>(Value(result));
  if (operation == "**") return Power(left, right);
  if (right == 0) return absl::InvalidArgumentError("division by zero");
  if (operation == "//") return FloorDivide(left, right);
  if (operation == "%") return Modulo(left, right);
  return Value(static_cast<double>(left) / static_cast<double>(right));
}

absl::StatusOr<Value> ComputeReal(std::string_view operation, double left, double right) {
  if (operation == "+") return Value(left + right);
  if (operation == "-") return Value(left - right);
  if (operation == "*") return Value(left * right);
  if (operation == "**") {
    const double result = std::pow(left, right);
    if (std::isnan(result) && !std::isnan(left) && !std::isnan(right)) {
      return absl::InvalidArgumentError("the power is not a real number");
    }
    return Value(result);
  }
  if (right == 0) return absl::InvalidArgumentError("division by zero");
  if (operation == "/") return Value(left / right);
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  if (operation == "%") return Value(rest == 0 ? std::copysign(0.0, right) : rest);
  return Value(std::floor((left - rest) / right + 0.5));
}

bool IsTuple(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kTuple || sequence.kind == SequenceKind::kGroup;
}

// Lists and tuples, which have + and an order.
bool IsOrdered(const Value& value) {
  const Sequence* const held = value.sequence();
  return held != nullptr && (held->kind == SequenceKind::kList || IsTuple(*held));
}

bool SameKindOfSequence(const Value& left, const Value& right) {
  return IsOrdered(left) && IsOrdered(right) &&
         IsTuple(*left.sequence()) == IsTuple(*right.sequence());
}

// How two integers compare; as doubles, large ones would be equal that are not.
bool NumbersEqual(const Value& left, const Value& right) {
  if (left.big_integer() != nullptr && right.big_integer() != nullptr) {
    return left.big_integer()->digits->bytes == right.big_integer()->digits->bytes;
  }
  if (IsWhole(left) && IsWhole(right)) return WholeOf(left) == WholeOf(right);
  return AsDouble(left) == AsDouble(right);
}

bool NumberLess(const Value& left, const Value& right) {
  if (IsWhole(left) && IsWhole(right)) return WholeOf(left) < WholeOf(right);
  return AsDouble(left) < AsDouble(right);
}

// What `+` makes of an operand whose other one is Markup, or is not.
MarkedText BesideMarkup(const Text& text, bool other_is_safe) {
  if (text.safe || !other_is_safe) return text;
  return MarkedText::Of(EscapeHtml(text.bytes), !text.plain.empty());
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&#34;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

absl::StatusOr<bool> Runtime::Equal(const Value& left, const Value& right) {
  RIVULET_RETURN_IF_ERROR(budget_.Step());
  if (left.text() != nullptr && right.text() != nullptr) {
    return left.text()->bytes == right.text()->bytes;
  }
  if (left.is_number() && right.is_number()) return NumbersEqual(left, right);
  if (left.undefined() != nullptr && right.undefined() != nullptr) return true;
  if (left.is_none() || right.is_none()) return left.is_none() && right.is_none();
  const Mapping *const first = left.mapping(), *const second = right.mapping();
  if (first != nullptr && second != nullptr && first != second) {
    if (first->entries.size() != second->entries.size()) return false;
    for (const auto& [key, value] : first->entries) {
      const Value* const other = FindEntry(*second, key);
      if (other == nullptr) return false;
      RIVULET_ASSIGN_OR_RETURN(const bool equal, Equal(value, *other));
      if (!equal) return false;
    }
    return true;
  }
  const bool ranges = left.sequence() != nullptr && right.sequence() != nullptr &&
                      left.sequence()->kind == SequenceKind::kRange &&
                      right.sequence()->kind == SequenceKind::kRange;
  if (!ranges && !SameKindOfSequence(left, right)) return left.Is(right);
  const auto &items = left.sequence()->items, &others = right.sequence()->items;
  if (&items == &others) return true;
  if (items.size() != others.size()) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(const bool equal, Equal(items[i], others[i]));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> Runtime::Less(const Value& left, const Value& right) {
  RIVULET_RETURN_IF_ERROR(budget_.Step());
  if (left.undefined() != nullptr) return UndefinedError(left);
  if (right.undefined() != nullptr) return UndefinedError(right);
  if (left.is_number() && right.is_number()) return NumberLess(left, right);
  // The order of UTF-8 is that of the characters.
  if (left.text() != nullptr && right.text() != nullptr) {
    return left.text()->bytes < right.text()->bytes;
  }
  if (!SameKindOfSequence(left, right)) {
    return TypeError(absl::StrCat("'<' is not supported between '", ToAbsl(left.type_name()),
                                  "' and '", ToAbsl(right.type_name()), "'"));
  }
  const auto &items = left.sequence()->items, &others = right.sequence()->items;
  for (size_t i = 0; i < std::min(items.size(), others.size()); ++i) {
    RIVULET_ASSIGN_OR_RETURN(const bool equal, Equal(items[i], others[i]));
    if (!equal) return Less(items[i], others[i]);
  }
  return items.size() < others.size();
}

absl::StatusOr<bool> Runtime::LessOrEqual(const Value& left, const Value& right) {
  RIVULET_ASSIGN_OR_RETURN(const bool less, Less(left, right));
  if (less) return true;
  return Equal(left, right);
}

absl::StatusOr<bool> Runtime::Contains(const Value& container, const Value& item) {
  if (const Text* const held = container.text()) {
    if (item.undefined() != nullptr) return UndefinedError(item);
    if (item.text() == nullptr) {
      return TypeError(absl::StrCat("'in <string>' requires string as left operand, not ",
                                    ToAbsl(item.type_name())));
    }
    RIVULET_RETURN_IF_ERROR(budget_.Work(held->bytes.size()));
    return held->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (const Mapping* const held = container.mapping()) {
    if (item.text() == nullptr) RIVULET_RETURN_IF_ERROR(budget_.Step(held->entries.size()));
    return FindEntry(*held, item) != nullptr;
  }
  if (container.undefined() == nullptr && container.sequence() == nullptr) {
    return TypeError(
        absl::StrCat("argument of type '", ToAbsl(container.type_name()), "' is not iterable"));
  }
  RIVULET_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(container));
  for (const Value& other : items) {
    RIVULET_ASSIGN_OR_RETURN(const bool equal, Equal(item, other));
    if (equal) return true;
  }
  return false;
}

absl::StatusOr<Value> Runtime::Add(const Value& left, const Value& right) {
  const Text *const first = left.text(), *const second = right.text();
  if (first != nullptr && second != nullptr) {
    RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(first->bytes.size() + second->bytes.size()));
    MarkedText sum = BesideMarkup(*first, second->safe);
    sum.Append(BesideMarkup(*second, first->safe));
    return NewText(std::move(sum), first->safe || second->safe);
  }
  if (!SameKindOfSequence(left, right)) return Unsupported("+", left, right);
  std::vector<Value> items = left.sequence()->items;
  RIVULET_RETURN_IF_ERROR(budget_.Step(items.size() + right.sequence()->items.size()));
  items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
  return NewSequence(std::move(items), left.sequence()->kind);
}

absl::StatusOr<Value> Runtime::Repeat(const Value& value, int64_t count) {
  const size_t times = count < 0 ? 0 : static_cast<size_t>(count);
  const Text* const text = value.text();
  const size_t size =
      text != nullptr ? text->bytes.size() : value.sequence()->items.size() * sizeof(Value);
  if (times > 0 && size > budget_.limits().memory / times) {
    return budget_.CheckRoom(budget_.limits().memory + 1);
  }
  RIVULET_RETURN_IF_ERROR(budget_.Step(times));
  if (text != nullptr) {
    RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(times * text->mark_bytes()));
    MarkedText result;
    result.Reserve(size * times);
    for (size_t i = 0; i < times && size > 0; ++i) result.Append(*text);
    return NewText(std::move(result), text->safe);
  }
  const auto& items = value.sequence()->items;
  std::vector<Value> result;
  for (size_t i = 0; i < times && size > 0; ++i) {
    result.insert(result.end(), items.begin(), items.end());
  }
  return NewSequence(std::move(result), value.sequence()->kind);
}

absl::StatusOr<Value> Runtime::Compute(std::string_view operation, const Value& left,
                                       const Value& right) {
  if (left.undefined() != nullptr) return UndefinedError(left);
  if (operation == "%" && left.text() != nullptr) {
    RIVULET_ASSIGN_OR_RETURN(MarkedText text, FormatPercent(*this, *left.text(), right));
    return NewText(std::move(text), left.text()->safe);
  }
  if (right.undefined() != nullptr) return UndefinedError(right);
  if (IsWhole(left) && IsWhole(right)) {
    return ComputeWhole(operation, WholeOf(left), WholeOf(right));
  }
  if (left.big_integer() != nullptr || right.big_integer() != nullptr) return TooLarge();
  if (left.is_number() && right.is_number()) {
    return ComputeReal(operation, AsDouble(left), AsDouble(right));
  }
  if (operation == "+") return Add(left, right);
  const auto repeats = [](const Value& value) {
    return value.text() != nullptr || IsOrdered(value);
  };
  if (operation == "*" && repeats(left) && IsWhole(right)) return Repeat(left, WholeOf(right));
  if (operation == "*" && repeats(right) && IsWhole(left)) return Repeat(right, WholeOf(left));
  return Unsupported(operation, left, right);
}

}  // namespace rivulet::jinja
