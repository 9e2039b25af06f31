// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/tool_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "kernels/base/strings.h"

namespace rivulet::openai {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::string_view kMistral = "[TOOL_CALLS]", kArguments = "[ARGS]";
constexpr std::string_view kLlama = "<|python_tag|>";
constexpr std::string_view kMarks[] = {kOpen, kFunction, kMistral, kLlama};

std::string_view Stripped(std::string_view text) {
  return ToStd(absl::StripAsciiWhitespace(ToAbsl(text)));
}

bool Consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// What stands before `mark`, which is consumed too; none without it.
std::optional<std::string_view> ConsumeUpTo(std::string_view& text, std::string_view mark) {
  const size_t place = text.find(mark);
  if (place == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, place);
  text.remove_prefix(place + mark.size());
  return before;
}

// How many bytes at the end of `text` may be the beginning of a mark.
size_t BeginningAtEnd(std::string_view text) {
  size_t most = 0;
  for (const std::string_view mark : kMarks) {
    size_t bytes = std::min(text.size(), mark.size() - 1);
    while (bytes > 0 && !text.ends_with(mark.substr(0, bytes))) --bytes;
    most = std::max(most, bytes);
  }
  return most;
}

size_t FirstMark(std::string_view text) {
  size_t first = std::string_view::npos;
  for (const std::string_view mark : kMarks) first = std::min(first, text.find(mark));
  return first;
}

// The end of the JSON value that `text` begins with: of its brackets.
size_t EndOfJson(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[')) {
      ++depth;
    } else if (!quoted && (c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return text.size();
}

// The template puts line ends around a value.
std::string WithoutLineEnds(std::string_view value) {
  Consume(value, "\n");
  if (value.ends_with('\n')) value.remove_suffix(1);
  return std::string(value);
}

}  // namespace

void ToolSchemas::Add(const Json& tool) {
  const Json& function = tool.contains("function") ? tool["function"] : tool;
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) return;
  Json properties = Json::object();
  if (function.contains("parameters") && function["parameters"].is_object() &&
      function["parameters"].contains("properties") &&
      function["parameters"]["properties"].is_object()) {
    properties = function["parameters"]["properties"];
  }
  parameters_[function["name"].get<std::string>()] = std::move(properties);
}

bool ToolSchemas::MayBegin(std::string_view text) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [&](const auto& entry) {
    const std::string_view name = entry.first;
    if (name.starts_with(text)) return true;
    if (!text.starts_with(name)) return false;
    const std::string_view rest = text.substr(name.size());
    return rest.starts_with('{') || kArguments.starts_with(rest) || rest.starts_with(kArguments);
  });
}

Json ToolSchemas::ValueOf(const std::string& tool, const std::string& parameter,
                          const std::string& text) const {
  const auto found = parameters_.find(tool);
  const bool known = found != parameters_.end() && found->second.contains(parameter);
  const Json schema = known ? found->second[parameter] : Json();
  const bool is_text = schema.is_object() && schema.contains("type") && schema["type"] == "string";
  absl::StatusOr<Json> json = ParseJson(text);
  return is_text || !json.ok() ? Json(text) : *std::move(json);
}

bool ToolCallParser::MayBeBareCall() const {
  if (passed_text_) return false;
  const std::string_view text = Stripped(held_);
  return text.empty() || text[0] == '{' || text[0] == '[' || tools_->MayBegin(text);
}

std::string ToolCallParser::Add(std::string_view piece) {
  held_ += piece;
  if (waits_ || MayBeBareCall()) return "";
  const size_t mark = FirstMark(held_);
  waits_ = mark != std::string::npos;
  const size_t text = waits_ ? mark : held_.size() - BeginningAtEnd(held_);
  passed_text_ = passed_text_ || text > 0;
  std::string passed = held_.substr(0, text);
  held_.erase(0, text);
  return passed;
}

ToolCallParser::Rest ToolCallParser::Finish() {
  const std::string text = std::exchange(held_, "");
  if (auto marked = ReadMarked(text)) return *std::move(marked);
  if (passed_text_) return {text, {}};
  if (auto calls = ReadBare(Stripped(text), /*only_known=*/true)) return {"", *std::move(calls)};
  if (auto calls = ReadNamed(Stripped(text))) return {"", *std::move(calls)};
  return {text, {}};
}

