// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "server/log/log.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/unary_call.h"

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

absl::Status Answer(const absl::StatusOr<SessionInfo>& session, v1::Session& response) {
  if (session.ok()) response = ToProto(*session);
  return session.status();
}

absl::Status CreateSession(const ServiceContext& service, const v1::CreateSessionRequest& request,
                           v1::Session& response) {
  RIVULET_RETURN_IF_ERROR(CheckNotDraining(service));
  RIVULET_ASSIGN_OR_RETURN(const SessionInfo session,
                           service.sessions.Create(request.id(), request.name()));
  LogInfo("session_created", {{"session_id", session.id}, {"name", session.name}});
  response = ToProto(session);
  return absl::OkStatus();
}

absl::Status GetSession(const ServiceContext& service, const v1::GetSessionRequest& request,
                        v1::Session& response) {
  return Answer(service.sessions.Get(request.id()), response);
}

// The page token is the last id of the previous page, so a session that is created or deleted in
// between does not shift the others.
absl::Status ListSessions(const ServiceContext& service, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse& response) {
  if (request.page_size() > kMaxPageSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size = ", request.page_size(), ": at most ", kMaxPageSize));
  }
  const uint32_t size = request.page_size() > 0 ? request.page_size() : kDefaultPageSize;
  const std::vector<SessionInfo> sessions = service.sessions.List(request.page_token(), size + 1);
  for (const SessionInfo& session : sessions) {
    if (response.sessions_size() == static_cast<int>(size)) {
      response.set_next_page_token(response.sessions().rbegin()->id());
      break;
    }
    *response.add_sessions() = ToProto(session);
  }
  return absl::OkStatus();
}

absl::Status UpdateSession(const ServiceContext& service, const v1::UpdateSessionRequest& request,
                           v1::Session& response) {
  RIVULET_RETURN_IF_ERROR(CheckNotDraining(service));
  if (!request.has_name()) return Answer(service.sessions.Get(request.id()), response);
  RIVULET_ASSIGN_OR_RETURN(const SessionInfo session,
                           service.sessions.Rename(request.id(), request.name()));
  LogInfo("session_renamed", {{"session_id", session.id}, {"name", session.name}});
  response = ToProto(session);
  return absl::OkStatus();
}

absl::Status DeleteSession(const ServiceContext& service, const v1::DeleteSessionRequest& request,
                           v1::DeleteSessionResponse&) {
  return service.sessions.Delete(request.id());
}

using RawCreate = v1::Sessions::WithRawCallbackMethod_CreateSession<v1::Sessions::Service>;
using RawGet = v1::Sessions::WithRawCallbackMethod_GetSession<RawCreate>;
using RawList = v1::Sessions::WithRawCallbackMethod_ListSessions<RawGet>;
using RawUpdate = v1::Sessions::WithRawCallbackMethod_UpdateSession<RawList>;
using RawSessions = v1::Sessions::WithRawCallbackMethod_DeleteSession<RawUpdate>;

class SessionsService final : public RawSessions {
 public:
  explicit SessionsService(const ServiceContext& context) : service_(context) {}

  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return RunOnPool(service_, service_, context, &rivulet::CreateSession, request, response);
  }
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return RunOnPool(service_, service_, context, &rivulet::GetSession, request, response);
  }
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override {
    return RunOnPool(service_, service_, context, &rivulet::ListSessions, request, response);
  }
  grpc::ServerUnaryReactor* UpdateSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return RunOnPool(service_, service_, context, &rivulet::UpdateSession, request, response);
  }
  grpc::ServerUnaryReactor* DeleteSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return RunOnPool(service_, service_, context, &rivulet::DeleteSession, request, response);
  }

 private:
  const ServiceContext& service_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionsService(const ServiceContext& context) {
  return std::make_unique<SessionsService>(context);
}

}  // namespace rivulet
