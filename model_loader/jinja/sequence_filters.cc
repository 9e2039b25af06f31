// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Filters of sequences and mappings. Those that Python makes generators of give generators here
// too: they are true even without items, have no length, and give their items once.
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
using Items = std::vector<Value>;

Result Generator(Runtime& runtime, Items items) {
  return runtime.NewSequence(std::move(items), SequenceKind::kGenerator);
}

// What values are compared by: strings without regard to case unless `case_sensitive`.
Result ComparisonKey(Runtime& runtime, Value value, bool case_sensitive) {
  if (case_sensitive || value.text() == nullptr) return value;
  return runtime.NewString(ToLower(value.text()->bytes));
}

// The part of an item that `attribute` names, null: the item.
Result Part(Runtime& runtime, const Value& item, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return item;
  return runtime.GetPath(item, *attribute);
}

struct Keyed {
  Value key, item;
};

// Sorts by key, keeping the order of equal ones.
absl::Status Sort(Runtime& runtime, bool reverse, std::vector<Keyed>& items) {
  absl::Status failure;
  const auto less = [&](const Keyed& left, const Keyed& right) {
    if (!failure.ok()) return false;
    const auto result =
        reverse ? runtime.Less(right.key, left.key) : runtime.Less(left.key, right.key);
    if (!result.ok()) failure = result.status();
    return result.ok() && *result;
  };
  // A merge sort: it stays within bounds even if the order is not one, as with NaN.
  std::stable_sort(items.begin(), items.end(), less);
  return failure;
}

Items TakeItems(std::vector<Keyed>& keyed) {
  Items items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

Result List(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(Items items, runtime.Iterate(subject));
  return runtime.NewSequence(std::move(items));
}

Result Length(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t length, runtime.Length(subject));
  return Value(length);
}

Result First(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  if (items.empty()) return Runtime::NewUndefined("No first item, sequence was empty.");
  return items.front();
}

Result Last(Runtime& runtime, const Value& subject, Arguments&) {
  const Sequence* const held = subject.sequence();
  if (held != nullptr && held->kind == SequenceKind::kGenerator) {
    return TypeError("'generator' object is not reversible");
  }
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  if (items.empty()) return Runtime::NewUndefined("No last item, sequence was empty.");
  return items.back();
}

Result Join(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  MarkedText separator;
  if (arguments.Given(0) != nullptr) {
    RIVULET_ASSIGN_OR_RETURN(separator, runtime.ToMarked(*arguments.Given(0)));
  }
  MarkedText result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) result.Append(separator);
    RIVULET_ASSIGN_OR_RETURN(const Value part, Part(runtime, items[i], arguments.Given(1)));
    RIVULET_RETURN_IF_ERROR(runtime.AppendMarked(part, result));
  }
  return runtime.NewText(std::move(result));
}

Result Reverse(Runtime& runtime, const Value& subject, Arguments&) {
  if (const Text* const held = subject.text()) {
    std::u32string characters = Decode(held->bytes);
    std::reverse(characters.begin(), characters.end());
    return runtime.NewString(Encode(characters), held->safe);
  }
  RIVULET_ASSIGN_OR_RETURN(Items items, runtime.Iterate(subject));
  std::reverse(items.begin(), items.end());
  const Sequence* const held = subject.sequence();
  const bool list = held != nullptr && held->kind == SequenceKind::kGenerator;
  return runtime.NewSequence(std::move(items),
                             list ? SequenceKind::kList : SequenceKind::kGenerator);
}

Result SortItems(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(Value part, Part(runtime, item, arguments.Given(2)));
    RIVULET_ASSIGN_OR_RETURN(part, ComparisonKey(runtime, std::move(part), arguments.Flag(1)));
    keyed.push_back({std::move(part), item});
  }
  const Value* const attribute = arguments.Given(2);
  if (attribute != nullptr && attribute->text() != nullptr &&
      attribute->text()->bytes.find(',') != std::string::npos) {
    return TypeError("this server sorts by one attribute only");
  }
  RIVULET_RETURN_IF_ERROR(Sort(runtime, arguments.Flag(0), keyed));
  return runtime.NewSequence(TakeItems(keyed));
}

Result DictSort(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const std::string by, arguments.String(1, "key"));
  if (by != "key" && by != "value")
    return TypeError("You can only sort by either \"key\" or \"value\"");
  if (subject.undefined() != nullptr) return UndefinedError(subject);
  if (subject.mapping() == nullptr) return TypeError("dictsort is a filter of mappings");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : subject.mapping()->entries) {
    RIVULET_ASSIGN_OR_RETURN(Value order,
                             ComparisonKey(runtime, by == "key" ? key : value, arguments.Flag(0)));
    RIVULET_ASSIGN_OR_RETURN(Value pair, runtime.NewSequence({key, value}, SequenceKind::kTuple));
    keyed.push_back({std::move(order), std::move(pair)});
  }
  RIVULET_RETURN_IF_ERROR(Sort(runtime, arguments.Flag(2), keyed));
  return runtime.NewSequence(TakeItems(keyed));
}

