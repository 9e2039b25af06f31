// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/tool_choice.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rivulet::openai {
namespace {

struct Wanted {
  bool none = false;
  bool call = false;     // at least one
  std::string function;  // empty: any
};

// {"type": "function", "function": {"name": "f"}}, or {"type": "function", "name": "f"}.
std::string FunctionOf(FieldReader& fields, const Json& choice) {
  const Json* const function = choice.contains("function") ? &choice["function"] : &choice;
  const bool known = choice.contains("type") && choice["type"] == "function";
  if (!known) {
    fields.Fail("tool_choice", "this server serves none, auto, required and a function",
                "unsupported_parameter");
    return "";
  }
  const bool named = function->is_object() && function->contains("name") &&
                     (*function)["name"].is_string() && !(*function)["name"].empty();
  if (!named) fields.Fail("tool_choice", "the function's name is missing");
  return named ? (*function)["name"].get<std::string>() : "";
}

Wanted ReadWanted(FieldReader& fields) {
  Wanted wanted;
  const Json* const choice = fields.Find("tool_choice");
  if (choice == nullptr || *choice == "auto") return wanted;
  wanted.none = *choice == "none";
  wanted.call = !wanted.none;
  if (wanted.none || *choice == "required") return wanted;
  if (choice->is_object()) {
    wanted.function = FunctionOf(fields, *choice);
  } else {
    fields.Fail("tool_choice", "it is none, auto, required or a function");
  }
  return wanted;
}

// As templates and ToolCalls have it; Responses send it flat.
const Json& FunctionOf(const Json& tool) {
  return tool.contains("function") ? tool["function"] : tool;
}

bool IsStrict(const Json& function) {
  return function.is_object() && function.contains("strict") && function["strict"] == true;
}

bool HasName(const Json& function, const std::string& name) {
  return function.is_object() && function.contains("name") && function["name"] == name;
}

}  // namespace

bool ReadToolChoice(FieldReader& fields, const Json* tools, v1::GenerateRequest& proto) {
  const Wanted wanted = ReadWanted(fields);
  const bool one = !fields.Bool("parallel_tool_calls").value_or(true);
  if (wanted.none) proto.mutable_messages()->clear_tools();
  v1::ToolCalls calls;
  calls.set_optional(!wanted.call);
  calls.set_one(one || !wanted.function.empty());
  bool strict = false;
  for (size_t i = 0; tools != nullptr && tools->is_array() && i < tools->size(); ++i) {
    const Json& function = FunctionOf((*tools)[i]);
    strict = strict || IsStrict(function);
    if (!wanted.function.empty() && !HasName(function, wanted.function)) continue;
    calls.add_tools(Dump({{"type", "function"}, {"function", function}}));
  }
  if (wanted.call && calls.tools().empty()) {
    fields.Fail("tool_choice", tools == nullptr ? "there are no tools" : "no tool has that name");
  }
  const bool confines = wanted.call || one || strict;
  if (confines && !wanted.none && !calls.tools().empty()) {
    if (!proto.has_structured_output()) {
      *proto.mutable_structured_output()->mutable_tool_calls() = std::move(calls);
    } else if (wanted.call) {
      fields.Fail("tool_choice", "the format of the response excludes calls");
    }
  }
  return !proto.messages().tools().empty();
}

}  // namespace rivulet::openai
