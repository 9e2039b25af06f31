// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/api_request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/json_body.h"
#include "server/openai/messages.h"
#include "server/openai/request_fields.h"
#include "server/openai/tool_choice.h"

namespace rivulet::openai {
namespace {

FieldNames NamesOf(Endpoint endpoint) {
  const bool chat = endpoint == Endpoint::kChat;
  return {.prompt = chat ? "messages" : "prompt",
          .logprobs = chat ? "top_logprobs" : "logprobs",
          .max_tokens = "max_tokens",
          .session = "x-session-id"};
}

void ReadMaxTokens(FieldReader& fields, ApiRequest& request) {
  v1::GenerateRequest& proto = request.proto;
  const std::optional<uint32_t> old_name = fields.Count("max_tokens");
  if (old_name.has_value()) proto.set_max_tokens(*old_name);
  if (request.endpoint != Endpoint::kChat) return;
  const std::optional<uint32_t> new_name = fields.Count("max_completion_tokens");
  if (!new_name.has_value()) return;
  request.names.max_tokens = "max_completion_tokens";
  proto.set_max_tokens(*new_name);
  if (old_name.value_or(*new_name) != *new_name) {
    fields.Fail("max_tokens", "it differs from max_completion_tokens; send one of them");
  }
}

// The API counts the chosen token's own log-probability in with the best ones.
void ReadLogprobs(FieldReader& fields, ApiRequest& request) {
  if (request.endpoint == Endpoint::kChat) {
    request.logprobs = fields.Bool("logprobs").value_or(false);
    request.top_logprobs = fields.Count("top_logprobs").value_or(0);
    if (request.top_logprobs > 0 && !request.logprobs) {
      fields.Fail("top_logprobs", "it needs logprobs: true");
    }
  } else if (const auto best = fields.Count("logprobs")) {
    request.logprobs = true;
    request.top_logprobs = *best;
  }
  if (request.logprobs) request.proto.set_logprobs(std::max(1u, request.top_logprobs));
}

Prompt ReadOnePrompt(const Json& json, FieldReader& fields) {
  Prompt prompt;
  if (json.is_string()) {
    prompt.text = json.get<std::string>();
    return prompt;
  }
  bool tokens = json.is_array();
  for (size_t i = 0; tokens && i < json.size(); ++i) {
    tokens = json[i].is_number_unsigned() && json[i].get<uint64_t>() <= UINT32_MAX;
    if (tokens) prompt.tokens.add_ids(json[i].get<uint32_t>());
  }
  if (!tokens) fields.Fail("prompt", "it must be a string or an array of token ids, or several");
  return prompt;
}

// A string, token ids, or an array of those.
void ReadPrompts(FieldReader& fields, ApiRequest& request) {
  const Json* const json = fields.Find("prompt");
  if (json == nullptr) return;  // on a session, the turn goes on after its last token
  const bool several =
      json->is_array() && !json->empty() && ((*json)[0].is_string() || (*json)[0].is_array());
  Prompt first = ReadOnePrompt(several ? (*json)[0] : *json, fields);
  if (first.text.has_value())
    request.proto.set_prompt(*std::move(first.text));
  else
    *request.proto.mutable_token_ids() = std::move(first.tokens);
  if (!several || json->size() == 1) return;
  if (json->size() > kMostPrompts) {
    return fields.Fail("prompt", absl::StrCat("at most ", kMostPrompts, " at once"));
  }
  if (!request.proto.session_id().empty()) {
    fields.Fail("prompt", "a turn of a session has one");
  }
  for (size_t i = 1; i < json->size() && fields.status().ok(); ++i) {
    request.more_prompts.push_back(ReadOnePrompt((*json)[i], fields));
  }
}

// The prompt's log-probabilities come once, with the first completion, and have no value for the
// first token of a context.
void ReadEcho(FieldReader& fields, ApiRequest& request) {
  request.echo = fields.Bool("echo").value_or(false);
  if (!request.echo || !request.logprobs) return;
  v1::GenerateRequest& proto = request.proto;
  if (proto.has_n() && proto.n() != 1) fields.Fail("echo", "with logprobs, n is 1");
  if (!proto.session_id().empty()) fields.Fail("echo", "with logprobs, send no x-session-id");
  proto.set_prompt_logprobs(proto.logprobs());
}

void RefuseWhatIsNotServed(FieldReader& fields, Endpoint endpoint) {
  fields.Refuse("store", "it stores no replies", false);
  fields.Refuse("best_of", "ask for n, and choose", 1);
  if (endpoint == Endpoint::kCompletions) {
    fields.Refuse("suffix", "no model here was trained to fill in", "");
    return;
  }
  fields.Refuse("modalities", "it generates text", Json::array({"text"}));
  fields.Refuse("audio", "it generates text");
  fields.Refuse("functions", "send tools");
  fields.Refuse("function_call", "send tool_choice");
  fields.Refuse("reasoning_effort", "set what the template knows in chat_template_kwargs");
  fields.Refuse("verbosity", "say it in a message", "medium");
  fields.Refuse("web_search_options", "it does not search");
}

// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema":
// ..}}
void ReadResponseFormat(FieldReader& fields, v1::GenerateRequest& proto, FieldNames& names) {
  const Json* const format = fields.Object("response_format");
  if (format == nullptr) return;
  names.structured_output = "response_format";
  FieldReader inside(*format, "response_format.");
  const std::string type = inside.Text("type").value_or("");
  if (type == "json_object") {
    proto.mutable_structured_output()->set_json_object(true);
  } else if (type == "json_schema") {
    const Json* const described = inside.Object("json_schema");
    const Json* schema = nullptr;
    if (described != nullptr && described->contains("schema")) schema = &(*described)["schema"];
    if (schema == nullptr) inside.Fail("json_schema", "its schema is missing");
    if (schema != nullptr) proto.mutable_structured_output()->set_json_schema(Dump(*schema));
  } else if (type != "text") {
    inside.Fail("type", "it is text, json_object or json_schema");
  }
  fields.Update(inside.Finish());
}

// As vLLM has it: one of json, json_object, regex, choice and grammar.
void ReadStructuredOutputs(FieldReader& fields, v1::GenerateRequest& proto, FieldNames& names) {
  const Json* const asked = fields.Object("structured_outputs");
  if (asked == nullptr) return;
  if (proto.has_structured_output())
    fields.Fail("structured_outputs", "response_format is set too");
  v1::StructuredOutput& output = *proto.mutable_structured_output();
  FieldReader inside(*asked, "structured_outputs.");
  if (asked->size() != 1) fields.Fail("structured_outputs", "it has one field");
  names.structured_output = "structured_outputs";
  if (!asked->empty()) absl::StrAppend(&names.structured_output, ".", asked->begin().key());
  if (const Json* const schema = inside.Find("json")) {
    output.set_json_schema(schema->is_string() ? schema->get<std::string>() : Dump(*schema));
  }
  if (const auto object = inside.Bool("json_object")) output.set_json_object(*object);
  if (const auto regex = inside.Text("regex")) output.set_regex(*regex);
  if (const auto grammar = inside.Text("grammar")) output.set_grammar(*grammar);
  if (const Json* const choices = inside.Array("choice")) {
    for (const Json& choice : *choices) {
      if (!choice.is_string()) inside.Fail("choice", "it has texts");
      output.mutable_choices()->add_strings(choice.is_string() ? choice.get<std::string>() : "");
    }
  }
  fields.Update(inside.Finish());
}

void ReadHeaders(FieldReader& fields, const HttpRequest& http, v1::GenerateRequest& proto) {
  if (const auto id = ReadHeader(fields, http, "x-session-id")) {
    CheckNotEmpty(fields, "x-session-id", *id);
    proto.set_session_id(*id);
  }
  if (const auto id = ReadHeader(fields, http, "x-request-id")) proto.set_request_id(*id);
}

}  // namespace

absl::StatusOr<ApiRequest> ReadApiRequest(const HttpRequest& http, Endpoint endpoint,
                                          const std::string& model_name) {
  RIVULET_ASSIGN_OR_RETURN(const Json body, ParseJson(http.body));
  if (!body.is_object()) return absl::InvalidArgumentError("the body must be a JSON object");
  FieldReader fields(body, "");
  RIVULET_RETURN_IF_ERROR(CheckModel(fields, model_name));
  ApiRequest request;
  request.endpoint = endpoint;
  request.names = NamesOf(endpoint);
  v1::GenerateRequest& proto = request.proto;
  ReadHeaders(fields, http, proto);
  if (endpoint == Endpoint::kChat) {
    ReadMessageFields(fields, *proto.mutable_messages());
  } else {
    ReadPrompts(fields, request);
    proto.set_special_tokens(fields.Bool("special_tokens").value_or(false));
  }
  ReadSampling(fields, *proto.mutable_sampling());
  ReadStop(fields, *proto.mutable_stop());
  ReadMaxTokens(fields, request);
  ReadLogprobs(fields, request);
  const StreamFields stream = ReadStream(fields);
  request.stream = stream.stream;
  request.include_usage = stream.include_usage;
  ReadResponseFormat(fields, proto, request.names);
  ReadStructuredOutputs(fields, proto, request.names);
  if (endpoint == Endpoint::kChat) {
    request.parse_tool_calls = ReadToolChoice(fields, fields.Find("tools"), proto);
    if (proto.structured_output().has_tool_calls()) request.names.structured_output = "tools";
  }
  if (const auto n = fields.Count("n")) proto.set_n(*n);
  if (endpoint == Endpoint::kCompletions) ReadEcho(fields, request);
  proto.set_cache_salt(ReadName(fields, "cache_salt"));
  request.token_ids = fields.Bool("return_token_ids").value_or(false);
  CheckServiceTier(fields);
  IgnoreWhatChangesNothing(fields);
  RefuseWhatIsNotServed(fields, endpoint);
  RIVULET_RETURN_IF_ERROR(fields.Finish());
  return request;
}

}  // namespace rivulet::openai
