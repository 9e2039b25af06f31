// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/sessions.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "rivulet/v1/inference.pb.h"
#include "server/openai/errors.h"
#include "server/openai/json_body.h"
#include "server/openai/json_call.h"
#include "server/openai/message_json.h"
#include "server/service/session_calls.h"

namespace rivulet::openai {
namespace {

// An id and a name, escaped in the longest way, take 2 KiB.
constexpr size_t kLargestBody = 16 << 10;

using Exchange = std::shared_ptr<HttpExchange>;

// "x" of "/v1/sessions/x/fork".
std::string IdOf(const HttpRequest& request) {
  const std::string_view rest = std::string_view(request.path).substr(std::strlen("/v1/sessions/"));
  return PercentDecoded(rest.substr(0, rest.find('/')));
}

// An empty body is an object without fields.
absl::StatusOr<Json> BodyOf(const HttpRequest& request) {
  if (request.body.empty()) return Json::object();
  RIVULET_ASSIGN_OR_RETURN(Json body, ParseJson(request.body));
  if (!body.is_object()) return absl::InvalidArgumentError("the body must be a JSON object");
  return body;
}

// As a number, or in quotes, as MessageJson writes it.
std::optional<uint64_t> ReadPosition(FieldReader& fields) {
  const Json* const value = fields.Find("position");
  if (value == nullptr) return std::nullopt;
  uint64_t position = 0;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  if (value->is_string() && absl::SimpleAtoi(value->get<std::string>(), &position)) return position;
  fields.Fail("position", "it must be a number of tokens");
  return std::nullopt;
}

// Which field an error is about; `id`: the one that names a new session. Null: none, as where the
// path names the session.
const char* FieldOf(const absl::Status& status, const char* id) {
  const std::string_view text = ToStd(status.message());
  if (absl::IsOutOfRange(status)) return "position";
  if (absl::IsAlreadyExists(status) || text.starts_with("session id")) return id;
  if (text.starts_with("session name")) return "name";
  return text.starts_with("page_size") ? "page_size" : nullptr;
}

template <typename Response, typename Request>
absl::StatusOr<std::string> Answer(absl::Status (*call)(const CallerContext&, const Request&,
                                                        Response&),
                                   const CallerContext& caller, const Request& request,
                                   const char* id = nullptr) {
  Response response;
  absl::Status status = call(caller, request, response);
  if (status.ok()) return MessageJson(response);
  const char* const field = FieldOf(status, id);
  if (field != nullptr) status.SetPayload(kParamPayload, absl::Cord(field));
  return status;
}

// ---- The methods, on a worker.

absl::StatusOr<std::string> List(const CallerContext& caller, const HttpRequest& http) {
  v1::ListSessionsRequest request;
  request.set_page_token(QueryValue(http.query, "page_token").value_or(""));
  uint32_t page_size = 0;
  if (const auto size = QueryValue(http.query, "page_size")) {
    if (!absl::SimpleAtoi(*size, &page_size)) {
      return FieldError("page_size", "it must be a number of sessions");
    }
  }
  request.set_page_size(page_size);
  return Answer(&ListSessions, caller, request);
}

absl::StatusOr<std::string> Create(const CallerContext& caller, const HttpRequest& http) {
  RIVULET_ASSIGN_OR_RETURN(const Json body, BodyOf(http));
  FieldReader fields(body, "");
  v1::CreateSessionRequest request;
  request.set_id(fields.Text("id").value_or(""));
  request.set_name(fields.Text("name").value_or(""));
  RIVULET_RETURN_IF_ERROR(fields.Finish());
  return Answer(&CreateSession, caller, request, "id");
}

absl::StatusOr<std::string> Get(const CallerContext& caller, const HttpRequest& http) {
  v1::GetSessionRequest request;
  request.set_id(IdOf(http));
  return Answer(&GetSession, caller, request);
}

absl::StatusOr<std::string> Update(const CallerContext& caller, const HttpRequest& http) {
  RIVULET_ASSIGN_OR_RETURN(const Json body, BodyOf(http));
  FieldReader fields(body, "");
  v1::UpdateSessionRequest request;
  request.set_id(IdOf(http));
  if (const auto name = fields.Text("name")) request.set_name(*name);
  RIVULET_RETURN_IF_ERROR(fields.Finish());
  return Answer(&UpdateSession, caller, request);
}

absl::StatusOr<std::string> Delete(const CallerContext& caller, const HttpRequest& http) {
  v1::DeleteSessionRequest request;
  request.set_id(IdOf(http));
  return Answer(&DeleteSession, caller, request);
}

absl::StatusOr<std::string> Fork(const CallerContext& caller, const HttpRequest& http) {
  RIVULET_ASSIGN_OR_RETURN(const Json body, BodyOf(http));
  FieldReader fields(body, "");
  v1::ForkSessionRequest request;
  request.set_id(IdOf(http));
  request.set_new_id(fields.Text("new_id").value_or(""));
  request.set_name(fields.Text("name").value_or(""));
  if (const auto position = ReadPosition(fields)) request.set_position(*position);
  RIVULET_RETURN_IF_ERROR(fields.Finish());
  return Answer(&ForkSession, caller, request, "new_id");
}

absl::StatusOr<std::string> Rewind(const CallerContext& caller, const HttpRequest& http) {
  RIVULET_ASSIGN_OR_RETURN(const Json body, BodyOf(http));
  FieldReader fields(body, "");
  v1::RewindSessionRequest request;
  request.set_id(IdOf(http));
  const std::optional<uint64_t> position = ReadPosition(fields);
  // gRPC cannot tell 0 from a position that was forgotten.
  if (!position.has_value()) fields.Fail("position", "say how many tokens the session keeps");
  RIVULET_RETURN_IF_ERROR(fields.Finish());
  request.set_position(*position);
  return Answer(&RewindSession, caller, request);
}

// ---- Routes.

struct SessionRoute {
  const char* method;
  const char* path;
  JsonMethod call;
};

constexpr SessionRoute kRoutes[] = {
    {"GET", "/v1/sessions", &List},
    {"POST", "/v1/sessions", &Create},
    {"GET", "/v1/sessions/*", &Get},
    {"PATCH", "/v1/sessions/*", &Update},
    {"DELETE", "/v1/sessions/*", &Delete},
    {"POST", "/v1/sessions/*/fork", &Fork},
    {"POST", "/v1/sessions/*/rewind", &Rewind},
};

}  // namespace

void AddSessionRoutes(const ServiceContext& service, std::vector<HttpRoute>& routes) {
  for (const SessionRoute& route : kRoutes) {
    routes.push_back({route.method, route.path, kLargestBody,
                      [&service, method = route.call](const Exchange& exchange) {
                        StartJsonCall(service, method, exchange);
                      },
                      Scope::kSessions});
  }
}

}  // namespace rivulet::openai
