// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/messages.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rivulet::openai {
namespace {

void ReadParts(const Json& parts, const std::string& prefix, FieldReader& fields,
               v1::Message& message) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = absl::StrCat(prefix, "content[", i, "]");
    if (!parts[i].is_object()) return fields.Fail(name, "it must be an object");
    FieldReader part(parts[i], absl::StrCat(name, "."));
    v1::ContentPart& proto = *message.add_parts();
    proto.set_type(part.Text("type").value_or(""));
    if (proto.type() != "text") {
      return fields.Fail(name + ".type", "this server takes text only, no images, audio or files");
    }
    proto.set_text(part.Text("text").value_or(""));
    fields.Update(part.status());
  }
}

// The template may know further fields.
void ReadFurther(const Json& json, std::initializer_list<const char*> known, v1::Message& message) {
  Json further = Json::object();
  for (const auto& [name, value] : json.items()) {
    const bool read = std::find(known.begin(), known.end(), name) != known.end();
    if (!read && !value.is_null()) further[name] = value;
  }
  if (!further.empty()) message.set_fields(Dump(further));
}

void ReadMessage(const Json& json, const std::string& name, FieldReader& fields,
                 v1::Message& message) {
  if (!json.is_object()) return fields.Fail(name, "it must be an object");
  FieldReader reader(json, name + ".");
  const std::string role = reader.Text("role").value_or("");
  // What OpenAI calls the system's messages to newer models.
  message.set_role(role == "developer" ? "system" : role);
  if (role.empty()) reader.Fail("role", "it is missing");
  const Json* const content = reader.Find("content");
  if (content != nullptr && content->is_array()) {
    ReadParts(*content, name + ".", fields, message);
  } else if (auto text = reader.Text("content")) {
    message.set_content(*std::move(text));
  }
  message.set_name(reader.Text("name").value_or(""));
  message.set_tool_call_id(reader.Text("tool_call_id").value_or(""));
  for (const char* const field : {"reasoning_content", "reasoning"}) {
    if (auto text = reader.Text(field)) message.set_reasoning_content(*std::move(text));
  }
  const Json* const calls = reader.Array("tool_calls");
  if (calls != nullptr && !calls->empty())
    message.set_tool_calls(Dump(WithArgumentsParsed(*calls)));
  reader.Refuse("function_call", "send tool_calls");
  reader.Refuse("audio", "it takes text only");
  ReadFurther(json,
              {"role", "content", "name", "tool_call_id", "reasoning_content", "reasoning",
               "tool_calls", "function_call", "audio", "refusal", "annotations"},
              message);
  fields.Update(reader.status());
}

}  // namespace

Json WithArgumentsParsed(Json calls) {
  for (Json& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    absl::StatusOr<Json> arguments = ParseJson(function["arguments"].get<std::string>());
    if (arguments.ok() && arguments->is_object()) function["arguments"] = *std::move(arguments);
  }
  return calls;
}

void ReadVariables(FieldReader& fields, v1::Messages& proto) {
  const Json* const given = fields.Object("chat_template_kwargs");
  if (given == nullptr) return;
  Json variables = *given;
  const auto thinking = variables.find("enable_thinking");
  if (thinking != variables.end() && thinking->is_boolean()) {
    proto.set_enable_thinking(thinking->get<bool>());
    variables.erase("enable_thinking");
  }
  if (!variables.empty()) proto.set_variables(Dump(variables));
}

std::shared_ptr<const ToolSchemas> SchemasOf(const v1::Messages& proto) {
  auto schemas = std::make_shared<ToolSchemas>();
  for (const std::string& text : proto.tools()) {
    const auto tool = ParseJson(text);
    if (tool.ok()) schemas->Add(*tool);
  }
  return schemas;
}

void ReadMessageFields(FieldReader& fields, v1::Messages& proto) {
  const Json* const messages = fields.Array("messages");
  if (messages == nullptr) fields.Fail("messages", "it is missing");
  for (size_t i = 0; messages != nullptr && i < messages->size() && fields.status().ok(); ++i) {
    ReadMessage((*messages)[i], absl::StrCat("messages[", i, "]"), fields, *proto.add_messages());
  }
  const Json* const tools = fields.Array("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size() && fields.status().ok(); ++i) {
    const Json& tool = (*tools)[i];
    if (!tool.is_object()) fields.Fail(absl::StrCat("tools[", i, "]"), "it must be an object");
    proto.add_tools(Dump(tool));
  }
  ReadVariables(fields, proto);
}

}  // namespace rivulet::openai
