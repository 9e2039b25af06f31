// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "rivulet/v1/inference.grpc.pb.h"
#include "server/rpc/services.h"
#include "server/rpc/status_map.h"

namespace rivulet {
namespace {

class SessionsService final : public v1::Sessions::CallbackService {
 public:
  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const v1::CreateSessionRequest*, v1::Session*) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest*, v1::Session*) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest*,
                                         v1::ListSessionsResponse*) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* DeleteSession(grpc::CallbackServerContext* context,
                                          const v1::DeleteSessionRequest*,
                                          v1::DeleteSessionResponse*) override {
    return Refuse(context);
  }

 private:
  static grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(absl::UnimplementedError(
        "Sessions: this version keeps no sessions; use Generate with the whole prompt")));
    return reactor;
  }
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionsService() { return std::make_unique<SessionsService>(); }

}  // namespace rivulet