// Text between and behind the calls stays text.
std::optional<ToolCallParser::Rest> ToolCallParser::ReadMarked(const std::string& text) const {
  std::string_view left = text;
  Rest rest;
  for (size_t mark = 0; (mark = FirstMark(left)) != std::string_view::npos;) {
    rest.text += left.substr(0, mark);
    left.remove_prefix(mark);
    std::string_view inner = left;
    if (Consume(left, kOpen)) {
      inner = left;
      const auto closed = ConsumeUpTo(left, kClose);
      if (closed.has_value()) inner = *closed;
      if (!closed.has_value()) left = {};
    } else {
      left = {};
    }
    auto calls = ReadInner(Stripped(inner));
    if (!calls.has_value()) return std::nullopt;
    for (ToolCall& call : *calls) rest.calls.push_back(std::move(call));
  }
  if (rest.calls.empty()) return std::nullopt;
  rest.text += left;
  if (Stripped(rest.text).empty()) rest.text.clear();
  return rest;
}

std::optional<ToolCallParser::Calls> ToolCallParser::ReadInner(std::string_view text) const {
  if (text.starts_with(kFunction)) return ReadXml(text);
  if (Consume(text, kMistral)) {
    text = Stripped(text);
    return text.starts_with('[') ? ReadBare(text, false) : ReadNamed(text);
  }
  Consume(text, kLlama);
  return ReadBare(Stripped(text), false);
}

std::optional<ToolCallParser::Calls> ToolCallParser::ReadXml(std::string_view text) const {
  Calls calls;
  while (Consume(text, kFunction)) {
    const auto name = ConsumeUpTo(text, ">");
    auto body = ConsumeUpTo(text, kFunctionEnd);
    if (!name.has_value() || !body.has_value()) return std::nullopt;
    Json arguments = Json::object();
    for (std::string_view left = Stripped(*body); Consume(left, kParameter);
         left = Stripped(left)) {
      const auto key = ConsumeUpTo(left, ">");
      const auto value = ConsumeUpTo(left, kParameterEnd);
      if (!key.has_value() || !value.has_value()) return std::nullopt;
      arguments[std::string(*key)] =
          tools_->ValueOf(std::string(*name), std::string(*key), WithoutLineEnds(*value));
    }
    calls.push_back({std::string(*name), Dump(arguments)});
    text = Stripped(text);
  }
  if (calls.empty() || !text.empty()) return std::nullopt;
  return calls;
}

// NAME[ARGS]{...} or NAME{...}, any number.
std::optional<ToolCallParser::Calls> ToolCallParser::ReadNamed(std::string_view text) const {
  Calls calls;
  while (!text.empty()) {
    const size_t brace = text.find('{');
    if (brace == std::string_view::npos) return std::nullopt;
    std::string_view name = Stripped(text.substr(0, brace));
    if (name.ends_with(kArguments)) name.remove_suffix(kArguments.size());
    text.remove_prefix(brace);
    const size_t end = EndOfJson(text);
    const auto arguments = ParseJson(text.substr(0, end));
    if (!arguments.ok() || !tools_->Has(std::string(name))) return std::nullopt;
    calls.push_back({std::string(name), Dump(*arguments)});
    text = Stripped(text.substr(end));
    Consume(text, kMistral);
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

// An object, objects with ; between, or an array of them.
std::optional<ToolCallParser::Calls> ToolCallParser::ReadBare(std::string_view text,
                                                              bool only_known) const {
  Calls calls;
  const auto add = [&](const Json& json) {
    auto call = ReadJsonCall(json, only_known);
    if (call.has_value()) calls.push_back(*std::move(call));
    return call.has_value();
  };
  while (!text.empty()) {
    const size_t end = EndOfJson(text);
    const auto json = ParseJson(text.substr(0, end));
    if (!json.ok()) return std::nullopt;
    const bool good = json->is_array() ? std::all_of(json->begin(), json->end(), add) : add(*json);
    if (!good) return std::nullopt;
    text = Stripped(text.substr(end));
    if (Consume(text, ";")) text = Stripped(text);
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

std::optional<ToolCall> ToolCallParser::ReadJsonCall(const Json& json, bool only_known) const {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return std::nullopt;
  const std::string name = json["name"].get<std::string>();
  if (only_known && !tools_->Has(name)) return std::nullopt;
  for (const char* const key : {"arguments", "parameters"}) {
    if (!json.contains(key)) continue;
    const Json& arguments = json[key];
    if (arguments.is_string()) return ToolCall{name, arguments.get<std::string>()};
    if (arguments.is_object()) return ToolCall{name, Dump(arguments)};
    return std::nullopt;
  }
  if (only_known) return std::nullopt;
  return ToolCall{name, "{}"};
}

}  // namespace rivulet::openai
