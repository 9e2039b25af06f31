// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The reactors of ModelInfer and ModelStreamInfer. Each owns itself until gRPC is done with it. To
// start one does not block.
#ifndef RIVULET_SERVER_KSERVE_INFER_REACTORS_H_
#define RIVULET_SERVER_KSERVE_INFER_REACTORS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/rpc/open_streams.h"
#include "server/service/service_context.h"

namespace rivulet::kserve {

// `response` is gRPC's, until the call is finished.
grpc::ServerUnaryReactor* StartModelInfer(const ServiceContext& service,
                                          grpc::CallbackServerContext& context,
                                          const grpc::ByteBuffer& request,
                                          grpc::ByteBuffer* response);

// A stream of requests, listed in `streams` while it is open.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartModelStreamInfer(
    const ServiceContext& service, grpc::CallbackServerContext& context, OpenStreams& streams);

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_INFER_REACTORS_H_
