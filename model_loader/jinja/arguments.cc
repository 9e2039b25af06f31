// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/callable.h"
#include "model_loader/jinja/runtime.h"

namespace rivulet::jinja {
namespace {

std::vector<std::string_view> SplitNames(std::string_view names) {
  std::vector<std::string_view> result;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    result.push_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return result;
}

}  // namespace

absl::Status Arguments::Bind(std::string_view parameters, GivenArguments given) {
  has_plain_ = given.plain_names;
  rest_.plain_names = given.plain_names;
  for (const Value& value : given.positional) has_plain_ = has_plain_ || value.has_plain();
  for (const auto& [name, value] : given.named) has_plain_ = has_plain_ || value.has_plain();
  names_ = SplitNames(parameters);
  const bool takes_rest = !names_.empty() && names_.back() == "*";
  if (takes_rest) names_.pop_back();
  values_.resize(names_.size());
  for (size_t i = 0; i < given.positional.size(); ++i) {
    if (i < names_.size()) {
      values_[i] = std::move(given.positional[i]);
    } else if (takes_rest) {
      rest_.positional.push_back(std::move(given.positional[i]));
    } else {
      return TypeError(absl::StrCat(ToAbsl(callee_), "() takes at most ", names_.size(),
                                    " arguments, ", given.positional.size(), " were given"));
    }
  }
  for (auto& [name, value] : given.named) {
    RIVULET_RETURN_IF_ERROR(Place(std::move(name), std::move(value), takes_rest));
  }
  return absl::OkStatus();
}

absl::Status Arguments::Place(std::string name, Value value, bool takes_rest) {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] != name) continue;
    if (values_[i].has_value()) {
      return TypeError(
          absl::StrCat(ToAbsl(callee_), "() got two values for the argument '", name, "'"));
    }
    values_[i] = std::move(value);
    return absl::OkStatus();
  }
  if (!takes_rest) {
    return TypeError(absl::StrCat(ToAbsl(callee_), "() has no argument '", name, "'"));
  }
  rest_.named.emplace_back(std::move(name), std::move(value));
  return absl::OkStatus();
}

const Value* Arguments::Given(size_t index) const {
  return values_[index].has_value() ? &*values_[index] : nullptr;
}

absl::StatusOr<Value> Arguments::Required(size_t index) const {
  if (values_[index].has_value()) return *values_[index];
  return TypeError(
      absl::StrCat(ToAbsl(callee_), "() is missing the argument '", ToAbsl(names_[index]), "'"));
}

bool Arguments::Flag(size_t index) const {
  return Given(index) != nullptr && IsTrue(*Given(index));
}

absl::StatusOr<int64_t> Arguments::Integer(size_t index, int64_t otherwise) const {
  const Value* const value = Given(index);
  if (value == nullptr) return otherwise;
  if (value->integer() != nullptr) return *value->integer();
  if (value->boolean() != nullptr) return *value->boolean() ? 1 : 0;
  return TypeError(absl::StrCat("the argument '", ToAbsl(names_[index]), "' of ", ToAbsl(callee_),
                                "() must be an integer, not ", ToAbsl(value->type_name())));
}

absl::StatusOr<std::string> Arguments::String(size_t index, std::string_view otherwise) const {
  const Value* const value = Given(index);
  if (value == nullptr) return std::string(otherwise);
  return runtime_.ToString(*value);
}

}  // namespace rivulet::jinja
