// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Methods of a protocol that are not served: UNIMPLEMENTED, and `why` says what to use instead.
// They ask for a token as others do.
#ifndef RIVULET_SERVER_RPC_REFUSAL_H_
#define RIVULET_SERVER_RPC_REFUSAL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/rpc/counted_reactor.h"
#include "server/rpc/origin.h"
#include "server/rpc/status_map.h"
#include "server/service/service_context.h"

namespace rivulet {

inline absl::Status NotServed(const ServiceContext& service, const grpc::ServerContextBase& context,
                              const char* why) {
  RIVULET_RETURN_IF_ERROR(CallerOf(service, context, Scope::kGenerate).status());
  return absl::UnimplementedError(why);
}

inline grpc::ServerUnaryReactor* RefuseUnary(const ServiceContext& service,
                                             grpc::CallbackServerContext& context,
                                             const char* why) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  FinishCall(*reactor, context, NotServed(service, context, why));
  return reactor;
}

inline grpc::ServerWriteReactor<grpc::ByteBuffer>* RefuseStream(
    const ServiceContext& service, grpc::CallbackServerContext& context, const char* why) {
  using Reactor = CountedReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>>;
  const auto reactor = std::make_shared<Reactor>(service.calls);
  reactor->Own(reactor);
  FinishCall(*reactor, context, NotServed(service, context, why));
  return reactor.get();
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_REFUSAL_H_
