// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The values that a template computes with: those of Python that JSON can express, and what Jinja
// adds (undefined values, namespaces, macros, loops). Strings, lists and mappings are immutable and
// shared; a namespace is the only value that changes.
//
// Integers have 64 bits, where Python's have any number. A larger integer in the input keeps its
// digits (BigInteger), so that it can be printed; arithmetic refuses it.
//
// A string knows which of its bytes a client sent (MarkedText::plain). Nothing that a template can
// ask depends on it.
//
// Threading: values that are not of a rendering (a template's constants, its input) may be read by
// any number of threads at once; others belong to one thread.
#ifndef RIVULET_MODEL_LOADER_JINJA_VALUE_H_
#define RIVULET_MODEL_LOADER_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model_loader/jinja/budget.h"
#include "model_loader/marked_text.h"

namespace rivulet::jinja {

class Value;
struct Callable;
struct LoopState;

// Mappings and lists deeper than this are refused, in the input and when a template builds them.
inline constexpr int kDeepestValue = 100;

struct Undefined {
  std::shared_ptr<const std::string> reason;  // for an error that uses the value; null: none
};
struct None {};

struct Text : MarkedText {  // UTF-8
  size_t characters = 0;    // code points
  bool safe = false;        // Markup: `+` escapes the other operand
  Charge charge;
};
struct BigInteger {
  std::shared_ptr<const Text> digits;
};

enum class SequenceKind { kList, kTuple, kGroup, kRange, kGenerator, kKeys, kValues, kItems };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  std::string shown;    // kRange: how Python prints it
  size_t consumed = 0;  // kGenerator: items that were taken already
  int depth = 1;
  bool has_plain = false;  // a string in it has plain bytes
  Charge charge;
};

struct Mapping {
  std::vector<std::pair<Value, Value>> entries;     // in the order of insertion, as in Python
  absl::flat_hash_map<std::string, size_t> places;  // of string keys
  int depth = 1;
  bool has_plain = false;  // a string in it, keys too, has plain bytes
  Charge charge;
};

// The rendering owns it, so that a namespace which holds itself is freed too.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

class Value {
 public:
  using TextPointer = std::shared_ptr<const Text>;
  using SequencePointer = std::shared_ptr<Sequence>;
  using MappingPointer = std::shared_ptr<const Mapping>;
  using CallablePointer = std::shared_ptr<const Callable>;
  using LoopPointer = std::shared_ptr<LoopState>;

  Value() = default;  // undefined
  explicit Value(Undefined value) : data_(std::move(value)) {}
  explicit Value(None value) : data_(value) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(BigInteger value) : data_(std::move(value)) {}
  explicit Value(TextPointer value) : data_(std::move(value)) {}
  explicit Value(SequencePointer value) : data_(std::move(value)) {}
  explicit Value(MappingPointer value) : data_(std::move(value)) {}
  explicit Value(Namespace* value) : data_(value) {}
  explicit Value(CallablePointer value) : data_(std::move(value)) {}
  explicit Value(LoopPointer value) : data_(std::move(value)) {}

  // Strings of no rendering; those of one are made by its Runtime, which pays for them.
  static Value String(std::string text);
  static Value Marked(MarkedText text);

  // Null, or the thing itself.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const BigInteger* big_integer() const { return std::get_if<BigInteger>(&data_); }
  const Text* text() const { return Pointee<TextPointer>(); }
  Sequence* sequence() const { return Pointee<SequencePointer>(); }
  const Mapping* mapping() const { return Pointee<MappingPointer>(); }
  Namespace* name_space() const {
    const auto* const held = std::get_if<Namespace*>(&data_);
    return held == nullptr ? nullptr : *held;
  }
  const Callable* callable() const { return Pointee<CallablePointer>(); }
  LoopState* loop() const { return Pointee<LoopPointer>(); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_number() const {
    return boolean() != nullptr || integer() != nullptr || real() != nullptr ||
           big_integer() != nullptr;
  }
  // A sequence whose items may be taken by position any number of times.
  bool is_indexed() const {
    const Sequence* const held = sequence();
    return held != nullptr && held->kind <= SequenceKind::kRange;
  }

  // The name of its type in Python, for errors.
  std::string_view type_name() const;
  // How deep mappings and lists are nested in it; 0 for others.
  int depth() const;
  // Whether it is or holds a string with plain bytes. A namespace counts as one that does.
  bool has_plain() const;
  // Python's `is`: the same object.
  bool Is(const Value& other) const;

 private:
  template <typename Pointer>
  auto Pointee() const -> decltype(std::declval<Pointer>().get()) {
    const auto* const held = std::get_if<Pointer>(&data_);
    return held == nullptr ? nullptr : held->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, BigInteger, TextPointer, SequencePointer,
               MappingPointer, Namespace*, CallablePointer, LoopPointer>
      data_;
};

// Adds an entry, or replaces the value of the key. Equal numbers are the same key, as in Python.
void SetEntry(Mapping& mapping, Value key, Value value);
// Null if there is none.
const Value* FindEntry(const Mapping& mapping, const Value& key);
const Value* FindEntry(const Mapping& mapping, std::string_view key);
// Sets `depth` and `has_plain` from what it holds. To be called after the last change.
void Measure(Sequence& sequence);
void Measure(Mapping& mapping);

// What it takes in memory, about: strings, lists and mappings with all that they hold. What it
// shares with other values counts.
size_t HeldBytes(const Value& value);

// bool(value).
bool IsTrue(const Value& value);
// The value of a number as a double. REQUIRES: is_number().
double AsDouble(const Value& value);

// str(value) and repr(value), appended. Stops appending behind `most` bytes, so that the caller can
// refuse what is longer.
void AppendString(const Value& value, size_t most, std::string& text);
void AppendRepresentation(const Value& value, size_t most, std::string& text);
// repr of a float, as 0.1, 1e-05, 1e+16, inf.
std::string FloatText(double value);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_VALUE_H_
