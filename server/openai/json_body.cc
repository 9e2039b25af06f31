// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/json_body.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"
#include "server/security/repeated_keys.h"

namespace rivulet::openai {
namespace {

// What the limits count, found without parsing: text that is not JSON may pass, and is refused by
// the parser.
class Counts {
 public:
  // Null, or which limit the text is beyond.
  const char* Scan(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"') i = EndOfString(text, i);
      const char* const problem = i < text.size() ? Add(text[i]) : nullptr;
      if (problem != nullptr) return problem;
    }
    return nullptr;
  }

 private:
  static size_t EndOfString(std::string_view text, size_t quote) {
    size_t i = quote + 1;
    while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    return i;
  }

  const char* Add(char c) {
    if (c == '{' || c == '[') {
      if (open_keys_.size() == kDeepestJson) return "is nested too deeply";
      open_keys_.push_back(0);
    }
    if ((c == '}' || c == ']') && !open_keys_.empty()) open_keys_.pop_back();
    if (c == ',' || c == '{' || c == '[') ++values_;
    if (c == ':') {
      ++keys_;
      if (!open_keys_.empty() && ++open_keys_.back() > kMostKeysOfAnObject) {
        return "has an object with too many keys";
      }
    }
    if (keys_ > kMostKeys) return "has too many keys";
    return values_ > kMostValues ? "has too many values" : nullptr;
  }

  std::vector<size_t> open_keys_;  // of each open object or array
  size_t keys_ = 0;
  size_t values_ = 0;
};

// Without the name that the library puts before: "[json.exception.parse_error.101] parse error
// ...".
std::string Explanation(const char* what) {
  const std::string text(what);
  const size_t end = text.find("] ");
  return text.substr(end == std::string::npos ? 0 : end + 2);
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text) {
  const char* const problem = Counts().Scan(text);
  if (problem != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the JSON ", problem, ": at most ", kDeepestJson, " levels, ", kMostValues, " values, ",
        kMostKeys, " keys and ", kMostKeysOfAnObject, " of one object are read"));
  }
  // The library takes it for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError("the body is not JSON: it has a byte 0");
  }
  try {
    RepeatedKeys keys;
    std::optional<std::string> twice;
    Json json = Json::parse(text, [&](int, Json::parse_event_t event, const Json& parsed) {
      if (keys.See(event, parsed) && !twice.has_value()) twice = parsed.get<std::string>();
      return true;
    });
    if (!twice.has_value()) return json;
    return absl::InvalidArgumentError(absl::StrCat(
        "the key \"", twice->substr(0, 100),
        "\" is twice in an object: programs disagree about which of them counts; send it once"));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not JSON: ", Explanation(error.what())));
  }
}

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
