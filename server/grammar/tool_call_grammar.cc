// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/tool_call_grammar.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "server/grammar/json_schema.h"

namespace rivulet {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr size_t kLongest = size_t{256} << 10;
constexpr uint32_t kMostCalls = Expression::kUnbounded;

// Without parameters a function has no arguments.
absl::StatusOr<Grammar> ArgumentsOf(const Json& function, bool any) {
  const auto found = function.find("parameters");
  if (found == function.end() || found->is_null()) {
    return ParseJsonSchema(R"({"type":"object","properties":{},"additionalProperties":false})");
  }
  if (!found->is_object()) return absl::InvalidArgumentError("parameters is a JSON schema");
  if (any || found->empty()) return AnyJsonObject();
  if (found->contains("type") && (*found)["type"] != "object") {
    return absl::InvalidArgumentError("parameters describes an object");
  }
  return ParseJsonSchema(found->dump());
}

// {"name": "f", "arguments": {...}}
absl::StatusOr<Expression> CallOf(const Json& tool, const ToolCallRules& rules, Grammar& grammar) {
  const Json& function = tool.contains("function") ? tool["function"] : tool;
  const bool named = function.is_object() && function.contains("name") &&
                     function["name"].is_string() && !function["name"].empty();
  if (!named) return absl::InvalidArgumentError("a tool is a function with a name");
  const bool strict = function.contains("strict") && function["strict"] == true;
  auto arguments = ArgumentsOf(function, rules.optional && !strict);
  if (!arguments.ok()) {
    return absl::Status(
        arguments.status().code(),
        absl::StrCat("the tool ", function["name"].dump(), ": ", arguments.status().message()));
  }
  const char* const key = rules.syntax == ToolCallSyntax::kParameters ? "parameters" : "arguments";
  return Sequence(
      {Literal(absl::StrCat("{\"name\": ", function["name"].dump(), ", \"", key, "\": ")),
       AddRules(*std::move(arguments), grammar), Literal("}")});
}

// What follows the first call's opening mark, if it has one.
Expression AllCalls(const ToolCallRules& rules, const Expression& call) {
  const uint32_t others = rules.one ? 0 : kMostCalls;
  const auto more = [&](std::string_view between) {
    return Repeat(Sequence({Literal(between), call}), 0, others);
  };
  switch (rules.syntax) {
    case ToolCallSyntax::kArray:
      return Sequence({Literal("["), call, more(", "), Literal("]")});
    case ToolCallSyntax::kParameters:
      return Sequence({call, more("; ")});
    case ToolCallSyntax::kTagged:
      break;
  }
  const Expression next = Sequence(
      {Literal("\n"), Literal(kOpen), Literal("\n"), call, Literal("\n"), Literal(kClose)});
  return Sequence({call, Literal("\n"), Literal(kClose), Repeat(next, 0, others)});
}

absl::StatusOr<ToolCallRules> ReadRules(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("the tools are not JSON");
  ToolCallRules rules;
  rules.syntax = static_cast<ToolCallSyntax>(json["syntax"].get<int>());
  rules.optional = json["optional"].get<bool>();
  rules.one = json["one"].get<bool>();
  for (const Json& tool : json["tools"]) rules.tools.push_back(tool.get<std::string>());
  return rules;
}

}  // namespace

std::string ToolCallText(const ToolCallRules& rules) {
  const Json json = {{"syntax", static_cast<int>(rules.syntax)},
                     {"optional", rules.optional},
                     {"one", rules.one},
                     {"tools", rules.tools}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Grammar> ParseToolCalls(std::string_view text) {
  if (text.size() > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tools have ", text.size(), " bytes: at most ", kLongest));
  }
  RIVULET_ASSIGN_OR_RETURN(const ToolCallRules rules, ReadRules(text));
  if (rules.tools.empty() || rules.tools.size() > kMaxTools) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", rules.tools.size(), " tools: 1 to ", kMaxTools));
  }
  Grammar grammar;
  std::vector<Expression> calls;
  for (const std::string& tool : rules.tools) {
    const Json json = Json::parse(tool, nullptr, false);
    if (!json.is_object()) return absl::InvalidArgumentError("a tool is a JSON object");
    RIVULET_ASSIGN_OR_RETURN(Expression call, CallOf(json, rules, grammar));
    calls.push_back(std::move(call));
  }
  grammar.rules.push_back({"call", Choice(std::move(calls))});
  Expression all = AllCalls(rules, RuleCall(grammar.rules.size() - 1));
  const bool opens = rules.syntax == ToolCallSyntax::kTagged && !rules.optional;
  if (opens) all = Sequence({Literal(std::string(kOpen) + "\n"), std::move(all)});
  grammar.root = grammar.rules.size();
  grammar.rules.push_back({"calls", std::move(all)});
  return rules.optional ? BehindMark(kOpen, std::move(grammar), /*may_lack=*/true) : grammar;
}

}  // namespace rivulet
