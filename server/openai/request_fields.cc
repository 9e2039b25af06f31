// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/request_fields.h"

#include <cstdint>
#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"

namespace rivulet::openai {
namespace {

// Token ids as keys.
void ReadLogitBias(FieldReader& fields, v1::SamplingParams& sampling) {
  const Json* const bias = fields.Object("logit_bias");
  if (bias == nullptr) return;
  for (const auto& [key, value] : bias->items()) {
    uint32_t token = 0;
    // "7" and "07" are two keys.
    const bool is_id = absl::SimpleAtoi(key, &token) && absl::StrCat(token) == key;
    if (!is_id) {
      return fields.Fail("logit_bias", "its keys must be token ids, in quotes");
    }
    if (!value.is_number()) return fields.Fail("logit_bias", "its values must be numbers");
    (*sampling.mutable_logit_bias())[token] = value.get<float>();
  }
}

// OpenAI's are signed, those of our own API are not: any 64 bits.
void ReadSeed(FieldReader& fields, v1::SamplingParams& sampling) {
  const Json* const seed = fields.Find("seed");
  if (seed != nullptr && seed->is_number_unsigned()) {
    sampling.set_seed(seed->get<uint64_t>());
  } else if (const auto negative = fields.Integer("seed")) {
    sampling.set_seed(static_cast<uint64_t>(*negative));
  }
}

}  // namespace

absl::Status CheckModel(FieldReader& fields, const std::string& model_name) {
  const std::optional<std::string> wanted = fields.Text("model");
  RIVULET_RETURN_IF_ERROR(fields.status());
  if (!wanted.has_value() || *wanted == model_name) return absl::OkStatus();
  absl::Status status = absl::NotFoundError(absl::StrCat(
      "the model '", wanted->substr(0, 100), "' is not served here; this is '", model_name, "'"));
  status.SetPayload(kParamPayload, absl::Cord("model"));
  status.SetPayload(kCodePayload, absl::Cord("model_not_found"));
  return status;
}

void ReadSampling(FieldReader& fields, v1::SamplingParams& sampling) {
  const auto set = [&](const char* name, auto setter) {
    if (const auto value = fields.Number(name)) (sampling.*setter)(static_cast<float>(*value));
  };
  set("temperature", &v1::SamplingParams::set_temperature);
  set("top_p", &v1::SamplingParams::set_top_p);
  set("min_p", &v1::SamplingParams::set_min_p);
  set("repetition_penalty", &v1::SamplingParams::set_repetition_penalty);
  set("frequency_penalty", &v1::SamplingParams::set_frequency_penalty);
  set("presence_penalty", &v1::SamplingParams::set_presence_penalty);
  // Elsewhere -1 means off.
  if (const auto top_k = fields.Integer("top_k")) {
    if (*top_k < -1 || *top_k > UINT32_MAX) fields.Fail("top_k", "it must be at least 0");
    sampling.set_top_k(static_cast<uint32_t>(*top_k == -1 ? 0 : *top_k));
  }
  ReadSeed(fields, sampling);
  ReadLogitBias(fields, sampling);
}

void ReadStop(FieldReader& fields, v1::StopParams& stop) {
  const Json* const strings = fields.Find("stop");
  if (strings != nullptr && strings->is_string()) {
    stop.add_strings(strings->get<std::string>());
  } else if (const Json* const list = strings == nullptr ? nullptr : fields.Array("stop")) {
    for (const Json& text : *list) {
      if (!text.is_string()) return fields.Fail("stop", "it must be a string or several");
      stop.add_strings(text.get<std::string>());
    }
  }
  if (const Json* const ids = fields.Array("stop_token_ids")) {
    for (const Json& id : *ids) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX) {
        return fields.Fail("stop_token_ids", "it must be an array of token ids");
      }
      stop.add_token_ids(id.get<uint32_t>());
    }
  }
  stop.set_ignore_eos(fields.Bool("ignore_eos").value_or(false));
  stop.set_include_stop(fields.Bool("include_stop_str_in_output").value_or(false));
  stop.set_min_tokens(fields.Count("min_tokens").value_or(0));
}

std::optional<std::string> ReadHeader(FieldReader& fields, const HttpRequest& http,
                                      const std::string& name) {
  std::optional<std::string> found;
  for (const HttpHeader& header : http.headers) {
    if (!absl::EqualsIgnoreCase(header.name, name)) continue;
    if (found.has_value()) fields.Fail(name, "the header is there twice; send it once");
    found = header.value;
  }
  return found;
}

void CheckNotEmpty(FieldReader& fields, const char* name, const std::string& text) {
  if (text.empty()) fields.Fail(name, "it is empty; leave it out, or name one");
}

std::string ReadName(FieldReader& fields, const char* name) {
  const std::optional<std::string> text = fields.Text(name);
  if (text.has_value()) CheckNotEmpty(fields, name, *text);
  return text.value_or("");
}

StreamFields ReadStream(FieldReader& fields) {
  StreamFields read;
  read.stream = fields.Bool("stream").value_or(false);
  const Json* const options = fields.Object("stream_options");
  if (options == nullptr) return read;
  if (!read.stream) fields.Fail("stream_options", "it needs stream: true");
  FieldReader reader(*options, "stream_options.");
  read.include_usage = reader.Bool("include_usage").value_or(false);
  reader.Ignore("include_obfuscation");  // bytes that clients drop
  fields.Update(reader.Finish());
  return read;
}

void CheckServiceTier(FieldReader& fields) {
  const std::string tier = fields.Text("service_tier").value_or("auto");
  if (tier == "auto" || tier == "default") return;
  fields.Fail("service_tier", "there is one tier: auto", "unsupported_parameter");
}

void IgnoreWhatChangesNothing(FieldReader& fields) {
  for (const char* const name : {"user", "metadata", "safety_identifier", "prompt_cache_key",
                                 "prompt_cache_retention", "prediction"}) {
    fields.Ignore(name);
  }
}

}  // namespace rivulet::openai
