// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bodies of /v1/responses → GenerateRequest, and how the response is to look. As in api_request.h,
// what is not served is refused by name (docs/http.md lists all fields).
//
// Threading: pure functions, for a worker: a body may have megabytes.
#ifndef RIVULET_SERVER_OPENAI_RESPONSE_REQUEST_H_
#define RIVULET_SERVER_OPENAI_RESPONSE_REQUEST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "server/http/http_message.h"
#include "server/openai/field_names.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {

struct ResponseRequest {
  v1::GenerateRequest proto;  // without a session
  std::string previous_id;    // empty: the conversation begins
  bool store = true;
  bool stream = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  bool parse_tool_calls = false;  // the model may call one of the request's tools
  Json echo;                      // what the response repeats of the request
  Json input;                     // as it was sent
  FieldNames names;               // for errors of the request that comes of it
};

// INVALID_ARGUMENT, or NOT_FOUND for another model than `model_name`.
absl::StatusOr<ResponseRequest> ReadResponseRequest(const HttpRequest& http,
                                                    const std::string& model_name);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_RESPONSE_REQUEST_H_
