// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/runtime.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/base/utf8.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

// What a value takes besides its bytes or items: the object, its count of references, its block.
constexpr size_t kObjectBytes = 160;

absl::Status CheckDepth(int depth) {
  if (depth <= kDeepestValue) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it nests lists and mappings deeper than ", kDeepestValue, " levels"));
}

bool IsKey(const Value& value) {
  return value.text() != nullptr || value.is_number() || value.is_none();
}

// A position in a sequence of `size`, counted from the end when negative; -1: outside.
int64_t Position(int64_t index, size_t size) {
  const auto length = static_cast<int64_t>(size);
  if (index < 0) index += length;
  return index >= 0 && index < length ? index : -1;
}

const int64_t* AsIndex(const Value& value, int64_t& storage) {
  if (value.integer() != nullptr) return value.integer();
  if (value.boolean() == nullptr) return nullptr;
  storage = *value.boolean() ? 1 : 0;
  return &storage;
}

// Python's slice.indices: where it begins and ends, for a step of either sign.
struct Range {
  int64_t begin, end, step;
};

absl::StatusOr<int64_t> Bound(const Value& value, int64_t otherwise, int64_t low, int64_t high,
                              int64_t length) {
  if (value.is_none()) return otherwise;
  int64_t storage = 0;
  const int64_t* const index = AsIndex(value, storage);
  if (index == nullptr) return TypeError("slice indices must be integers or None");
  const int64_t from_end = *index < 0 ? std::max(*index, -length - 1) + length : *index;
  return std::clamp(from_end, low, high);
}

absl::StatusOr<Range> ResolveSlice(const Value& begin, const Value& end, const Value& step,
                                   size_t size) {
  Range range{0, 0, 1};
  int64_t storage = 0;
  if (!step.is_none()) {
    const int64_t* const given = AsIndex(step, storage);
    if (given == nullptr) return TypeError("slice indices must be integers or None");
    if (*given == 0) return absl::InvalidArgumentError("slice step cannot be zero");
    range.step = std::clamp<int64_t>(*given, -(int64_t{1} << 40), int64_t{1} << 40);
  }
  const auto length = static_cast<int64_t>(size);
  const bool forward = range.step > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? length : length - 1;
  RIVULET_ASSIGN_OR_RETURN(range.begin, Bound(begin, forward ? 0 : length - 1, low, high, length));
  RIVULET_ASSIGN_OR_RETURN(range.end, Bound(end, forward ? length : -1, low, high, length));
  return range;
}

std::string_view CharactersOf(const Text& text, int64_t begin, int64_t end) {
  const std::string_view bytes = text.bytes;
  if (text.characters == bytes.size()) {
    return bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
  const size_t first = ByteOffset(bytes, static_cast<size_t>(begin));
  const std::string_view rest = bytes.substr(first);
  return rest.substr(0, ByteOffset(rest, static_cast<size_t>(end - begin)));
}

MarkedText SliceText(const Text& text, const Range& range) {
  if (range.step == 1) {
    return text.Part(CharactersOf(text, range.begin, std::max(range.begin, range.end)));
  }
  const std::u32string characters = Decode(text.bytes);
  std::u32string taken;
  for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
    taken += characters[static_cast<size_t>(i)];
  }
  return MarkedText::Of(Encode(taken), !text.plain.empty());
}

std::string MissingAttribute(const Value& object, std::string_view name) {
  return absl::StrCat("'", ToAbsl(object.type_name()), " object' has no attribute '", ToAbsl(name),
                      "'");
}

}  // namespace

absl::Status TypeError(std::string_view message) {
  return absl::InvalidArgumentError(ToAbsl(message));
}

absl::Status UndefinedError(const Value& value) {
  const auto& reason = value.undefined()->reason;
  return absl::InvalidArgumentError(reason == nullptr ? "a value is undefined" : *reason);
}

Runtime::~Runtime() {
  for (Namespace& name_space : namespaces_) name_space.attributes.clear();
}

absl::StatusOr<Value> Runtime::NewString(std::string text, bool safe) {
  return NewText(MarkedText::Of(std::move(text), plain_strings_), safe);
}

absl::StatusOr<Value> Runtime::NewText(MarkedText text, bool safe) {
  RIVULET_RETURN_IF_ERROR(budget_.Work(text.bytes.size() + text.mark_bytes()));
  const size_t bytes = text.bytes.capacity() + text.mark_bytes() + kObjectBytes;
  RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(bytes));
  auto held = std::make_shared<Text>();
  held->characters = CountCharacters(text.bytes);
  static_cast<MarkedText&>(*held) = std::move(text);
  held->safe = safe;
  held->charge = Charge(budget_, bytes);
  return Value(Value::TextPointer(std::move(held)));
}

