// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Methods of a protocol that are not served: UNIMPLEMENTED, and `why` says what to use instead.
#ifndef RIVULET_SERVER_RPC_REFUSAL_H_
#define RIVULET_SERVER_RPC_REFUSAL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "server/rpc/counted_reactor.h"
#include "server/service/service_context.h"

namespace rivulet {

inline grpc::Status NotServed(const char* why) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, why);
}

inline grpc::ServerUnaryReactor* RefuseUnary(grpc::CallbackServerContext& context,
                                             const char* why) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(NotServed(why));
  return reactor;
}

inline grpc::ServerWriteReactor<grpc::ByteBuffer>* RefuseStream(const ServiceContext& service,
                                                                const char* why) {
  using Reactor = CountedReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>>;
  const auto reactor = std::make_shared<Reactor>(service.calls);
  reactor->Own(reactor);
  reactor->Finish(NotServed(why));
  return reactor.get();
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_REFUSAL_H_
