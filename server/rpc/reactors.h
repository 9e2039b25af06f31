// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The reactors of the calls that the scheduler serves. Each owns itself until gRPC is done with it.
// To start one does not block: parsing and everything after it is done by the worker pool.
#ifndef RIVULET_SERVER_RPC_REACTORS_H_
#define RIVULET_SERVER_RPC_REACTORS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/rpc/counted_reactor.h"
#include "server/rpc/open_streams.h"
#include "server/service/service_context.h"

namespace rivulet {

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const ServiceContext& service,
                                                          grpc::CallbackServerContext& context,
                                                          const grpc::ByteBuffer& request);

// One Chat stream, listed in `streams` while it is open.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartChat(
    const ServiceContext& service, grpc::CallbackServerContext& context, OpenStreams& streams);

// `response` is gRPC's, until the call is finished.
grpc::ServerUnaryReactor* StartScore(const ServiceContext& service,
                                     grpc::CallbackServerContext& context,
                                     const grpc::ByteBuffer& request, grpc::ByteBuffer* response);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_REACTORS_H_