absl::StatusOr<Value> Runtime::NewSequence(std::vector<Value> items, SequenceKind kind,
                                           std::string shown) {
  RIVULET_RETURN_IF_ERROR(budget_.Step(items.size() + 1));
  const size_t bytes = items.capacity() * sizeof(Value) + kObjectBytes;
  RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(bytes));
  auto held = std::make_shared<Sequence>();
  held->kind = kind;
  held->items = std::move(items);
  held->shown = std::move(shown);
  held->charge = Charge(budget_, bytes);
  Measure(*held);
  RIVULET_RETURN_IF_ERROR(CheckDepth(held->depth));
  return Value(std::move(held));
}

absl::StatusOr<Value> Runtime::NewMapping(std::vector<std::pair<Value, Value>> entries) {
  constexpr size_t kEntryBytes = 160;  // two values, and the key's place
  RIVULET_RETURN_IF_ERROR(budget_.Step(entries.size() + 1));
  size_t bytes = entries.size() * kEntryBytes + kObjectBytes;
  for (const auto& [key, value] : entries) {
    if (!IsKey(key)) {
      return TypeError(absl::StrCat("unhashable type: '", ToAbsl(key.type_name()), "'"));
    }
    if (key.text() != nullptr) bytes += key.text()->bytes.size();
    // Keys that are no strings are found one after the other.
    if (key.text() == nullptr) RIVULET_RETURN_IF_ERROR(budget_.Step(entries.size()));
  }
  RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(bytes));
  auto held = std::make_shared<Mapping>();
  for (auto& [key, value] : entries) SetEntry(*held, std::move(key), std::move(value));
  held->charge = Charge(budget_, bytes);
  Measure(*held);
  RIVULET_RETURN_IF_ERROR(CheckDepth(held->depth));
  return Value(Value::MappingPointer(std::move(held)));
}

absl::StatusOr<Value> Runtime::NewNamespace(std::vector<std::pair<std::string, Value>> attributes) {
  constexpr size_t kMostNamespaces = 100'000;
  if (namespaces_.size() == kMostNamespaces) {
    return absl::InvalidArgumentError(
        absl::StrCat("it makes more than ", kMostNamespaces, " namespaces"));
  }
  namespaces_.push_back({std::move(attributes)});
  return Value(&namespaces_.back());
}

Value Runtime::NewUndefined(std::string reason) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(reason))});
}

absl::StatusOr<std::vector<Value>> Runtime::Iterate(const Value& value) {
  std::vector<Value> items;
  if (Sequence* const held = value.sequence()) {
    RIVULET_RETURN_IF_ERROR(budget_.Step(held->items.size()));
    items.assign(held->items.begin() + static_cast<int64_t>(held->consumed), held->items.end());
    if (held->kind == SequenceKind::kGenerator) held->consumed = held->items.size();
    return items;
  }
  if (const Mapping* const held = value.mapping()) {
    RIVULET_RETURN_IF_ERROR(budget_.Step(held->entries.size()));
    for (const auto& [key, item] : held->entries) items.push_back(key);
    return items;
  }
  if (const Text* const held = value.text()) {
    RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(held->characters * (sizeof(Value) + kObjectBytes)));
    for (std::string_view rest = held->bytes; !rest.empty();) {
      const std::string_view first = FirstCharacter(rest);
      RIVULET_ASSIGN_OR_RETURN(Value item, NewText(held->Part(first)));
      items.push_back(std::move(item));
      rest.remove_prefix(first.size());
    }
    return items;
  }
  if (value.undefined() != nullptr) return items;
  return TypeError(absl::StrCat("'", ToAbsl(value.type_name()), "' object is not iterable"));
}

absl::StatusOr<int64_t> Runtime::Length(const Value& value) {
  if (const Text* const held = value.text()) return static_cast<int64_t>(held->characters);
  if (const Mapping* const held = value.mapping()) {
    return static_cast<int64_t>(held->entries.size());
  }
  const Sequence* const held = value.sequence();
  if (held != nullptr && held->kind != SequenceKind::kGenerator) {
    return static_cast<int64_t>(held->items.size());
  }
  if (const LoopState* const loop = value.loop()) return static_cast<int64_t>(loop->items.size());
  if (value.undefined() != nullptr) return 0;
  return TypeError(absl::StrCat("object of type '", ToAbsl(value.type_name()), "' has no len()"));
}

absl::StatusOr<Value> Runtime::LoopAttribute(LoopState& loop, const Value& self,
                                             std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index == length - 1);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{loop.depth} + 1);
  if (name == "depth0") return Value(int64_t{loop.depth});
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index - 1] : NewUndefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items[loop.index + 1] : NewUndefined("there is no next item");
  }
  return FindAttribute(self, name);
}

