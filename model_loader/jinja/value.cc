// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/utf8.h"
#include "model_loader/jinja/callable.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

std::string_view SequenceName(SequenceKind kind) {
  switch (kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kGroup:
      return "_GroupTuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kGenerator:
      return "generator";
    case SequenceKind::kKeys:
      return "dict_keys";
    case SequenceKind::kValues:
      return "dict_values";
    case SequenceKind::kItems:
      return "dict_items";
  }
  return "";
}

// Scientific form, as 1.25e+03: the fewest digits that give the number again.
struct Digits {
  std::string digits;  // no point
  int exponent = 0;    // of the first digit
};

Digits ShortestDigits(double magnitude) {
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), magnitude, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = text.find('e');
  Digits result;
  for (const char c : text.substr(0, mark)) {
    if (c != '.') result.digits += c;
  }
  const char* const first = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(first, end.ptr, result.exponent);
  return result;
}

std::string WithExponent(const Digits& number) {
  std::string text = number.digits.substr(0, 1);
  if (number.digits.size() > 1) absl::StrAppend(&text, ".", number.digits.substr(1));
  return absl::StrFormat("%se%+03d", text, number.exponent);
}

std::string WithoutExponent(Digits number) {
  if (number.exponent < 0) {
    return "0." + std::string(static_cast<size_t>(-number.exponent - 1), '0') + number.digits;
  }
  const size_t whole = static_cast<size_t>(number.exponent) + 1;
  if (number.digits.size() < whole) number.digits.append(whole - number.digits.size(), '0');
  const std::string fraction = number.digits.substr(whole);
  return number.digits.substr(0, whole) + "." + (fraction.empty() ? "0" : fraction);
}

void AppendEscape(char32_t code, char quote, std::string& text) {
  if (code == static_cast<char32_t>(quote) || code == '\\') {
    text += '\\';
    text += static_cast<char>(code);
  } else if (code == '\n' || code == '\r' || code == '\t') {
    text += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
  } else if (IsPrintable(code)) {
    AppendUtf8(code, text);
  } else if (code < 0x100) {
    absl::StrAppendFormat(&text, "\\x%02x", static_cast<uint32_t>(code));
  } else if (code < 0x10000) {
    absl::StrAppendFormat(&text, "\\u%04x", static_cast<uint32_t>(code));
  } else {
    absl::StrAppendFormat(&text, "\\U%08x", static_cast<uint32_t>(code));
  }
}

void AppendQuoted(std::string_view bytes, size_t most, std::string& text) {
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const bool has_double = bytes.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  text += quote;
  while (!bytes.empty() && text.size() <= most) {
    const Utf8Character first = FirstUtf8Character(bytes);
    AppendEscape(first.code, quote, text);
    bytes.remove_prefix(first.bytes);
  }
  text += quote;
}

// Writes values as Python's repr does.
class Writer {
 public:
  Writer(size_t most, std::string& text) : most_(most), text_(text) {}

  void Write(const Value& value) {
    if (text_.size() > most_) return;
    if (const Text* const held = value.text()) {
      if (held->safe) text_ += "Markup(";
      AppendQuoted(held->bytes, most_, text_);
      if (held->safe) text_ += ")";
    } else if (const Sequence* const sequence = value.sequence()) {
      WriteSequence(*sequence);
    } else if (const Mapping* const mapping = value.mapping()) {
      WriteMapping(*mapping);
    } else if (const Namespace* const name_space = value.name_space()) {
      WriteNamespace(*name_space);
    } else {
      WriteScalar(value);
    }
  }

 private:
  void WriteScalar(const Value& value) {
    if (value.is_none()) text_ += "None";
    if (value.undefined() != nullptr) text_ += "Undefined";
    if (const bool* const held = value.boolean()) text_ += *held ? "True" : "False";
    if (const int64_t* const held = value.integer()) absl::StrAppend(&text_, *held);
    if (const double* const held = value.real()) text_ += FloatText(*held);
    if (const BigInteger* const held = value.big_integer()) text_ += held->digits->bytes;
    if (const Callable* const held = value.callable())
      absl::StrAppend(&text_, "<", held->name, ">");
    if (value.loop() != nullptr) text_ += "<LoopContext>";
  }

