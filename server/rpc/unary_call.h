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
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/call_status.h"
#include "server/service/service_context.h"

namespace rivulet {

// Runs `handler` on a worker, since parsing may be slow. `Subject` is what the method works on, for
// example the model; it outlives the call. gRPC keeps request and response until the call is
// finished.
template <typename Subject, typename Request, typename Response>
grpc::ServerUnaryReactor* RunOnPool(const ServiceContext& service, const Subject& subject,
                                    absl::Status (*handler)(const Subject&, const Request&,
                                                            Response&),
                                    grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const auto reactor = std::make_shared<CountedReactor<grpc::ServerUnaryReactor>>(service.calls);
  reactor->Own(reactor);
  const auto handle = [=, &subject]() -> absl::Status {
    if (context->IsCancelled()) return absl::CancelledError("cancelled while it waited");
    Request proto;
    Response answer;
    RIVULET_RETURN_IF_ERROR(ParseMessage(*request, &proto));
    RIVULET_RETURN_IF_ERROR(handler(subject, proto, answer));
    return SerializeMessage(answer, response);
  };
  const auto work = [=] { FinishCall(*reactor, *context, OrNoMemory(handle)); };
  if (!service.pool.Run(work, request->Length())) FinishCall(*reactor, *context, TooManyCalls());
  return reactor.get();
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_UNARY_CALL_H_
