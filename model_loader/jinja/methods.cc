// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The methods of mappings, lists and loops.
#include "model_loader/jinja/methods.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/jinja/filters.h"
#include "model_loader/jinja/runtime.h"

namespace rivulet::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// ---- Mappings

Result Get(Runtime&, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value key, arguments.Required(0));
  const Value* const found = FindEntry(*subject.mapping(), key);
  if (found != nullptr) return *found;
  return arguments.Given(1) == nullptr ? Value(None()) : *arguments.Given(1);
}

Result Keys(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(std::vector<Value> keys, runtime.Iterate(subject));
  return runtime.NewSequence(std::move(keys), SequenceKind::kKeys);
}

Result Values(Runtime& runtime, const Value& subject, Arguments&) {
  std::vector<Value> values;
  for (const auto& [key, value] : subject.mapping()->entries) values.push_back(value);
  return runtime.NewSequence(std::move(values), SequenceKind::kValues);
}

Result Items(Runtime& runtime, const Value& subject, Arguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : subject.mapping()->entries) {
    RIVULET_ASSIGN_OR_RETURN(Value pair, runtime.NewSequence({key, value}, SequenceKind::kTuple));
    items.push_back(std::move(pair));
  }
  return runtime.NewSequence(std::move(items), SequenceKind::kItems);
}

Result Copy(Runtime&, const Value& subject, Arguments&) { return subject; }

constexpr Builtin kMappingMethods[] = {{"copy", "", Copy},
                                       {"get", "key default", Get},
                                       {"items", "", Items},
                                       {"keys", "", Keys},
                                       {"values", "", Values}};

// ---- Lists and tuples

Result Count(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value wanted, arguments.Required(0));
  int64_t count = 0;
  for (const Value& item : subject.sequence()->items) {
    RIVULET_ASSIGN_OR_RETURN(const bool equal, runtime.Equal(item, wanted));
    count += equal ? 1 : 0;
  }
  return Value(count);
}

Result Index(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value wanted, arguments.Required(0));
  const std::vector<Value>& items = subject.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(const bool equal, runtime.Equal(items[i], wanted));
    if (equal) return Value(static_cast<int64_t>(i));
  }
  return absl::InvalidArgumentError("the value is not in the list");
}

constexpr Builtin kListMethods[] = {
    {"copy", "", Copy}, {"count", "value", Count}, {"index", "value", Index}};
constexpr Builtin kTupleMethods[] = {{"count", "value", Count}, {"index", "value", Index}};

// ---- Loops

Result Cycle(Runtime&, const Value& subject, Arguments& arguments) {
  const std::vector<Value>& choices = arguments.rest().positional;
  if (choices.empty()) return TypeError("no items for cycling given");
  return choices[subject.loop()->index % choices.size()];
}

// Whether the arguments differ from those of the last call.
Result Changed(Runtime& runtime, const Value& subject, Arguments& arguments) {
  LoopState& loop = *subject.loop();
  std::vector<Value>& now = arguments.rest().positional;
  bool same = loop.called_changed && loop.last_changed.size() == now.size();
  for (size_t i = 0; same && i < now.size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(same, runtime.Equal(loop.last_changed[i], now[i]));
  }
  loop.called_changed = true;
  loop.last_changed = std::move(now);
  return Value(!same);
}

constexpr Builtin kLoopMethods[] = {{"changed", "*", Changed}, {"cycle", "*", Cycle}};

}  // namespace

bool IsRefusedMethod(const Value& subject, std::string_view name) {
  constexpr std::string_view kOfMappings[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view kOfLists[] = {"append", "clear",  "extend",  "insert",
                                           "pop",    "remove", "reverse", "sort"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (subject.mapping() != nullptr) return has(kOfMappings);
  const Sequence* const held = subject.sequence();
  return held != nullptr && held->kind == SequenceKind::kList && has(kOfLists);
}

const Builtin* FindMethod(const Value& subject, std::string_view name) {
  if (subject.text() != nullptr) return FindTextMethod(name);
  if (subject.mapping() != nullptr) return FindIn(kMappingMethods, name);
  if (subject.loop() != nullptr) return FindIn(kLoopMethods, name);
  if (subject.sequence() == nullptr) return nullptr;
  switch (subject.sequence()->kind) {
    case SequenceKind::kList:
      return FindIn(kListMethods, name);
    case SequenceKind::kTuple:
    case SequenceKind::kGroup:
      return FindIn(kTupleMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace rivulet::jinja