  void WriteItems(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size() && text_.size() <= most_; ++i) {
      if (i > 0) text_ += ", ";
      Write(items[i]);
    }
  }

  void WriteSequence(const Sequence& sequence) {
    const SequenceKind kind = sequence.kind;
    if (kind == SequenceKind::kRange) {
      text_ += sequence.shown;
    } else if (kind == SequenceKind::kGenerator) {
      text_ += "<generator>";
    } else if (kind == SequenceKind::kTuple || kind == SequenceKind::kGroup) {
      text_ += "(";
      WriteItems(sequence.items);
      text_ += sequence.items.size() == 1 ? ",)" : ")";
    } else {
      const bool list = kind == SequenceKind::kList;
      if (!list) absl::StrAppend(&text_, std::string(SequenceName(kind)), "(");
      text_ += "[";
      WriteItems(sequence.items);
      text_ += list ? "]" : "])";
    }
  }

  void WriteMapping(const Mapping& mapping) {
    text_ += "{";
    bool first = true;
    for (const auto& [key, value] : mapping.entries) {
      if (text_.size() > most_) return;
      if (!first) text_ += ", ";
      first = false;
      Write(key);
      text_ += ": ";
      Write(value);
    }
    text_ += "}";
  }

  // A namespace may hold itself.
  void WriteNamespace(const Namespace& name_space) {
    if (inside_namespace_) {
      text_ += "<Namespace ...>";
      return;
    }
    inside_namespace_ = true;
    text_ += "<Namespace {";
    bool first = true;
    for (const auto& [name, value] : name_space.attributes) {
      if (!first) text_ += ", ";
      first = false;
      AppendQuoted(name, most_, text_);
      text_ += ": ";
      Write(value);
    }
    text_ += "}>";
    inside_namespace_ = false;
  }

  const size_t most_;
  std::string& text_;
  bool inside_namespace_ = false;
};

bool IsSameKey(const Value& key, const Value& other) {
  if (key.text() != nullptr && other.text() != nullptr)
    return key.text()->bytes == other.text()->bytes;
  if (key.is_number() && other.is_number()) return AsDouble(key) == AsDouble(other);
  return key.is_none() && other.is_none();
}

}  // namespace

Value Value::String(std::string text) { return Marked({std::move(text), {}}); }

Value Value::Marked(MarkedText text) {
  auto held = std::make_shared<Text>();
  held->characters = CountCharacters(text.bytes);
  static_cast<MarkedText&>(*held) = std::move(text);
  return Value(TextPointer(std::move(held)));
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {"Undefined", "NoneType",  "bool",     "int",
                                         "float",     "int",       "str",      "list",
                                         "dict",      "Namespace", "function", "LoopContext"};
  if (const Sequence* const held = sequence()) return SequenceName(held->kind);
  if (text() != nullptr && text()->safe) return "Markup";
  return kNames[data_.index()];
}

int Value::depth() const {
  if (const Sequence* const held = sequence()) return held->depth;
  if (const Mapping* const held = mapping()) return held->depth;
  return 0;
}

bool Value::has_plain() const {
  if (const Text* const held = text()) return !held->plain.empty();
  if (const Sequence* const held = sequence()) return held->has_plain;
  if (const Mapping* const held = mapping()) return held->has_plain;
  return name_space() != nullptr;
}

bool Value::Is(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_none()) return true;
  if (boolean() != nullptr) return *boolean() == *other.boolean();
  if (integer() != nullptr) return *integer() == *other.integer();
  if (real() != nullptr) return *real() == *other.real();
  if (text() != nullptr) return text() == other.text() || text()->bytes == other.text()->bytes;
  if (name_space() != nullptr) return name_space() == other.name_space();
  if (sequence() != nullptr) return sequence() == other.sequence();
  if (mapping() != nullptr) return mapping() == other.mapping();
  if (callable() != nullptr) return callable() == other.callable();
  return loop() != nullptr && loop() == other.loop();
}

