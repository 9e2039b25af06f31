// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/field_names.h"

#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/openai/errors.h"

namespace rivulet::openai {
namespace {

bool IsOfName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

// The API's name for a field of GenerateRequest. None for what is no such field.
std::optional<std::string> NameOf(const FieldNames& names, std::string_view field) {
  constexpr std::string_view kSampling = "sampling.", kStructured = "structured_output";
  if (field.starts_with(kSampling)) return std::string(field.substr(kSampling.size()));
  if (field.starts_with(kStructured)) {
    return names.structured_output.empty() ? std::string(field) : names.structured_output;
  }
  if (field == "stop.strings") return "stop";
  if (field == "stop.token_ids") return "stop_token_ids";
  if (field == "stop.min_tokens") return "min_tokens";
  if (field == "request_id") return "x-request-id";
  if (field == "session_id" && !names.session.empty()) return names.session;
  if (field == "messages.variables") return "chat_template_kwargs";
  if (field == "logprobs" || field == "prompt_logprobs") return names.logprobs;
  for (const char* const prompt : {"prompt", "token_ids", "messages", "context"}) {
    if (field == prompt) return names.prompt;
  }
  if (field == "n" || field == "cache_salt" || field == "tools") return std::string(field);
  return std::nullopt;
}

// Where a text names the field at fault: "logprobs = 21", "bytes of cache_salt = 300".
struct Place {
  size_t begin = 0, size = 0;
};
Place FieldOf(std::string_view text) {
  Place place;
  for (const std::string_view before : {"bytes of ", "number of ", "the "}) {
    if (text.starts_with(before)) place.begin = before.size();
  }
  size_t end = place.begin;
  while (end < text.size() && IsOfName(text[end])) ++end;
  place.size = end - place.begin;
  return place;
}

// The text with the API's names of what else it speaks of.
std::string InWordsOf(const FieldNames& names, const std::string& text) {
  return absl::StrReplaceAll(
      text, {{" over max_tokens = ", absl::StrCat(" over ", names.max_tokens, " = ")},
             {"use stop.token_ids", "use stop_token_ids"},
             {"set prompt or token_ids", absl::StrCat("set ", names.prompt)},
             {"send token_ids", "send token ids"},
             {"send prompt or token_ids", "send a prompt to /v1/completions"},
             {"with prompt or token_ids", "with a prompt to /v1/completions"}});
}

// The text with the API's name in place of the field's.
std::string Renamed(const std::string& text, const Place& place, const std::string& name) {
  // "the prompt has 9 tokens" is clear for every API, and a message is not an item.
  const bool is_same = text.compare(place.begin, place.size, name) == 0;
  if (text.starts_with("the ") || is_same) return text;
  if (text.starts_with("messages[")) return absl::StrCat(name, ": ", text);
  return absl::StrCat(text.substr(0, place.begin), name, text.substr(place.begin + place.size));
}

// Errors of SessionTable.
bool IsOfSession(std::string_view text) {
  return text.starts_with("session ") || text.starts_with("no session ");
}

}  // namespace

absl::Status InFieldsOf(const FieldNames& names, const absl::Status& status) {
  if (status.ok() || status.GetPayload(kParamPayload).has_value()) return status;
  const std::string text(status.message());
  const Place place = FieldOf(text);
  std::optional<std::string> name =
      NameOf(names, std::string_view(text).substr(place.begin, place.size));
  const std::string named = name.has_value() ? Renamed(text, place, *name) : text;
  if (!names.session.empty() && IsOfSession(text)) name = names.session;
  absl::Status renamed(status.code(), InWordsOf(names, named));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    renamed.SetPayload(type, payload);
  });
  if (name.has_value()) renamed.SetPayload(kParamPayload, absl::Cord(*name));
  return renamed;
}

}  // namespace rivulet::openai
