// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/errors.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/openai/json_body.h"
#include "server/service/call_status.h"

namespace rivulet::openai {
namespace {

struct Meaning {
  int status;
  const char* type;
  const char* code;  // unless the status has its own; may be null
};

Meaning MeaningOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return {400, "invalid_request_error", nullptr};
    case absl::StatusCode::kFailedPrecondition:
      return {400, "invalid_request_error", "failed_precondition"};
    case absl::StatusCode::kOutOfRange:
      return {400, "invalid_request_error", "out_of_range"};
    case absl::StatusCode::kUnauthenticated:
      return {401, "invalid_request_error", "invalid_api_key"};
    case absl::StatusCode::kPermissionDenied:
      return {403, "invalid_request_error", "insufficient_permissions"};
    case absl::StatusCode::kNotFound:
      return {404, "invalid_request_error", "session_not_found"};
    case absl::StatusCode::kAlreadyExists:
      return {409, "invalid_request_error", "already_exists"};
    case absl::StatusCode::kAborted:
      return {409, "invalid_request_error", "session_busy"};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", "resource_exhausted"};
    case absl::StatusCode::kCancelled:
      return {499, "cancelled", "cancelled"};
    case absl::StatusCode::kUnimplemented:
      return {501, "invalid_request_error", "unimplemented"};
    case absl::StatusCode::kUnavailable:
      return {503, "server_error", "unavailable"};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "server_error", "deadline_exceeded"};
    default:
      return {500, "server_error", "internal"};
  }
}

Json Payload(const absl::Status& status, const char* name) {
  const absl::optional<absl::Cord> payload = status.GetPayload(name);
  return payload.has_value() ? Json(std::string(*payload)) : Json(nullptr);
}

std::string Body(const std::string& message, const char* type, const Json& param,
                 const Json& code) {
  const Json error = {{"message", message}, {"type", type}, {"param", param}, {"code", code}};
  return Dump({{"error", error}});
}

// The header counts in seconds; OpenAI's clients prefer the other.
void AddRetry(const absl::Status& status, HttpResponse& response) {
  std::string ms = RetryAfterMs(status);
  if (ms.empty() && response.status == 503) ms = "1000";
  if (!ms.empty()) {
    const int64_t seconds = (std::atoll(ms.c_str()) + 999) / 1000;
    response.headers.push_back({"Retry-After", std::to_string(seconds)});
    response.headers.push_back({"retry-after-ms", ms});
  } else if (response.status == 429) {
    // Waiting alone does not help, and OpenAI's clients would try again by themselves.
    response.headers.push_back({"x-should-retry", "false"});
  }
}

}  // namespace

std::string ErrorBody(const absl::Status& status) {
  const Meaning meaning = MeaningOf(status.code());
  Json code = Payload(status, kCodePayload);
  if (code.is_null() && meaning.code != nullptr) code = meaning.code;
  const std::string message(status.message());
  return Body(message, meaning.type, Payload(status, kParamPayload), code);
}

HttpResponse ErrorResponse(const absl::Status& status) {
  HttpResponse response;
  response.status = MeaningOf(status.code()).status;
  response.content_type = "application/json";
  response.body = ErrorBody(status);
  AddRetry(status, response);
  if (response.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

HttpResponse HttpRefusal(int http_status, const std::string& text) {
  const char* const type = http_status >= 500 ? "server_error" : "invalid_request_error";
  return {http_status, "application/json", {}, Body(text, type, nullptr, nullptr) + "\n"};
}

}  // namespace rivulet::openai
