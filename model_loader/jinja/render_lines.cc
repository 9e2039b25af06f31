// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Renders templates for compare_with_transformers.py. Each line of standard input is a JSON object
// with "template", "input" and, for strftime_now, "now" in Unix seconds. Each line of standard
// output is {"text": ...} or {"error": ...}.
#include <iostream>
#include <map>
#include <string>

#include "model_loader/jinja/json_text.h"
#include "model_loader/jinja/template.h"

namespace rivulet::jinja {
namespace {

std::string Member(const Value& object, std::string_view name) {
  const Value* const found = FindEntry(*object.mapping(), name);
  return found == nullptr || found->text() == nullptr ? "" : found->text()->bytes;
}

absl::StatusOr<std::string> RenderLine(const std::string& line) {
  static std::map<std::string, absl::StatusOr<Template>> parsed;
  const absl::StatusOr<Value> job = ParseJsonValue(line, "the line");
  if (!job.ok()) return job.status();
  const std::string source = Member(*job, "template");
  const auto found = parsed.try_emplace(source, Template::Parse(source)).first;
  if (!found->second.ok()) return found->second.status();
  const Value* const now = FindEntry(*job->mapping(), "now");
  RenderOptions options;
  if (now != nullptr) options.now.unix_seconds = *now->integer();
  auto text = found->second->Render(*FindEntry(*job->mapping(), "input"), options);
  if (!text.ok()) return text.status();
  return std::move(text->bytes);
}

int Run() {
  for (std::string line; std::getline(std::cin, line);) {
    const absl::StatusOr<std::string> text = RenderLine(line);
    std::string shown = text.ok() ? *text : std::string(text.status().message());
    std::string answer = text.ok() ? "{\"text\": " : "{\"error\": ";
    if (!AppendJson(Value::String(std::move(shown)), {}, size_t{1} << 30, answer).ok()) return 1;
    std::cout << answer << "}" << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace rivulet::jinja

int main() { return rivulet::jinja::Run(); }
