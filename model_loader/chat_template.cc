// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/jinja/lexer.h"
#include "model_loader/json.h"
#include "model_loader/mapped_file.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using jinja::FindEntry;
using jinja::Mapping;
using jinja::Value;
using nlohmann::json;

constexpr size_t kLargestConfig = size_t{16} << 20;  // it may list thousands of tokens
constexpr size_t kMostTemplates = 100;
constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

using Sources = std::map<std::string, std::string>;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  RIVULET_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() > jinja::kLargestSource) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", file->bytes().size(),
                                                   " bytes, the limit is ", jinja::kLargestSource));
  }
  return std::string(file->bytes().begin(), file->bytes().end());
}

// The files chat_template.jinja and additional_chat_templates/NAME.jinja.
absl::Status ReadFiles(const std::string& directory, Sources& sources) {
  std::error_code error;
  const std::filesystem::path first = std::filesystem::path(directory) / "chat_template.jinja";
  if (std::filesystem::exists(first, error)) {
    RIVULET_ASSIGN_OR_RETURN(sources[kDefault], ReadText(first.string()));
  }
  std::filesystem::directory_iterator entry(
      std::filesystem::path(directory) / "additional_chat_templates", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() != ".jinja" || sources.size() == kMostTemplates) continue;
    RIVULET_ASSIGN_OR_RETURN(sources[path.stem().string()], ReadText(path.string()));
  }
  return absl::OkStatus();
}

absl::Status ReadNamed(const json& list, const std::string& path, Sources& sources) {
  for (const json& one : list) {
    const bool valid = one.is_object() && one.contains("name") && one.contains("template") &&
                       one["name"].is_string() && one["template"].is_string();
    if (!valid || sources.size() == kMostTemplates) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": chat_template must be a string, or a list of at most ",
                       kMostTemplates, " objects with the strings name and template"));
    }
    sources[one["name"].get<std::string>()] = one["template"].get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status ReadConfigured(const json& config, const std::string& path, Sources& sources) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return absl::OkStatus();
  if (!found->is_string()) {
    return ReadNamed(found->is_array() ? *found : json::array({*found}), path, sources);
  }
  sources[kDefault] = found->get<std::string>();
  return absl::OkStatus();
}

// "<s>", or {"content": "<s>", ...}.
std::optional<std::string> TokenText(const json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  const bool described =
      found->is_object() && found->contains("content") && (*found)["content"].is_string();
  if (!described) return std::nullopt;
  return (*found)["content"].get<std::string>();
}

absl::StatusOr<json> ReadConfig(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return json::object();
  return ReadJsonObject(path, kLargestConfig);
}

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

// transformers hands a message's reasoning to templates under all of its names.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

Value ReasoningOf(const Mapping& message) {
  for (const char* const name : kReasoning) {
    const Value* const found = FindEntry(message, name);
    if (found != nullptr && !found->is_none()) return *found;
  }
  return Value(jinja::None());
}

// The message without the keys whose value is none, and with its reasoning under the names that
// templates read.
Value Prepare(const Mapping& message) {
  const Value reasoning = ReasoningOf(message);
  auto prepared = std::make_shared<Mapping>();
  if (!reasoning.is_none()) SetEntry(*prepared, Value::String("thinking"), reasoning);
  for (const auto& [key, value] : message.entries) {
    if (!value.is_none()) SetEntry(*prepared, key, value);
  }
  if (!reasoning.is_none()) SetEntry(*prepared, Value::String("reasoning_content"), reasoning);
  Measure(*prepared);
  return Value(Value::MappingPointer(std::move(prepared)));
}

Value ListOf(std::vector<Value> items) {
  auto list = std::make_shared<jinja::Sequence>();
  list->items = std::move(items);
  Measure(*list);
  return Value(std::move(list));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& directory) {
  const std::string path = directory + "/tokenizer_config.json";
  RIVULET_ASSIGN_OR_RETURN(const json config, ReadConfig(path));
  Sources sources;
  RIVULET_RETURN_IF_ERROR(ReadFiles(directory, sources));
  if (sources.count(kDefault) == 0) {
    RIVULET_RETURN_IF_ERROR(ReadConfigured(config, path, sources));
  }
  if (sources.empty()) return nullptr;
  RIVULET_ASSIGN_OR_RETURN(const json older, ReadConfig(directory + "/special_tokens_map.json"));
  auto result = std::make_unique<ChatTemplate>();
  for (const auto& [name, source] : sources) {
    result->templates_.emplace(name, jinja::Template::Parse(source));
    result->sources_ += source + "\n";
  }
  for (const char* const name : kSpecialTokens) {
    std::optional<std::string> text = TokenText(config, name);
    if (!text.has_value()) text = TokenText(older, name);
    if (text.has_value()) result->special_tokens_[name] = *std::move(text);
  }
  return result;
}

std::unique_ptr<ChatTemplate> ChatTemplate::FromSource(
    const std::string& source, std::vector<std::pair<std::string, std::string>> special_tokens) {
  auto result = std::make_unique<ChatTemplate>();
  result->templates_.emplace(kDefault, jinja::Template::Parse(source));
  result->sources_ = source;
  for (auto& [name, text] : special_tokens) result->special_tokens_[name] = std::move(text);
  return result;
}

void ChatTemplate::AddSpecialToken(const std::string& name, const std::string& text) {
  special_tokens_.emplace(name, text);
}

absl::StatusOr<const jinja::Template*> ChatTemplate::Choose(const ChatTemplateInput& input) const {
  std::string name = input.name;
  if (name.empty()) {
    const bool for_tools = !input.tools.empty() && templates_.count(kToolUse) > 0;
    name = for_tools ? kToolUse : kDefault;
  }
  const auto found = templates_.find(name);
  if (found == templates_.end()) {
    std::string names;
    for (const auto& [other, parsed] : templates_) absl::StrAppend(&names, " ", other);
    return absl::InvalidArgumentError(
        absl::StrCat("there is no chat template \"", name.substr(0, 100), "\"; there are:", names));
  }
  if (found->second.ok()) return &*found->second;
  return absl::FailedPreconditionError(
      absl::StrCat("the chat template \"", name, "\": ", found->second.status().message()));
}

absl::StatusOr<MarkedText> ChatTemplate::Render(const ChatTemplateInput& input,
                                                const jinja::RenderOptions& options) const {
  RIVULET_ASSIGN_OR_RETURN(const jinja::Template* const chosen, Choose(input));
  if (input.messages.empty()) return absl::InvalidArgumentError("there are no messages");
  std::vector<Value> messages;
  for (const Value& message : input.messages) messages.push_back(Prepare(*message.mapping()));
  Mapping names;
  const auto set = [&](const std::string& name, Value value) {
    SetEntry(names, Value::String(name), std::move(value));
  };
  for (const auto& [name, text] : special_tokens_) set(name, Value::String(text));
  for (const auto& [name, value] : input.variables) set(name, value);
  set("messages", ListOf(std::move(messages)));
  set("tools", input.tools.empty() ? Value(jinja::None()) : ListOf(input.tools));
  set("documents", FindEntry(names, "documents") == nullptr ? Value(jinja::None())
                                                            : *FindEntry(names, "documents"));
  set("add_generation_prompt", Value(input.add_generation_prompt));
  return chosen->Render(Value(std::make_shared<const Mapping>(std::move(names))), options);
}

}  // namespace rivulet
