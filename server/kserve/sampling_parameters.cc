// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/sampling_parameters.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/kserve/structured_outputs.h"

namespace rivulet::kserve {
namespace {

using Json = ClientJson;

absl::Status Bad(const std::string& name, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("sampling parameter '", name.substr(0, 100), "': ", why));
}

absl::StatusOr<double> Number(const std::string& name, const Json& value) {
  double number = 0;
  if (value.is_number()) return value.get<double>();
  if (value.is_string() && absl::SimpleAtod(value.get<std::string>(), &number)) return number;
  return Bad(name, "it must be a number");
}

absl::StatusOr<int64_t> Integer(const std::string& name, const Json& value) {
  int64_t number = 0;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return Bad(name, "it is too large");
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_string() && absl::SimpleAtoi(value.get<std::string>(), &number)) return number;
  return Bad(name, "it must be a whole number");
}

absl::StatusOr<uint32_t> Count(const std::string& name, const Json& value) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t number, Integer(name, value));
  if (number >= 0 && number <= std::numeric_limits<uint32_t>::max()) {
    return static_cast<uint32_t>(number);
  }
  return Bad(name, absl::StrCat(number, " is not within [0, 2^32)"));
}

absl::StatusOr<bool> Bool(const std::string& name, const Json& value) {
  bool truth = false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string() && absl::SimpleAtob(value.get<std::string>(), &truth)) return truth;
  return Bad(name, "it must be true or false");
}

// ---- One setter for each parameter.

using Request = v1::GenerateRequest;
using Setter = absl::Status (*)(const std::string& name, const Json& value, Request& request);

template <void (v1::SamplingParams::*set)(float)>
absl::Status SetNumber(const std::string& name, const Json& value, Request& request) {
  RIVULET_ASSIGN_OR_RETURN(const double number, Number(name, value));
  (request.mutable_sampling()->*set)(static_cast<float>(number));
  return absl::OkStatus();
}

template <void (Request::*set)(uint32_t)>
absl::Status SetCount(const std::string& name, const Json& value, Request& request) {
  RIVULET_ASSIGN_OR_RETURN(const uint32_t count, Count(name, value));
  (request.*set)(count);
  return absl::OkStatus();
}

template <void (v1::StopParams::*set)(bool)>
absl::Status SetStopFlag(const std::string& name, const Json& value, Request& request) {
  RIVULET_ASSIGN_OR_RETURN(const bool truth, Bool(name, value));
  (request.mutable_stop()->*set)(truth);
  return absl::OkStatus();
}

// Elsewhere -1 means off.
absl::Status SetTopK(const std::string& name, const Json& value, Request& request) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t number, Integer(name, value));
  RIVULET_ASSIGN_OR_RETURN(const uint32_t top_k, Count(name, number == -1 ? Json(0) : value));
  request.mutable_sampling()->set_top_k(top_k);
  return absl::OkStatus();
}

absl::Status SetSeed(const std::string& name, const Json& value, Request& request) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t seed, Integer(name, value));
  if (seed < 0) return Bad(name, "it must be at least 0");
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
  return absl::OkStatus();
}

absl::Status SetMinTokens(const std::string& name, const Json& value, Request& request) {
  RIVULET_ASSIGN_OR_RETURN(const uint32_t count, Count(name, value));
  request.mutable_stop()->set_min_tokens(count);
  return absl::OkStatus();
}