// Attributes that Python's objects have. Undefined with no reason: there is none.
absl::StatusOr<Value> Runtime::FindAttribute(const Value& object, std::string_view name) {
  if (IsRefusedMethod(object, name)) {
    return NewUndefined(absl::StrCat("templates may not change lists and mappings ('", ToAbsl(name),
                                     "'); use a namespace"));
  }
  if (const Builtin* const method = FindMethod(object, name)) {
    auto bound = std::make_shared<Callable>();
    bound->name = absl::StrCat("built-in method ", ToAbsl(name));
    bound->builtin = method;
    bound->subject = object;
    return Value(Value::CallablePointer(std::move(bound)));
  }
  if (const Namespace* const held = object.name_space()) {
    for (const auto& [other, value] : held->attributes) {
      if (other == name) return value;
    }
  }
  const Sequence* const group = object.sequence();
  if (group != nullptr && group->kind == SequenceKind::kGroup) {
    if (name == "grouper") return group->items[0];
    if (name == "list") return group->items[1];
  }
  if (const Callable* const held = object.callable(); held != nullptr && name == "name") {
    if (held->macro != nullptr) return NewString(held->name);
  }
  return Value();
}

absl::StatusOr<Value> Runtime::FindItem(const Value& object, const Value& key) {
  if (const Mapping* const held = object.mapping()) {
    if (key.text() == nullptr) RIVULET_RETURN_IF_ERROR(budget_.Step(held->entries.size()));
    const Value* const found = FindEntry(*held, key);
    return found == nullptr ? Value() : *found;
  }
  int64_t storage = 0;
  const int64_t* const index = AsIndex(key, storage);
  if (index == nullptr) return Value();
  if (object.is_indexed()) {
    const std::vector<Value>& items = object.sequence()->items;
    const int64_t place = Position(*index, items.size());
    return place < 0 ? Value() : items[static_cast<size_t>(place)];
  }
  if (const Text* const held = object.text()) {
    const int64_t place = Position(*index, held->characters);
    if (place < 0) return Value();
    RIVULET_RETURN_IF_ERROR(budget_.Work(held->bytes.size()));
    return NewText(held->Part(CharactersOf(*held, place, place + 1)), held->safe);
  }
  return Value();
}

absl::StatusOr<Value> Runtime::GetAttribute(const Value& object, std::string_view name) {
  if (object.undefined() != nullptr) return UndefinedError(object);
  absl::StatusOr<Value> found = object.loop() != nullptr
                                    ? LoopAttribute(*object.loop(), object, name)
                                    : FindAttribute(object, name);
  if (!found.ok() || found->undefined() == nullptr || found->undefined()->reason != nullptr) {
    return found;
  }
  if (const Mapping* const held = object.mapping()) {
    if (const Value* const item = FindEntry(*held, name)) return *item;
  }
  return NewUndefined(MissingAttribute(object, name));
}

absl::StatusOr<Value> Runtime::GetItem(const Value& object, const Value& key) {
  if (object.undefined() != nullptr) return UndefinedError(object);
  RIVULET_ASSIGN_OR_RETURN(Value item, FindItem(object, key));
  const bool missing = item.undefined() != nullptr && item.undefined()->reason == nullptr;
  if (missing && key.text() != nullptr) {
    return GetAttribute(object, key.text()->bytes);
  }
  if (!missing) return item;
  RIVULET_ASSIGN_OR_RETURN(const std::string shown, ToRepresentation(key));
  return NewUndefined(absl::StrCat("'", ToAbsl(object.type_name()), " object' has no element ",
                                   shown.substr(0, 100)));
}

absl::StatusOr<Value> Runtime::GetSlice(const Value& object, const Value& begin, const Value& end,
                                        const Value& step) {
  if (object.undefined() != nullptr) return UndefinedError(object);
  if (const Text* const held = object.text()) {
    RIVULET_RETURN_IF_ERROR(budget_.Work(held->bytes.size()));
    RIVULET_ASSIGN_OR_RETURN(const Range range, ResolveSlice(begin, end, step, held->characters));
    return NewText(SliceText(*held, range), held->safe);
  }
  if (!object.is_indexed()) {
    return NewUndefined(absl::StrCat("'", ToAbsl(object.type_name()), " object' cannot be sliced"));
  }
  const Sequence& held = *object.sequence();
  RIVULET_ASSIGN_OR_RETURN(const Range range, ResolveSlice(begin, end, step, held.items.size()));
  std::vector<Value> taken;
  for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
    taken.push_back(held.items[static_cast<size_t>(i)]);
  }
  const bool tuple = held.kind == SequenceKind::kTuple || held.kind == SequenceKind::kGroup;
  return NewSequence(std::move(taken), tuple ? SequenceKind::kTuple : SequenceKind::kList);
}

