// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/response_request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/messages.h"
#include "server/openai/request_fields.h"
#include "server/openai/response_items.h"
#include "server/openai/tool_choice.h"

namespace rivulet::openai {
namespace {

constexpr char kUnsupported[] = "unsupported_parameter";
constexpr char kLogprobs[] = "message.output_text.logprobs";
// As OpenAI has it.
constexpr size_t kMostMetadata = 16;
constexpr size_t kLongestMetadataKey = 64;
constexpr size_t kLongestMetadata = 512;

Json OrNull(const Json* value) { return value == nullptr ? Json(nullptr) : *value; }

// Log-probabilities come if either asks for them.
void ReadLogprobs(FieldReader& fields, ResponseRequest& request) {
  if (const Json* const include = fields.Array("include")) {
    for (const Json& entry : *include) {
      if (entry != kLogprobs) {
        return fields.Fail("include", absl::StrCat("this server includes ", kLogprobs, " alone"),
                           kUnsupported);
      }
      request.logprobs = true;
    }
  }
  request.top_logprobs = fields.Count("top_logprobs").value_or(0);
  request.logprobs = request.logprobs || request.top_logprobs > 0;
  request.echo["top_logprobs"] = request.top_logprobs;
  if (request.logprobs) request.proto.set_logprobs(std::max(1u, request.top_logprobs));
}

// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "name", "schema"}
void ReadFormat(const Json& format, FieldReader& text, v1::GenerateRequest& proto) {
  FieldReader inside(format, "text.format.");
  const std::string type = inside.Text("type").value_or("");
  for (const char* const name : {"name", "description", "strict"}) inside.Ignore(name);
  const Json* const schema = inside.Find("schema");
  if (type == "json_object") {
    proto.mutable_structured_output()->set_json_object(true);
  } else if (type == "json_schema") {
    if (schema == nullptr) inside.Fail("schema", "it is missing");
    if (schema != nullptr) proto.mutable_structured_output()->set_json_schema(Dump(*schema));
  } else if (type != "text") {
    inside.Fail("type", "it is text, json_object or json_schema");
  }
  if (schema != nullptr && type != "json_schema") inside.Fail("schema", "type is not json_schema");
  text.Update(inside.Finish());
}

void ReadText(FieldReader& fields, ResponseRequest& request) {
  Json echo = {{"format", {{"type", "text"}}}, {"verbosity", "medium"}};
  if (const Json* const text = fields.Object("text")) {
    FieldReader inside(*text, "text.");
    if (const Json* const format = inside.Object("format")) {
      ReadFormat(*format, inside, request.proto);
      echo["format"] = *format;
    }
    inside.Refuse("verbosity", "say it in a message", "medium");
    fields.Update(inside.Finish());
  }
  request.echo["text"] = std::move(echo);
}

void ReadReasoning(FieldReader& fields, ResponseRequest& request) {
  Json echo = {{"effort", nullptr}, {"summary", nullptr}};
  if (const Json* const reasoning = fields.Object("reasoning")) {
    FieldReader inside(*reasoning, "reasoning.");
    inside.Refuse("effort", "set \"none\", or what the template knows in chat_template_kwargs",
                  "none");
    if (const Json* const effort = inside.Find("effort")) {
      request.proto.mutable_messages()->set_enable_thinking(false);
      echo["effort"] = *effort;
    }
    for (const char* const name : {"summary", "generate_summary"}) {
      inside.Refuse(name, "it sends the reasoning itself");
    }
    fields.Update(inside.Finish());
  }
  request.echo["reasoning"] = std::move(echo);
}

void ReadMetadata(FieldReader& fields, ResponseRequest& request) {
  Json echo = Json::object();
  if (const Json* const metadata = fields.Object("metadata")) {
    bool fits = metadata->size() <= kMostMetadata;
    for (const auto& [key, value] : metadata->items()) {
      fits = fits && key.size() <= kLongestMetadataKey && value.is_string() &&
             value.get_ref<const std::string&>().size() <= kLongestMetadata;
    }
    if (!fits) {
      fields.Fail("metadata",
                  absl::StrCat("at most ", kMostMetadata, " texts of ", kLongestMetadata,
                               " bytes, with keys of ", kLongestMetadataKey));
    }
    echo = *metadata;
  }
  request.echo["metadata"] = std::move(echo);
}

void ReadMessageFields(FieldReader& fields, ResponseRequest& request) {
  v1::Messages& messages = *request.proto.mutable_messages();
  messages.set_only_these_settings(true);
  const std::optional<std::string> instructions = fields.Text("instructions");
  if (instructions.has_value()) messages.set_instructions(*instructions);
  request.echo["instructions"] = OrNull(fields.Find("instructions"));
  ReadInput(fields, messages);
  const Json* const tools = fields.Find("tools");
  request.echo["tools"] = tools == nullptr ? Json::array() : *tools;
  ReadFunctionTools(fields, messages);
  ReadVariables(fields, messages);
}

void ReadTools(FieldReader& fields, ResponseRequest& request) {
  request.parse_tool_calls = ReadToolChoice(fields, fields.Find("tools"), request.proto);
  const Json* const choice = fields.Find("tool_choice");
  request.echo["tool_choice"] = choice == nullptr ? Json("auto") : *choice;
  request.echo["parallel_tool_calls"] = fields.Bool("parallel_tool_calls").value_or(true);
}

void ReadLimits(FieldReader& fields, ResponseRequest& request) {
  if (const auto most = fields.Count("max_output_tokens")) request.proto.set_max_tokens(*most);
  request.echo["max_output_tokens"] = OrNull(fields.Find("max_output_tokens"));
  const v1::SamplingParams& sampling = request.proto.sampling();
  if (sampling.has_temperature()) request.echo["temperature"] = *fields.Find("temperature");
  if (sampling.has_top_p()) request.echo["top_p"] = *fields.Find("top_p");
}

void RefuseWhatIsNotServed(FieldReader& fields) {
  fields.Refuse("background", "keep the connection open", false);
  fields.Refuse("conversation", "send previous_response_id");
  fields.Refuse("context_management", "send what is to be kept");
  fields.Refuse("max_tool_calls", "the client calls the tools");
  fields.Refuse("moderation", "it moderates nothing");
  fields.Refuse("prompt", "send instructions and input");
  fields.Refuse("truncation", "it drops nothing of a conversation", "disabled");
}

}  // namespace

absl::StatusOr<ResponseRequest> ReadResponseRequest(const HttpRequest& http,
                                                    const std::string& model_name) {
  RIVULET_ASSIGN_OR_RETURN(Json body, ParseJson(http.body));
  if (!body.is_object()) return absl::InvalidArgumentError("the body must be a JSON object");
  FieldReader fields(body, "");
  RIVULET_RETURN_IF_ERROR(CheckModel(fields, model_name));
  ResponseRequest request;
  v1::GenerateRequest& proto = request.proto;
  if (const auto id = ReadHeader(fields, http, "x-request-id")) proto.set_request_id(*id);
  request.previous_id = ReadName(fields, "previous_response_id");
  request.store = fields.Bool("store").value_or(true);
  request.stream = ReadStream(fields).stream;
  ReadMessageFields(fields, request);
  ReadSampling(fields, *proto.mutable_sampling());
  ReadStop(fields, *proto.mutable_stop());
  ReadLimits(fields, request);
  ReadLogprobs(fields, request);
  ReadText(fields, request);
  ReadTools(fields, request);
  ReadReasoning(fields, request);
  ReadMetadata(fields, request);
  if (const auto user = fields.Text("user")) request.echo["user"] = *user;
  proto.set_cache_salt(ReadName(fields, "cache_salt"));
  CheckServiceTier(fields);
  IgnoreWhatChangesNothing(fields);
  RefuseWhatIsNotServed(fields);
  RIVULET_RETURN_IF_ERROR(fields.Finish());
  request.echo["previous_response_id"] = OrNull(fields.Find("previous_response_id"));
  request.echo["store"] = request.store;
  const bool calls = proto.structured_output().has_tool_calls();
  request.names = {"input", "top_logprobs", "max_output_tokens", calls ? "tools" : "text.format"};
  request.input = std::move(body["input"]);
  return request;
}

}  // namespace rivulet::openai
