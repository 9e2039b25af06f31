// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// absl::Status → what an OpenAI client sees. docs/http.md has the table.
#ifndef RIVULET_SERVER_OPENAI_ERRORS_H_
#define RIVULET_SERVER_OPENAI_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "server/http/http_message.h"

namespace rivulet::openai {

// Payloads of a status: the error's `param` and `code`.
inline constexpr char kParamPayload[] = "rivulet/param";
inline constexpr char kCodePayload[] = "rivulet/code";

// {"error": {...}}
std::string ErrorBody(const absl::Status& status);

// With Retry-After where the status says when to retry.
HttpResponse ErrorResponse(const absl::Status& status);

// For what the HTTP server refuses by itself.
HttpResponse HttpRefusal(int http_status, const std::string& text);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_ERRORS_H_
