// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the operations of a template share while one text is rendered: its budget, the values it
// makes, and Jinja's rules for attributes, items, iteration, operators and calls. An Interpreter is
// the Runtime that runs macros.
//
// Nothing here reads files, the network or the environment; the clock is in RenderOptions.
// Threading: one thread.
#ifndef RIVULET_MODEL_LOADER_JINJA_RUNTIME_H_
#define RIVULET_MODEL_LOADER_JINJA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/jinja/budget.h"
#include "model_loader/jinja/callable.h"
#include "model_loader/jinja/value.h"

namespace rivulet::jinja {

// The local time that strftime_now shows.
struct Clock {
  int64_t unix_seconds = 0;
  int32_t microseconds = 0;
};

class Runtime {
 public:
  Runtime(const Limits& limits, Clock clock) : budget_(limits), clock_(clock) {}
  virtual ~Runtime();

  Budget& budget() { return budget_; }
  Clock clock() const { return clock_; }

  // ---- Values, paid from the budget.

  absl::StatusOr<Value> NewText(MarkedText text, bool safe = false);
  // Without marks. Inside of a built-in whose subject or arguments have plain bytes, all of it is
  // plain: a built-in that can tell which bytes it copies calls NewText.
  absl::StatusOr<Value> NewString(std::string text, bool safe = false);
  absl::StatusOr<Value> NewSequence(std::vector<Value> items,
                                    SequenceKind kind = SequenceKind::kList,
                                    std::string shown = "");
  // Keys are strings, numbers, booleans or none; equal ones are one entry.
  absl::StatusOr<Value> NewMapping(std::vector<std::pair<Value, Value>> entries);
  absl::StatusOr<Value> NewNamespace(std::vector<std::pair<std::string, Value>> attributes);
  static Value NewUndefined(std::string reason);

  // ---- Jinja's rules.

  // What a loop takes: items, keys of a mapping, characters of a string, nothing of undefined. A
  // generator gives what is left of it, once.
  absl::StatusOr<std::vector<Value>> Iterate(const Value& value);
  absl::StatusOr<int64_t> Length(const Value& value);
  // object.name: attributes and methods, then items. Undefined if there is none.
  absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name);
  // object[key]: items, then attributes.
  absl::StatusOr<Value> GetItem(const Value& object, const Value& key);
  // object[begin:end:step]; none: left out.
  absl::StatusOr<Value> GetSlice(const Value& object, const Value& begin, const Value& end,
                                 const Value& step);
  // The item that a filter's `attribute` names, as "function.name" or "0".
  absl::StatusOr<Value> GetPath(const Value& object, const Value& path);
  absl::StatusOr<std::string> ToString(const Value& value);
  // str(value) with its marks. What is no string is plain if it holds plain bytes.
  absl::StatusOr<MarkedText> ToMarked(const Value& value);
  absl::Status AppendMarked(const Value& value, MarkedText& text);
  absl::StatusOr<std::string> ToRepresentation(const Value& value);

  absl::StatusOr<bool> Equal(const Value& left, const Value& right);
  // left < right, and left <= right, which differ from each other's negation for NaN.
  absl::StatusOr<bool> Less(const Value& left, const Value& right);
  absl::StatusOr<bool> LessOrEqual(const Value& left, const Value& right);
  // item in container.
  absl::StatusOr<bool> Contains(const Value& container, const Value& item);
  // One of + - * / // % **.
  absl::StatusOr<Value> Compute(std::string_view operation, const Value& left, const Value& right);

  absl::StatusOr<Value> Call(const Value& callee, GivenArguments arguments);
  absl::StatusOr<Value> CallFilter(std::string_view name, const Value& subject,
                                   GivenArguments arguments);
  absl::StatusOr<bool> CallTest(std::string_view name, const Value& subject,
                                GivenArguments arguments);

  // The template calls raise_exception: an error, whose message is shown as the template's own.
  absl::Status Refuse(std::string_view message);
  bool refused() const { return refused_; }

 protected:
  virtual absl::StatusOr<Value> CallMacro(const Callable& macro, GivenArguments arguments) = 0;
  virtual absl::StatusOr<Value> CallLoop(LoopState& loop, GivenArguments arguments) = 0;

 private:
  absl::StatusOr<Value> LoopAttribute(LoopState& loop, const Value& self, std::string_view name);
  absl::StatusOr<Value> FindAttribute(const Value& object, std::string_view name);
  absl::StatusOr<Value> FindItem(const Value& object, const Value& key);
  absl::StatusOr<Value> RunBuiltin(const Builtin& builtin, const Value& subject,
                                   GivenArguments arguments);
  absl::StatusOr<Value> Add(const Value& left, const Value& right);
  absl::StatusOr<Value> Repeat(const Value& value, int64_t count);

  Budget budget_;
  const Clock clock_;
  std::deque<Namespace> namespaces_;
  bool refused_ = false;
  bool plain_strings_ = false;  // what NewString makes is plain
};

// The error for an operation on an undefined value.
absl::Status UndefinedError(const Value& value);
// "can only concatenate ...": an operation that Python's types do not have.
absl::Status TypeError(std::string_view message);

// The text of printf-style formatting, "%s and %d" % values.
absl::StatusOr<MarkedText> FormatPercent(Runtime& runtime, const MarkedText& format,
                                         const Value& values);
// format.format(arguments).
absl::StatusOr<MarkedText> FormatBraces(Runtime& runtime, const MarkedText& format,
                                        const GivenArguments& arguments);
// Text with < > & " ' written as HTML entities.
std::string EscapeHtml(std::string_view text);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_RUNTIME_H_
