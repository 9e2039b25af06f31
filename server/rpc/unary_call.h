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

namespace rivulet {

// One call: gRPC keeps request and response until it is finished.
struct UnaryCall {
  grpc::CallbackServerContext* context;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;
};

// Runs `handle(caller, request, response)` on a worker, since parsing may be slow, unless the
// caller's token does not allow it.
template <typename Request, typename Response, typename Handle>
grpc::ServerUnaryReactor* RunForCaller(const ServiceContext& service, Scope scope, UnaryCall call,
                                       Handle handle) {
  const auto reactor = std::make_shared<CountedReactor<grpc::ServerUnaryReactor>>(service.calls);
  reactor->Own(reactor);
  const absl::StatusOr<CallerPtr> caller = CallerOf(service, *call.context, scope);
  if (!caller.ok()) {
    CountRefusal(service.metrics, caller.status());
    FinishCall(*reactor, *call.context, caller.status());
    return reactor.get();
  }
  const auto answer = [=, &service, caller = *caller]() -> absl::Status {
    if (call.context->IsCancelled()) return absl::CancelledError("cancelled while it waited");
    Request proto;
    Response response;
    RIVULET_RETURN_IF_ERROR(ParseMessage(*call.request, &proto));
    RIVULET_RETURN_IF_ERROR(handle(CallerContext{service, *caller}, proto, response));
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
  return RunForCaller<Request, Response>(service, scope, call, handler);
}

// Of a method that is the same for all callers: `subject` is what it works on, for example the
// model; it outlives the call.
template <typename Subject, typename Request, typename Response>
grpc::ServerUnaryReactor* RunOnPool(const ServiceContext& service, const Subject& subject,
                                    absl::Status (*handler)(const Subject&, const Request&,
                                                            Response&),
                                    UnaryCall call) {
  const auto handle = [&subject, handler](const CallerContext&, const Request& request,
                                          Response& response) {
    return handler(subject, request, response);
  };
  return RunForCaller<Request, Response>(service, Scope::kGenerate, call, handle);
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_UNARY_CALL_H_