void SetEntry(Mapping& mapping, Value key, Value value) {
  if (const Value* const found = FindEntry(mapping, key)) {
    const_cast<Value&>(*found) = std::move(value);
    return;
  }
  if (key.text() != nullptr) mapping.places[key.text()->bytes] = mapping.entries.size();
  mapping.entries.emplace_back(std::move(key), std::move(value));
}

const Value* FindEntry(const Mapping& mapping, std::string_view key) {
  const auto found = mapping.places.find(std::string(key));
  return found == mapping.places.end() ? nullptr : &mapping.entries[found->second].second;
}

const Value* FindEntry(const Mapping& mapping, const Value& key) {
  if (key.text() != nullptr) return FindEntry(mapping, key.text()->bytes);
  for (const auto& [other, value] : mapping.entries) {
    if (IsSameKey(other, key)) return &value;
  }
  return nullptr;
}

void Measure(Sequence& sequence) {
  int depth = 0;
  sequence.has_plain = false;
  for (const Value& item : sequence.items) {
    depth = std::max(depth, item.depth());
    sequence.has_plain = sequence.has_plain || item.has_plain();
  }
  sequence.depth = depth + 1;
}

void Measure(Mapping& mapping) {
  int depth = 0;
  mapping.has_plain = false;
  for (const auto& [key, value] : mapping.entries) {
    depth = std::max(depth, value.depth());
    mapping.has_plain = mapping.has_plain || key.has_plain() || value.has_plain();
  }
  mapping.depth = depth + 1;
}

size_t HeldBytes(const Value& value) {
  constexpr size_t kBlock = 64;  // of a shared object, beside what it is
  constexpr size_t kPlace = 80;  // of a key in the table of places
  size_t bytes = sizeof(Value);
  if (const Text* const held = value.text()) {
    bytes += kBlock + sizeof(Text) + held->bytes.capacity() + held->mark_bytes();
  }
  if (const Sequence* const held = value.sequence()) {
    bytes += kBlock + sizeof(Sequence);
    for (const Value& item : held->items) bytes += HeldBytes(item);
  }
  if (const Mapping* const held = value.mapping()) {
    bytes += kBlock + sizeof(Mapping);
    for (const auto& [key, item] : held->entries) {
      bytes += kPlace + HeldBytes(key) + HeldBytes(item);
    }
  }
  return bytes;
}

bool IsTrue(const Value& value) {
  if (const bool* const held = value.boolean()) return *held;
  if (const int64_t* const held = value.integer()) return *held != 0;
  if (const double* const held = value.real()) return *held != 0;
  if (const Text* const held = value.text()) return !held->bytes.empty();
  if (const Mapping* const held = value.mapping()) return !held->entries.empty();
  if (const Sequence* const held = value.sequence()) {
    return held->kind == SequenceKind::kGenerator || !held->items.empty();
  }
  return !value.is_none() && value.undefined() == nullptr;
}

double AsDouble(const Value& value) {
  if (const bool* const held = value.boolean()) return *held ? 1 : 0;
  if (const int64_t* const held = value.integer()) return static_cast<double>(*held);
  if (const BigInteger* const held = value.big_integer())
    return std::strtod(held->digits->bytes.c_str(), nullptr);
  return *value.real();
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  const char* const sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return absl::StrCat(sign, "inf");
  if (value == 0) return absl::StrCat(sign, "0.0");
  const Digits digits = ShortestDigits(std::fabs(value));
  const bool plain = digits.exponent >= -4 && digits.exponent < 16;
  return absl::StrCat(sign, plain ? WithoutExponent(digits) : WithExponent(digits));
}

void AppendRepresentation(const Value& value, size_t most, std::string& text) {
  Writer(most, text).Write(value);
}

void AppendString(const Value& value, size_t most, std::string& text) {
  if (const Text* const held = value.text()) {
    text += held->bytes;
  } else if (value.undefined() == nullptr) {
    AppendRepresentation(value, most, text);
  }
}

}  // namespace rivulet::jinja