Result EntryPairs(Runtime& runtime, const Value& subject, Arguments&) {
  if (subject.undefined() == nullptr && subject.mapping() == nullptr) {
    return TypeError("Can only get item pairs from a mapping.");
  }
  Items items;
  if (subject.mapping() != nullptr) {
    for (const auto& [key, value] : subject.mapping()->entries) {
      RIVULET_ASSIGN_OR_RETURN(Value pair, runtime.NewSequence({key, value}, SequenceKind::kTuple));
      items.push_back(std::move(pair));
    }
  }
  return Generator(runtime, std::move(items));
}

// The least item, or the greatest.
Result Extreme(Runtime& runtime, const Value& subject, Arguments& arguments, bool greatest) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  if (items.empty()) return Runtime::NewUndefined("No aggregated item, sequence was empty.");
  std::optional<Keyed> best;
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(Value key, Part(runtime, item, arguments.Given(1)));
    RIVULET_ASSIGN_OR_RETURN(key, ComparisonKey(runtime, std::move(key), arguments.Flag(0)));
    if (best.has_value()) {
      RIVULET_ASSIGN_OR_RETURN(const bool better, greatest ? runtime.Less(best->key, key)
                                                           : runtime.Less(key, best->key));
      if (!better) continue;
    }
    best = Keyed{std::move(key), item};
  }
  return best->item;
}

Result Min(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Extreme(runtime, subject, arguments, false);
}
Result Max(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Extreme(runtime, subject, arguments, true);
}

Result Sum(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  Value total = arguments.Given(1) == nullptr ? Value(int64_t{0}) : *arguments.Given(1);
  if (total.text() != nullptr) return TypeError("sum() can't sum strings, use join");
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(const Value part, Part(runtime, item, arguments.Given(0)));
    RIVULET_ASSIGN_OR_RETURN(total, runtime.Compute("+", total, part));
  }
  return total;
}

Result Unique(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  Items keys, kept;
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(Value key, Part(runtime, item, arguments.Given(1)));
    RIVULET_ASSIGN_OR_RETURN(key, ComparisonKey(runtime, std::move(key), arguments.Flag(0)));
    const bool unhashable =
        key.mapping() != nullptr ||
        (key.sequence() != nullptr && key.sequence()->kind == SequenceKind::kList);
    if (unhashable) return TypeError("unique is a filter of strings, numbers and tuples");
    bool known = false;
    for (size_t i = 0; i < keys.size() && !known; ++i) {
      RIVULET_ASSIGN_OR_RETURN(known, runtime.Equal(keys[i], key));
    }
    if (known) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Generator(runtime, std::move(kept));
}

Result Batch(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  RIVULET_ASSIGN_OR_RETURN(const int64_t size, arguments.Integer(0, 0));
  if (size < 1) return TypeError("batch: the size must be at least 1");
  Items batches, batch;
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) {
      RIVULET_ASSIGN_OR_RETURN(Value list, runtime.NewSequence(std::exchange(batch, {})));
      batches.push_back(std::move(list));
    }
    batch.push_back(item);
  }
  if (batch.empty()) return Generator(runtime, std::move(batches));
  const Value* const fill = arguments.Given(1);
  if (fill != nullptr && !fill->is_none()) {
    RIVULET_RETURN_IF_ERROR(runtime.budget().CheckRoom(
        static_cast<size_t>(std::min<int64_t>(size, int64_t{1} << 32)) * sizeof(Value)));
    batch.resize(static_cast<size_t>(size), *fill);
  }
  RIVULET_ASSIGN_OR_RETURN(Value list, runtime.NewSequence(std::move(batch)));
  batches.push_back(std::move(list));
  return Generator(runtime, std::move(batches));
}

Result Slice(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  RIVULET_ASSIGN_OR_RETURN(const int64_t count, arguments.Integer(0, 0));
  if (count < 1 || count > 100'000)
    return TypeError("slice: the number of slices must be 1 to 100000");
  const auto slices = static_cast<size_t>(count);
  const Value* const fill = arguments.Given(1);
  const size_t each = items.size() / slices, longer = items.size() % slices;
  Items result;
  size_t place = 0;
  for (size_t i = 0; i < slices; ++i) {
    const size_t size = each + (i < longer ? 1 : 0);
    const auto begin = items.begin() + static_cast<int64_t>(place);
    Items slice(begin, begin + static_cast<int64_t>(size));
    if (fill != nullptr && !fill->is_none() && i >= longer) slice.push_back(*fill);
    place += size;
    RIVULET_ASSIGN_OR_RETURN(Value list, runtime.NewSequence(std::move(slice)));
    result.push_back(std::move(list));
  }
  return Generator(runtime, std::move(result));
}

Result GroupBy(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  RIVULET_ASSIGN_OR_RETURN(const Value attribute, arguments.Required(0));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(Value key, runtime.GetPath(item, attribute));
    if (key.undefined() != nullptr && arguments.Given(1) != nullptr) key = *arguments.Given(1);
    RIVULET_ASSIGN_OR_RETURN(key, ComparisonKey(runtime, std::move(key), arguments.Flag(2)));
    keyed.push_back({std::move(key), item});
  }
  RIVULET_RETURN_IF_ERROR(Sort(runtime, false, keyed));
  Items groups;
  for (size_t begin = 0; begin < keyed.size();) {
    Items members;
    size_t end = begin;
    for (bool same = true; same;) {
      members.push_back(keyed[end++].item);
      same = end < keyed.size();
      if (same) {
        RIVULET_ASSIGN_OR_RETURN(same, runtime.Equal(keyed[begin].key, keyed[end].key));
      }
    }
    // The name of a group is the first item's own, which may differ in case.
    RIVULET_ASSIGN_OR_RETURN(Value name, runtime.GetPath(members.front(), attribute));
    if (name.undefined() != nullptr && arguments.Given(1) != nullptr) name = *arguments.Given(1);
    RIVULET_ASSIGN_OR_RETURN(Value list, runtime.NewSequence(std::move(members)));
    RIVULET_ASSIGN_OR_RETURN(Value group, runtime.NewSequence({name, list}, SequenceKind::kGroup));
    groups.push_back(std::move(group));
    begin = end;
  }
  return runtime.NewSequence(std::move(groups));
}

