// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Methods that do not need the scheduler: bytes in, handler on a worker, bytes out. Parsing may be
// slow, so it is not done on gRPC's thread.
#ifndef RIVULET_SERVER_RPC_UNARY_CALL_H_
#define RIVULET_SERVER_RPC_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "server/rpc/service_context.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"

namespace rivulet {

// `Subject` is what the method works on, for example the model.
template <typename Subject, typename Request, typename Response>
using Handler = absl::Status (*)(const Subject&, const Request&, Response&);

template <typename Subject, typename Request, typename Response>
absl::Status Handle(const Subject& subject, Handler<Subject, Request, Response> handler,
                    const grpc::ByteBuffer& wire_request, grpc::ByteBuffer* wire_response) {
  Request request;
  Response response;
  absl::Status status = ParseMessage(wire_request, &request);
  if (status.ok()) status = handler(subject, request, response);
  if (status.ok()) status = SerializeMessage(response, wire_response);
  return status;
}

class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit UnaryReactor(CallCount& calls) : counted_(calls) {}
  void OnDone() override { delete this; }

 private:
  CountedCall counted_;
};

// Runs `handler` on a worker. gRPC keeps request and response until the call is finished.
template <typename Subject, typename Request, typename Response>
grpc::ServerUnaryReactor* RunOnPool(const ServiceContext& service, const Subject& subject,
                                    grpc::CallbackServerContext* context,
                                    Handler<Subject, Request, Response> handler,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* const reactor = new UnaryReactor(service.calls);
  const auto work = [=, &subject] {
    const absl::Status status = OrNoMemory([&]() -> absl::Status {
      if (context->IsCancelled()) return absl::CancelledError("cancelled while it waited");
      return Handle(subject, handler, *request, response);
    });
    FinishCall(*reactor, *context, status);
  };
  if (!service.pool.Run(work, request->Length())) FinishCall(*reactor, *context, TooManyCalls());
  return reactor;
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_UNARY_CALL_H_
