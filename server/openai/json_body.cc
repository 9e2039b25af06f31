// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/json_body.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/openai/errors.h"

namespace rivulet::openai {
absl::Status FieldError(const std::string& field, const std::string& problem,
                        const std::string& code) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
  status.SetPayload(kParamPayload, absl::Cord(field));
  if (!code.empty()) status.SetPayload(kCodePayload, absl::Cord(code));
  return status;
}

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

FieldReader::FieldReader(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

void FieldReader::Fail(const std::string& name, const std::string& problem,
                       const std::string& code) {
  status_.Update(FieldError(prefix_ + name, problem, code));
}

const Json* FieldReader::Find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* FieldReader::FindKind(const std::string& name, bool (*is)(const Json&),
                                  const char* wanted) {
  const Json* const value = Find(name);
  if (value == nullptr || is(*value)) return value;
  Fail(name, absl::StrCat("it must be ", wanted, ", not ", value->type_name()));
  return nullptr;
}

std::optional<std::string> FieldReader::Text(const std::string& name) {
  const Json* const value = FindKind(
      name, [](const Json& json) { return json.is_string(); }, "a string");
  if (value == nullptr) return std::nullopt;
  return value->get<std::string>();
}

std::optional<bool> FieldReader::Bool(const std::string& name) {
  const Json* const value = FindKind(
      name, [](const Json& json) { return json.is_boolean(); }, "true or false");
  if (value == nullptr) return std::nullopt;
  return value->get<bool>();
}

std::optional<double> FieldReader::Number(const std::string& name) {
  const Json* const value = FindKind(
      name, [](const Json& json) { return json.is_number(); }, "a number");
  if (value == nullptr) return std::nullopt;
  return value->get<double>();
}

std::optional<int64_t> FieldReader::Integer(const std::string& name) {
  const Json* const value = FindKind(
      name, [](const Json& json) { return json.is_number_integer(); }, "an integer");
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX}) {
    Fail(name, absl::StrCat(value->get<uint64_t>(), " is too large"));
    return std::nullopt;
  }
  return value->get<int64_t>();
}

std::optional<uint32_t> FieldReader::Count(const std::string& name) {
  const std::optional<int64_t> value = Integer(name);
  if (!value.has_value()) return std::nullopt;
  if (*value >= 0 && *value <= std::numeric_limits<uint32_t>::max()) {
    return static_cast<uint32_t>(*value);
  }
  Fail(name, absl::StrCat(*value, " is outside of 0 to 4294967295"));
  return std::nullopt;
}

const Json* FieldReader::Array(const std::string& name) {
  return FindKind(
      name, [](const Json& json) { return json.is_array(); }, "an array");
}

const Json* FieldReader::Object(const std::string& name) {
  return FindKind(
      name, [](const Json& json) { return json.is_object(); }, "an object");
}

void FieldReader::Refuse(const std::string& name, const std::string& remedy, const Json& harmless) {
  const Json* const value = Find(name);
  if (value == nullptr || *value == harmless) return;
  Fail(name, absl::StrCat("this server does not serve it; ", remedy), "unsupported_parameter");
}

absl::Status FieldReader::Finish() {
  for (const auto& [name, value] : object_.items()) {
    if (!status_.ok()) return status_;
    if (!known_.contains(name) && !value.is_null()) {
      Fail(name.substr(0, 100), "there is no such parameter", "unknown_parameter");
    }
  }
  return status_;
}

}  // namespace rivulet::openai
