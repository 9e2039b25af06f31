// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/response_items.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/openai/messages.h"

namespace rivulet::openai {
namespace {

constexpr char kUnsupported[] = "unsupported_parameter";

class InputReader {
 public:
  InputReader(FieldReader& fields, v1::Messages& messages) : fields_(fields), messages_(messages) {}
  ~InputReader() { CloseAssistant(); }
  InputReader(const InputReader&) = delete;
  InputReader& operator=(const InputReader&) = delete;

  void Add(const Json& item, const std::string& name) {
    if (!item.is_object()) return fields_.Fail(name, "it must be an object");
    FieldReader reader(item, name + ".");
    for (const char* const unused : {"id", "status", "phase"}) reader.Ignore(unused);
    const std::string type = reader.Text("type").value_or(item.contains("role") ? "message" : "");
    if (type == "message") {
      AddMessage(reader, name);
    } else if (type == "reasoning") {
      AddReasoning(reader, name);
    } else if (type == "function_call") {
      AddCall(reader);
    } else if (type == "function_call_output") {
      AddOutput(reader, name);
    } else {
      reader.Fail("type",
                  "this server takes message, reasoning, function_call and function_call_output",
                  kUnsupported);
    }
    fields_.Update(reader.Finish());
  }

 private:
  // The texts of parts, all of one of these types.
  static std::vector<std::string> Texts(const Json& parts, const std::string& name,
                                        FieldReader& reader) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < parts.size() && reader.status().ok(); ++i) {
      const std::string field = absl::StrCat("content[", i, "]");
      if (!parts[i].is_object()) reader.Fail(field, "it must be an object");
      if (!parts[i].is_object()) break;
      FieldReader part(parts[i], absl::StrCat(name, ".", field, "."));
      const std::string type = part.Text("type").value_or("");
      if (type != "input_text" && type != "output_text" && type != "reasoning_text") {
        part.Fail("type", "this server takes text only, no images, audio or files", kUnsupported);
      }
      texts.push_back(part.Text("text").value_or(""));
      reader.Update(part.status());
    }
    return texts;
  }

  // A string, or parts.
  static std::vector<std::string> Content(const char* field, const std::string& name,
                                          FieldReader& reader) {
    const Json* const content = reader.Find(field);
    if (content == nullptr) reader.Fail(field, "it is missing");
    if (content == nullptr) return {};
    if (content->is_string()) return {content->get<std::string>()};
    const Json* const parts = reader.Array(field);
    return parts == nullptr ? std::vector<std::string>() : Texts(*parts, name, reader);
  }

  static std::string Joined(const std::vector<std::string>& texts) {
    std::string joined;
    for (const std::string& text : texts) joined += text;
    return joined;
  }

  void AddMessage(FieldReader& reader, const std::string& name) {
    const std::string role = reader.Text("role").value_or("");
    const std::vector<std::string> texts = Content("content", name, reader);
    if (role == "assistant") {
      if (assistant_ != nullptr && (assistant_->has_content() || !calls_.empty())) CloseAssistant();
      return Assistant().set_content(Joined(texts));
    }
    if (role != "user" && role != "system" && role != "developer") {
      reader.Fail("role", "it is user, system, developer or assistant");
    }
    CloseAssistant();
    v1::Message& message = *messages_.add_messages();
    message.set_role(role == "developer" ? "system" : role);
    if (texts.size() <= 1) return message.set_content(Joined(texts));
    for (const std::string& text : texts) {
      v1::ContentPart& part = *message.add_parts();
      part.set_type("text");
      part.set_text(text);
    }
  }

  void AddReasoning(FieldReader& reader, const std::string& name) {
    reader.Ignore("summary");
    reader.Refuse("encrypted_content", "it encrypts no reasoning");
    CloseAssistant();
    const Json* const parts = reader.Array("content");
    if (parts != nullptr) Assistant().set_reasoning_content(Joined(Texts(*parts, name, reader)));
  }

  void AddCall(FieldReader& reader) {
    Json function = {{"name", reader.Text("name").value_or("")},
                     {"arguments", reader.Text("arguments").value_or("{}")}};
    Assistant();
    calls_.push_back({{"id", reader.Text("call_id").value_or("")},
                      {"type", "function"},
                      {"function", std::move(function)}});
  }

  void AddOutput(FieldReader& reader, const std::string& name) {
    CloseAssistant();
    v1::Message& message = *messages_.add_messages();
    message.set_role("tool");
    message.set_tool_call_id(reader.Text("call_id").value_or(""));
    message.set_content(Joined(Content("output", name, reader)));
  }

  v1::Message& Assistant() {
    if (assistant_ == nullptr) {
      assistant_ = messages_.add_messages();
      assistant_->set_role("assistant");
    }
    return *assistant_;
  }

  void CloseAssistant() {
    if (!calls_.empty()) assistant_->set_tool_calls(Dump(WithArgumentsParsed(std::move(calls_))));
    calls_ = Json::array();
    assistant_ = nullptr;
  }

  FieldReader& fields_;
  v1::Messages& messages_;
  v1::Message* assistant_ = nullptr;  // whose items are being read
  Json calls_ = Json::array();        // of it
};

}  // namespace

void ReadInput(FieldReader& fields, v1::Messages& messages) {
  const Json* const input = fields.Find("input");
  if (input == nullptr) return fields.Fail("input", "it is missing");
  if (input->is_string()) {
    v1::Message& message = *messages.add_messages();
    message.set_role("user");
    return message.set_content(input->get<std::string>());
  }
  if (!input->is_array()) return fields.Fail("input", "it must be a string or an array of items");
  InputReader reader(fields, messages);
  for (size_t i = 0; i < input->size() && fields.status().ok(); ++i) {
    reader.Add((*input)[i], absl::StrCat("input[", i, "]"));
  }
}

void ReadFunctionTools(FieldReader& fields, v1::Messages& messages) {
  const Json* const tools = fields.Array("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size() && fields.status().ok(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string name = absl::StrCat("tools[", i, "]");
    if (!tool.is_object()) fields.Fail(name, "it must be an object");
    if (!tool.is_object()) break;
    FieldReader reader(tool, name + ".");
    if (reader.Text("type") != "function") {
      reader.Fail("type", "this server knows tools of the type function", kUnsupported);
    }
    if (!reader.Text("name").has_value()) reader.Fail("name", "it is missing");
    reader.Ignore("strict");
    Json function = Json::object();
    for (const char* const key : {"name", "description", "parameters"}) {
      if (const Json* const value = reader.Find(key)) function[key] = *value;
    }
    messages.add_tools(Dump({{"type", "function"}, {"function", std::move(function)}}));
    fields.Update(reader.Finish());
  }
}

}  // namespace rivulet::openai
