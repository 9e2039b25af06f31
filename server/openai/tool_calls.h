// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds calls of tools in what a model says, in the syntaxes of the families:
//
//   Hermes, Qwen    <tool_call>{"name": "f", "arguments": {...}}</tool_call>, any number
//   Qwen3-Coder     <tool_call><function=f><parameter=x>1</parameter></function></tool_call>
//   Mistral         [TOOL_CALLS][{"name": "f", "arguments": {...}}], [TOOL_CALLS]f[ARGS]{...}
//   Llama 3         {"name": "f", "parameters": {...}}; several with ; between
//
// Mistral's and Llama's marks may be special tokens, which are no text: without them, a text that
// is such a JSON value as a whole is a call if it names one of the request's tools. What cannot be
// read as calls stays text. Text before the first call is passed on as it comes; from there on, the
// parser waits for the end.
//
// Threading: ToolSchemas is immutable; a parser belongs to one thread.
#ifndef RIVULET_SERVER_OPENAI_TOOL_CALLS_H_
#define RIVULET_SERVER_OPENAI_TOOL_CALLS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/openai/json_body.h"

namespace rivulet::openai {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text

  bool operator==(const ToolCall&) const = default;
};

// What is known of a request's tools: the schemas of their parameters by name.
class ToolSchemas {
 public:
  // Of OpenAI's form, {"type": "function", "function": {"name", "parameters"}}.
  void Add(const Json& tool);
  bool Has(const std::string& name) const { return parameters_.contains(name); }
  // Whether `text` may become NAME{...} or NAME[ARGS]{...} of one of them.
  bool MayBegin(std::string_view text) const;
  // The value of a parameter that is written without quotes.
  Json ValueOf(const std::string& tool, const std::string& parameter,
               const std::string& text) const;

 private:
  std::map<std::string, Json> parameters_;  // "properties" of each
};

class ToolCallParser {
 public:
  struct Rest {
    std::string text;
    std::vector<ToolCall> calls;
  };

  explicit ToolCallParser(std::shared_ptr<const ToolSchemas> tools) : tools_(std::move(tools)) {}

  // What `piece` shows to be text.
  std::string Add(std::string_view piece);
  // The end of what the model says.
  Rest Finish();

 private:
  using Calls = std::vector<ToolCall>;

  bool MayBeBareCall() const;
  std::optional<Rest> ReadMarked(const std::string& text) const;
  std::optional<Calls> ReadInner(std::string_view text) const;
  std::optional<Calls> ReadXml(std::string_view text) const;
  std::optional<Calls> ReadNamed(std::string_view text) const;
  std::optional<Calls> ReadBare(std::string_view text, bool only_known) const;
  std::optional<ToolCall> ReadJsonCall(const Json& json, bool only_known) const;

  std::shared_ptr<const ToolSchemas> tools_;
  std::string held_;
  bool passed_text_ = false;
  bool waits_ = false;  // for the end: a call has begun
};

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_TOOL_CALLS_H_