absl::Status SetStop(const std::string& name, const Json& value, Request& request) {
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& text : list) {
    if (!text.is_string()) return Bad(name, "it must be a text or several");
    request.mutable_stop()->add_strings(text.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status SetStopIds(const std::string& name, const Json& value, Request& request) {
  if (!value.is_array()) return Bad(name, "it must be an array of token ids");
  for (const Json& id : value) {
    RIVULET_ASSIGN_OR_RETURN(const uint32_t token, Count(name, id));
    request.mutable_stop()->add_token_ids(token);
  }
  return absl::OkStatus();
}

absl::Status SetLogitBias(const std::string& name, const Json& value, Request& request) {
  if (!value.is_object()) return Bad(name, "it must be an object with token ids as keys");
  for (const auto& [key, bias] : value.items()) {
    uint32_t token = 0;
    // "7" and "07" are two keys.
    const bool is_id = absl::SimpleAtoi(key, &token) && absl::StrCat(token) == key;
    if (!is_id) return Bad(name, "its keys must be token ids");
    RIVULET_ASSIGN_OR_RETURN(const double number, Number(name, bias));
    (*request.mutable_sampling()->mutable_logit_bias())[token] = static_cast<float>(number);
  }
  return absl::OkStatus();
}

absl::Status SetStructuredOutputs(const std::string& name, const Json& value, Request& request) {
  const absl::Status read = ReadStructuredOutputs(value, *request.mutable_structured_output());
  return read.ok() ? read : Bad(name, std::string(read.message()));
}

// They change text that is made of tokens elsewhere; ours leaves special tokens out.
absl::Status AcceptTrue(const std::string& name, const Json& value, Request&) {
  RIVULET_ASSIGN_OR_RETURN(const bool truth, Bool(name, value));
  return truth ? absl::OkStatus() : Bad(name, "false is not served; leave it out");
}

using Sampling = v1::SamplingParams;
using Stop = v1::StopParams;

const std::map<std::string, Setter>& Setters() {
  static const auto* const kSetters = new std::map<std::string, Setter>{
      {"temperature", &SetNumber<&Sampling::set_temperature>},
      {"top_p", &SetNumber<&Sampling::set_top_p>},
      {"min_p", &SetNumber<&Sampling::set_min_p>},
      {"repetition_penalty", &SetNumber<&Sampling::set_repetition_penalty>},
      {"frequency_penalty", &SetNumber<&Sampling::set_frequency_penalty>},
      {"presence_penalty", &SetNumber<&Sampling::set_presence_penalty>},
      {"top_k", &SetTopK},
      {"seed", &SetSeed},
      {"logit_bias", &SetLogitBias},
      {"n", &SetCount<&Request::set_n>},
      {"max_tokens", &SetCount<&Request::set_max_tokens>},
      {"min_tokens", &SetMinTokens},
      {"stop", &SetStop},
      {"stop_token_ids", &SetStopIds},
      {"ignore_eos", &SetStopFlag<&Stop::set_ignore_eos>},
      {"include_stop_str_in_output", &SetStopFlag<&Stop::set_include_stop>},
      {"skip_special_tokens", &AcceptTrue},
      {"structured_outputs", &SetStructuredOutputs},
  };
  return *kSetters;
}

Json ValueOf(const wire::InferParameter& value) {
  switch (value.parameter_choice_case()) {
    case wire::InferParameter::kBoolParam:
      return value.bool_param();
    case wire::InferParameter::kInt64Param:
      return value.int64_param();
    case wire::InferParameter::kStringParam:
      return value.string_param();
    case wire::InferParameter::kDoubleParam:
      return value.double_param();
    case wire::InferParameter::kUint64Param:
      return value.uint64_param();
    default:
      return nullptr;
  }
}

}  // namespace

absl::Status SamplingParameters::AddJson(const std::string& text) {
  if (text.size() > kLargestJson) {
    return absl::InvalidArgumentError(absl::StrCat("input 'sampling_parameters' has ", text.size(),
                                                   " bytes; at most ", kLargestJson));
  }
  RIVULET_ASSIGN_OR_RETURN(const Json json, ParseClientJson(text, "input 'sampling_parameters'"));
  if (!json.is_object()) {
    return absl::InvalidArgumentError("input 'sampling_parameters' must be a JSON object");
  }
  for (const auto& [name, value] : json.items()) values_[name] = value;
  return absl::OkStatus();
}

absl::Status SamplingParameters::Add(const std::string& name, const wire::InferParameter& value) {
  if (values_.emplace(name, ValueOf(value)).second) return absl::OkStatus();
  return Bad(name, "it is there twice, as the request's parameter and in sampling_parameters");
}

absl::Status SamplingParameters::Apply(v1::GenerateRequest& request) const {
  for (const auto& [name, value] : values_) {
    if (value.is_null()) continue;
    const auto setter = Setters().find(name);
    if (setter == Setters().end()) return Bad(name, "it is not served; leave it out");
    RIVULET_RETURN_IF_ERROR(setter->second(name, value, request));
  }
  return absl::OkStatus();
}

}  // namespace rivulet::kserve