// ---- With another filter or test for each item

const Value* FindNamed(const GivenArguments& given, std::string_view name) {
  for (const auto& [other, value] : given.named) {
    if (other == name) return &value;
  }
  return nullptr;
}

Result MapAttribute(Runtime& runtime, const Items& items, const GivenArguments& given) {
  const Value* const attribute = FindNamed(given, "attribute");
  const Value* const otherwise = FindNamed(given, "default");
  if (attribute == nullptr) return TypeError("map requires a filter argument");
  if (given.named.size() > (otherwise == nullptr ? 1u : 2u))
    return TypeError("map: unexpected argument");
  Items results;
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(Value part, runtime.GetPath(item, *attribute));
    if (part.undefined() != nullptr && otherwise != nullptr && !otherwise->is_none())
      part = *otherwise;
    results.push_back(std::move(part));
  }
  return Generator(runtime, std::move(results));
}

Result Map(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  GivenArguments& given = arguments.rest();
  if (given.positional.empty()) return MapAttribute(runtime, items, given);
  const Value name = given.positional.front();
  if (name.text() == nullptr) return TypeError("map: the name of a filter must be a string");
  given.positional.erase(given.positional.begin());
  Items results;
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(Value result, runtime.CallFilter(name.text()->bytes, item, given));
    results.push_back(std::move(result));
  }
  return Generator(runtime, std::move(results));
}

// The items whose test gives `wanted`. `by_attribute`: the first argument names what is tested.
Result Choose(Runtime& runtime, const Value& subject, Arguments& arguments, bool by_attribute,
              bool wanted) {
  RIVULET_ASSIGN_OR_RETURN(const Items items, runtime.Iterate(subject));
  GivenArguments& given = arguments.rest();
  Value attribute{None()};
  if (by_attribute) {
    if (given.positional.empty()) return TypeError("Missing parameter for attribute name");
    attribute = given.positional.front();
    given.positional.erase(given.positional.begin());
  }
  std::optional<std::string> test;
  if (!given.positional.empty()) {
    RIVULET_ASSIGN_OR_RETURN(test, runtime.ToString(given.positional.front()));
    given.positional.erase(given.positional.begin());
  }
  Items chosen;
  for (const Value& item : items) {
    RIVULET_ASSIGN_OR_RETURN(const Value part, Part(runtime, item, &attribute));
    bool passes = IsTrue(part);
    if (test.has_value()) {
      RIVULET_ASSIGN_OR_RETURN(passes, runtime.CallTest(*test, part, given));
    }
    if (passes == wanted) chosen.push_back(item);
  }
  return Generator(runtime, std::move(chosen));
}

Result Select(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Choose(runtime, subject, arguments, false, true);
}
Result Reject(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Choose(runtime, subject, arguments, false, false);
}
Result SelectAttribute(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Choose(runtime, subject, arguments, true, true);
}
Result RejectAttribute(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Choose(runtime, subject, arguments, true, false);
}

constexpr Builtin kFilters[] = {
    {"batch", "linecount fill_with", Batch},
    {"count", "", Length},
    {"dictsort", "case_sensitive by reverse", DictSort},
    {"first", "", First},
    {"groupby", "attribute default case_sensitive", GroupBy},
    {"items", "", EntryPairs},
    {"join", "d attribute", Join},
    {"last", "", Last},
    {"length", "", Length},
    {"list", "", List},
    {"map", "*", Map},
    {"max", "case_sensitive attribute", Max},
    {"min", "case_sensitive attribute", Min},
    {"reject", "*", Reject},
    {"rejectattr", "*", RejectAttribute},
    {"reverse", "", Reverse},
    {"select", "*", Select},
    {"selectattr", "*", SelectAttribute},
    {"slice", "slices fill_with", Slice},
    {"sort", "reverse case_sensitive attribute", SortItems},
    {"sum", "attribute start", Sum},
    {"unique", "case_sensitive attribute", Unique},
};

}  // namespace

const Builtin* FindSequenceFilter(std::string_view name) { return FindIn(kFilters, name); }

}  // namespace rivulet::jinja
