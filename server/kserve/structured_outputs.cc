// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/structured_outputs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace rivulet::kserve {
namespace {

using Json = ClientJson;

absl::Status ReadChoices(const Json& value, v1::StructuredOutput& output) {
  if (!value.is_array()) return absl::InvalidArgumentError("choice must be an array of texts");
  for (const Json& choice : value) {
    if (!choice.is_string()) return absl::InvalidArgumentError("choice must be an array of texts");
    output.mutable_choices()->add_strings(choice.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadOne(const std::string& name, const Json& value, v1::StructuredOutput& output) {
  if (name == "json") {
    output.set_json_schema(value.is_string() ? value.get<std::string>() : value.dump());
    return absl::OkStatus();
  }
  if (name == "choice") return ReadChoices(value, output);
  if (name == "json_object") {
    if (!value.is_boolean()) return absl::InvalidArgumentError("json_object must be true");
    output.set_json_object(value.get<bool>());
    return absl::OkStatus();
  }
  if (name != "regex" && name != "grammar") {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no '", name.substr(0, 100),
                     "': it has one of json, json_object, regex, choice and grammar"));
  }
  if (!value.is_string()) return absl::InvalidArgumentError(absl::StrCat(name, " must be a text"));
  name == "regex" ? output.set_regex(value.get<std::string>())
                  : output.set_grammar(value.get<std::string>());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadStructuredOutputs(const ClientJson& value, v1::StructuredOutput& output) {
  if (value.is_string()) {
    RIVULET_ASSIGN_OR_RETURN(const Json inner, ParseClientJson(value.get<std::string>(), "it"));
    if (inner.is_object()) return ReadStructuredOutputs(inner, output);
  }
  if (!value.is_object() || value.size() != 1) {
    return absl::InvalidArgumentError(
        "it must be an object with one of json, json_object, regex, choice and grammar");
  }
  return ReadOne(value.begin().key(), value.begin().value(), output);
}

}  // namespace rivulet::kserve
