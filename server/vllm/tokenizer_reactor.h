// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_VLLM_TOKENIZER_REACTOR_H_
#define RIVULET_SERVER_VLLM_TOKENIZER_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/service/service_context.h"
#include "server/vllm/tokenizer_bundle.h"

namespace rivulet::vllm_engine {

// One GetTokenizer call: the archive in chunks of 64 KiB, as fast as the client reads. The reactor
// owns itself until gRPC is done with it; starting it does not block.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGetTokenizer(const ServiceContext& service,
                                                              TokenizerBundle& bundle,
                                                              grpc::CallbackServerContext& context);

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_TOKENIZER_REACTOR_H_
