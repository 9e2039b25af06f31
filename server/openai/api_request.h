// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bodies of /v1/chat/completions and /v1/completions → GenerateRequest, and how the reply is to
// look. What the server does not serve is refused by name, not ignored, unless it changes no reply
// (docs/http.md lists all fields). Ranges are checked where gRPC's requests are (validation.h).
//
// Threading: pure functions, for a worker: a body may have megabytes.
#ifndef RIVULET_SERVER_OPENAI_API_REQUEST_H_
#define RIVULET_SERVER_OPENAI_API_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "server/http/http_message.h"
#include "server/openai/field_names.h"

namespace rivulet::openai {

enum class Endpoint : uint8_t { kChat, kCompletions };

// The prompts of one request.
inline constexpr size_t kMostPrompts = 128;

struct Prompt {
  std::optional<std::string> text;
  v1::TokenIds tokens;  // without a text
};

struct ApiRequest {
  v1::GenerateRequest proto;         // session_id as in the header, "new" included
  std::vector<Prompt> more_prompts;  // completions: those after the first, which proto has
  Endpoint endpoint = Endpoint::kChat;
  bool stream = false;
  bool include_usage = false;  // of a stream
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  bool token_ids = false;         // return_token_ids
  bool echo = false;              // completions: the prompt's text comes before the reply's
  bool parse_tool_calls = false;  // the reply may call one of the request's tools
  FieldNames names;               // for errors of the request that comes of it
};

// INVALID_ARGUMENT, or NOT_FOUND for another model than `model_name`.
absl::StatusOr<ApiRequest> ReadApiRequest(const HttpRequest& request, Endpoint endpoint,
                                          const std::string& model_name);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_API_REQUEST_H_
