// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/session_calls.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

constexpr uint32_t kDefaultPageSize = 100;
constexpr uint32_t kMaxPageSize = 1000;

// A session created or changed now would be gone in seconds. Reading and deleting still work.
absl::Status CheckNotDraining(const ServiceContext& service) {
  if (!service.scheduler.draining()) return absl::OkStatus();
  return absl::UnavailableError(
      "the server is shutting down, and its sessions end with it; send the request elsewhere");
}

v1::Session ToProto(const ServiceContext& service, const SessionInfo& session) {
  v1::Session proto;
  proto.set_id(session.id);
  proto.set_name(session.name);
  proto.set_position(session.tokens);
  if (session.holds_state) {
    proto.set_state_bytes(session.state_bytes);
    proto.set_pages(session.pages);
    if (session.state_bytes > 0) proto.set_tier(StateTier(service.metrics));
  }
  proto.set_messages_bytes(session.notes_bytes);
  for (const uint64_t position : session.kept_positions) proto.add_kept_positions(position);
  proto.set_kept_borders(session.kept_borders);
  proto.set_kept_bytes(session.kept_bytes);
  proto.set_forked_from(session.forked_from);
  proto.set_forked_at(session.forked_at);
  proto.set_created_unix_ms(session.created_unix_ms);
  proto.set_last_used_unix_ms(session.last_used_unix_ms);
  proto.set_busy(session.busy);
  return proto;
}

absl::Status Answer(const ServiceContext& service, const absl::StatusOr<SessionInfo>& session,
                    v1::Session& response) {
  if (session.ok()) response = ToProto(service, *session);
  return session.status();
}

}  // namespace

absl::Status GetModel(const ServedModel& model, const v1::GetModelRequest&, v1::Model& response) {
  response = model.info;
  response.set_has_tokenizer(model.tokenizer != nullptr);
  return absl::OkStatus();
}

absl::Status CreateSession(const CallerContext& call, const v1::CreateSessionRequest& request,
                           v1::Session& response) {
  RIVULET_RETURN_IF_ERROR(CheckNotDraining(call.service));
  RIVULET_ASSIGN_OR_RETURN(const SessionInfo session,
                           call.service.sessions.Create(call.Key(request.id()), request.name()));
  LogInfo("session_created",
          {{"tenant", session.tenant}, {"session_id", session.id}, {"name", session.name}});
  return Answer(call.service, session, response);
}

absl::Status GetSession(const CallerContext& call, const v1::GetSessionRequest& request,
                        v1::Session& response) {
  return Answer(call.service, call.service.sessions.Get(call.Key(request.id())), response);
}

// The page token is the last id of the previous page, so a session that is created or deleted in
// between does not shift the others.
absl::Status ListSessions(const CallerContext& call, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse& response) {
  if (request.page_size() > kMaxPageSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size = ", request.page_size(), ": at most ", kMaxPageSize));
  }
  const uint32_t size = request.page_size() > 0 ? request.page_size() : kDefaultPageSize;
  const std::vector<SessionInfo> sessions =
      call.service.sessions.List(call.Key(request.page_token()), size + 1);
  for (const SessionInfo& session : sessions) {
    if (response.sessions_size() == static_cast<int>(size)) {
      response.set_next_page_token(response.sessions().rbegin()->id());
      break;
    }
    *response.add_sessions() = ToProto(call.service, session);
  }
  return absl::OkStatus();
}

absl::Status UpdateSession(const CallerContext& call, const v1::UpdateSessionRequest& request,
                           v1::Session& response) {
  RIVULET_RETURN_IF_ERROR(CheckNotDraining(call.service));
  if (!request.has_name())
    return Answer(call.service, call.service.sessions.Get(call.Key(request.id())), response);
  RIVULET_ASSIGN_OR_RETURN(const SessionInfo session,
                           call.service.sessions.Rename(call.Key(request.id()), request.name()));
  LogInfo("session_renamed",
          {{"tenant", session.tenant}, {"session_id", session.id}, {"name", session.name}});
  return Answer(call.service, session, response);
}

absl::Status ForkSession(const CallerContext& call, const v1::ForkSessionRequest& request,
                         v1::Session& response) {
  RIVULET_RETURN_IF_ERROR(CheckNotDraining(call.service));
  std::optional<uint64_t> position;
  if (request.has_position()) position = request.position();
  RIVULET_ASSIGN_OR_RETURN(const SessionInfo session,
                           call.service.sessions.Fork(call.Key(request.id()), request.new_id(),
                                                      request.name(), position));
  LogInfo("session_forked", {{"tenant", session.tenant},
                             {"session_id", session.id},
                             {"from", request.id()},
                             {"name", session.name},
                             {"tokens", session.tokens}});
  return Answer(call.service, session, response);
}

absl::Status RewindSession(const CallerContext& call, const v1::RewindSessionRequest& request,
                           v1::Session& response) {
  RIVULET_RETURN_IF_ERROR(CheckNotDraining(call.service));
  RIVULET_ASSIGN_OR_RETURN(
      const SessionInfo session,
      call.service.sessions.Rewind(call.Key(request.id()), request.position()));
  LogInfo("session_rewound",
          {{"tenant", session.tenant}, {"session_id", session.id}, {"tokens", session.tokens}});
  return Answer(call.service, session, response);
}

absl::Status DeleteSession(const CallerContext& call, const v1::DeleteSessionRequest& request,
                           v1::DeleteSessionResponse&) {
  return call.service.sessions.Delete(call.Key(request.id()));
}

}  // namespace rivulet