absl::StatusOr<Value> Runtime::GetPath(const Value& object, const Value& path) {
  if (path.text() == nullptr) return GetItem(object, path);
  Value value = object;
  std::string_view rest = path.text()->bytes;
  while (true) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    int64_t index = 0;
    const auto [last, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = error == std::errc() && last == part.data() + part.size() && index >= 0;
    RIVULET_RETURN_IF_ERROR(budget_.Step());
    RIVULET_ASSIGN_OR_RETURN(
        value, GetItem(value, number ? Value(index) : Value::String(std::string(part))));
    if (end == rest.size()) return value;
    rest.remove_prefix(end + 1);
  }
}

absl::StatusOr<std::string> Runtime::ToString(const Value& value) {
  std::string text;
  AppendString(value, budget_.limits().memory, text);
  RIVULET_RETURN_IF_ERROR(budget_.Work(text.size()));
  RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(text.size()));
  return text;
}

absl::StatusOr<MarkedText> Runtime::ToMarked(const Value& value) {
  RIVULET_ASSIGN_OR_RETURN(std::string text, ToString(value));
  const Text* const held = value.text();
  if (held == nullptr) return MarkedText::Of(std::move(text), value.has_plain());
  RIVULET_RETURN_IF_ERROR(budget_.Work(held->mark_bytes()));
  return MarkedText{std::move(text), held->plain};
}

absl::Status Runtime::AppendMarked(const Value& value, MarkedText& text) {
  if (const Text* const held = value.text()) {
    text.Append(*held);
  } else {
    RIVULET_ASSIGN_OR_RETURN(const MarkedText shown, ToMarked(value));
    text.Append(shown);
  }
  return budget_.CheckRoom(text.bytes.size() + text.mark_bytes());
}

absl::StatusOr<std::string> Runtime::ToRepresentation(const Value& value) {
  std::string text;
  AppendRepresentation(value, budget_.limits().memory, text);
  RIVULET_RETURN_IF_ERROR(budget_.Work(text.size()));
  RIVULET_RETURN_IF_ERROR(budget_.CheckRoom(text.size()));
  return text;
}

absl::StatusOr<Value> Runtime::RunBuiltin(const Builtin& builtin, const Value& subject,
                                          GivenArguments given) {
  Arguments arguments(*this, builtin.name);
  RIVULET_RETURN_IF_ERROR(arguments.Bind(builtin.parameters, std::move(given)));
  const bool around = plain_strings_;
  plain_strings_ = subject.has_plain() || arguments.has_plain();
  absl::StatusOr<Value> result = builtin.run(*this, subject, arguments);
  plain_strings_ = around;
  return result;
}

absl::StatusOr<Value> Runtime::Call(const Value& callee, GivenArguments arguments) {
  if (callee.undefined() != nullptr) return UndefinedError(callee);
  const Level level(budget_);
  RIVULET_RETURN_IF_ERROR(level.Check());
  if (LoopState* const loop = callee.loop()) return CallLoop(*loop, std::move(arguments));
  const Callable* const held = callee.callable();
  if (held == nullptr) {
    return TypeError(absl::StrCat("'", ToAbsl(callee.type_name()), "' object is not callable"));
  }
  if (held->macro != nullptr) return CallMacro(*held, std::move(arguments));
  return RunBuiltin(*held->builtin, held->subject, std::move(arguments));
}

absl::StatusOr<Value> Runtime::CallFilter(std::string_view name, const Value& subject,
                                          GivenArguments arguments) {
  const Level level(budget_);
  RIVULET_RETURN_IF_ERROR(level.Check());
  RIVULET_RETURN_IF_ERROR(budget_.Step());
  const Builtin* const filter = FindFilter(name);
  if (filter != nullptr) return RunBuiltin(*filter, subject, std::move(arguments));
  return absl::InvalidArgumentError(absl::StrCat(
      IsUnsupportedFilter(name) ? "this server does not provide the filter '" : "no filter named '",
      ToAbsl(name), "'"));
}

absl::StatusOr<bool> Runtime::CallTest(std::string_view name, const Value& subject,
                                       GivenArguments arguments) {
  RIVULET_RETURN_IF_ERROR(budget_.Step());
  const Builtin* const test = FindTest(name);
  if (test == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no test named '", ToAbsl(name), "'"));
  }
  RIVULET_ASSIGN_OR_RETURN(const Value result, RunBuiltin(*test, subject, std::move(arguments)));
  return IsTrue(result);
}

absl::Status Runtime::Refuse(std::string_view message) {
  refused_ = true;
  return absl::InvalidArgumentError(ToAbsl(message));
}

}  // namespace rivulet::jinja
