// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/post_processor.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr size_t kMostTokens = 64;

absl::StatusOr<uint32_t> ReadId(const nlohmann::json& id, size_t end_id) {
  if (id.is_number_unsigned() && id.get<uint64_t>() < end_id) return id.get<uint32_t>();
  return absl::InvalidArgumentError(
      absl::StrCat("the id ", id.dump(), " is not below ", end_id, ", the end of the vocabulary"));
}

// The ids of a special token of a template.
absl::Status AppendSpecial(const nlohmann::json& special_tokens, const std::string& name,
                           size_t end_id, std::vector<uint32_t>* ids) {
  const auto entry = special_tokens.find(name);
  if (entry == special_tokens.end() || !entry->is_object() || !entry->contains("ids") ||
      !(*entry)["ids"].is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the template's token \"", name, "\" has no ids in \"special_tokens\""));
  }
  for (const nlohmann::json& id : (*entry)["ids"]) {
    RIVULET_ASSIGN_OR_RETURN(const uint32_t read, ReadId(id, end_id));
    ids->push_back(read);
  }
  if (ids->size() <= kMostTokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a template of more than ", kMostTokens, " tokens"));
}

absl::StatusOr<SurroundingTokens> ReadTemplate(ConfigReader& reader, size_t end_id) {
  const nlohmann::json* const single = reader.Find("single");
  const nlohmann::json* const special = reader.Find("special_tokens");
  const nlohmann::json none = nlohmann::json::object();
  if (single == nullptr || !single->is_array()) {
    return absl::InvalidArgumentError("TemplateProcessing without a list \"single\"");
  }
  SurroundingTokens tokens;
  bool behind = false;
  for (const nlohmann::json& part : *single) {
    ConfigReader part_reader(part);
    if (part_reader.Has("Sequence")) {
      behind = true;
      continue;
    }
    const nlohmann::json* const token = part_reader.Find("SpecialToken");
    ConfigReader token_reader(token == nullptr ? none : *token);
    const std::string name = token_reader.String("id");
    RIVULET_RETURN_IF_ERROR(token_reader.status());
    RIVULET_RETURN_IF_ERROR(AppendSpecial(special == nullptr ? none : *special, name, end_id,
                                          behind ? &tokens.after : &tokens.before));
  }
  return tokens;
}

// ["[SEP]", 102]
absl::Status AppendPair(ConfigReader& reader, const char* key, size_t end_id,
                        std::vector<uint32_t>* ids) {
  const nlohmann::json* const pair = reader.Find(key);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is no pair [\"token\", id]"));
  }
  RIVULET_ASSIGN_OR_RETURN(const uint32_t id, ReadId((*pair)[1], end_id));
  ids->push_back(id);
  return absl::OkStatus();
}

absl::StatusOr<SurroundingTokens> ReadSequence(ConfigReader& reader, size_t end_id) {
  const nlohmann::json* const parts = reader.Find("processors");
  if (parts == nullptr || !parts->is_array() || parts->size() > kMostTokens) {
    return absl::InvalidArgumentError("Sequence without a list \"processors\", or a long one");
  }
  SurroundingTokens tokens;
  for (const nlohmann::json& part : *parts) {
    RIVULET_ASSIGN_OR_RETURN(const SurroundingTokens more, ParsePostProcessor(part, end_id));
    tokens.before.insert(tokens.before.begin(), more.before.begin(), more.before.end());
    tokens.after.insert(tokens.after.end(), more.after.begin(), more.after.end());
  }
  return tokens;
}

}  // namespace

absl::StatusOr<SurroundingTokens> ParsePostProcessor(const nlohmann::json& json, size_t end_id) {
  SurroundingTokens tokens;
  if (json.is_null()) return tokens;
  ConfigReader reader(json);
  const std::string type = reader.String("type");
  RIVULET_RETURN_IF_ERROR(reader.status());
  if (type == "ByteLevel") return tokens;
  if (type == "Sequence") return ReadSequence(reader, end_id);
  if (type == "TemplateProcessing") return ReadTemplate(reader, end_id);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    RIVULET_RETURN_IF_ERROR(AppendPair(reader, "cls", end_id, &tokens.before));
    RIVULET_RETURN_IF_ERROR(AppendPair(reader, "sep", end_id, &tokens.after));
    return tokens;
  }
  return absl::UnimplementedError(absl::StrCat("the post-processor ", type, " is not supported"));
}

}  // namespace rivulet
