// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_VLLM_GENERATE_REACTOR_H_
#define RIVULET_SERVER_VLLM_GENERATE_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/service/service_context.h"
#include "server/vllm/running_calls.h"

namespace rivulet::vllm_engine {

// One Generate call. The reactor owns itself until gRPC is done with it; starting it does not
// block.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const ServiceContext& service,
                                                          RunningCalls& running,
                                                          grpc::CallbackServerContext& context,
                                                          const grpc::ByteBuffer& request);

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_GENERATE_REACTOR_H_
