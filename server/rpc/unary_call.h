// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Unary methods that need neither scheduler nor engine.
#ifndef RIVULET_SERVER_RPC_UNARY_CALL_H_
#define RIVULET_SERVER_RPC_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/rpc/counted_reactor.h"
#include "server/rpc/origin.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/call_status.h"
#include "server/service/service_context.h"
#include "server/service/tenant_request.h"

namespace rivulet {

// One call: gRPC keeps request and response until it is finished.
struct UnaryCall {
  grpc::CallbackServerContext* context;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;
};

// A caller, and its request while that counts against the limits of its tenant.
struct AdmittedCall {
  CallerPtr caller;
  std::shared_ptr<TenantRequest> counted;  // null: it does not count
};
inline absl::StatusOr<AdmittedCall> AdmitUnary(const ServiceContext& service,
                                               const grpc::ServerContextBase& context, Scope scope,
                                               bool counts) {
  AdmittedCall admitted;
  RIVULET_ASSIGN_OR_RETURN(admitted.caller, CallerOf(service, context, scope));
  if (!counts) return admitted;
  RIVULET_ASSIGN_OR_RETURN(admitted.counted,
                           TenantRequest::Begin(service, admitted.caller->tenant));
  return admitted;
}

// Runs `handle(caller, request, response)` on a worker, since parsing may be slow, unless the
// caller's token does not allow it. `counts`: against the tenant's limits; what gateways poll does
// not.
template <typename Request, typename Response, typename Handle>
grpc::ServerUnaryReactor* RunForCaller(const ServiceContext& service, Scope scope, UnaryCall call,
                                       Handle handle, bool counts) {
  const auto reactor = std::make_shared<CountedReactor<grpc::ServerUnaryReactor>>(service.calls);
  reactor->Own(reactor);
  const absl::StatusOr<AdmittedCall> admitted = AdmitUnary(service, *call.context, scope, counts);
  if (!admitted.ok()) {
    CountRefusal(service.metrics, admitted.status());
    FinishCall(*reactor, *call.context, admitted.status());
    return reactor.get();
  }
  const auto answer = [=, &service, admitted = *admitted]() -> absl::Status {
    if (call.context->IsCancelled()) return absl::CancelledError("cancelled while it waited");
    Request proto;
    Response response;
    RIVULET_RETURN_IF_ERROR(ParseMessage(*call.request, &proto));
    RIVULET_RETURN_IF_ERROR(handle(CallerContext{service, *admitted.caller}, proto, response));
    return SerializeMessage(response, call.response);
  };
  const auto work = [=] { FinishCall(*reactor, *call.context, OrNoMemory(answer)); };
  if (!service.pool.Run(work, call.request->Length())) {
    FinishCall(*reactor, *call.context, TooManyCalls());
  }
  return reactor.get();
}

// Of a method that works on what belongs to the caller.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* RunOnPool(const ServiceContext& service, Scope scope,
                                    absl::Status (*handler)(const CallerContext&, const Request&,
                                                            Response&),
                                    UnaryCall call) {
  return RunForCaller<Request, Response>(service, scope, call, handler, /*counts=*/true);
}

// Of a method that is the same for all callers: `subject` is what it works on, for example the
// model; it outlives the call.
template <typename Subject, typename Request, typename Response>
grpc::ServerUnaryReactor* RunOnPool(const ServiceContext& service, const Subject& subject,
                                    absl::Status (*handler)(const Subject&, const Request&,
                                                            Response&),
                                    UnaryCall call, bool counts = false) {
  const auto handle = [&subject, handler](const CallerContext&, const Request& request,
                                          Response& response) {
    return handler(subject, request, response);
  };
  return RunForCaller<Request, Response>(service, Scope::kGenerate, call, handle, counts);
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_UNARY_CALL_H_
