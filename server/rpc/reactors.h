// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The reactors of the calls that the scheduler serves. Each owns itself until gRPC is done with it.
// To start one does not block: parsing and everything after it is done by the worker pool.
#ifndef RIVULET_SERVER_RPC_REACTORS_H_
#define RIVULET_SERVER_RPC_REACTORS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "server/rpc/counted_reactor.h"
#include "server/service/service_context.h"

namespace rivulet {

class ChatReactor;  // chat_reactor.cc

// The open Chat streams, so that a drain can end the idle ones. Threading: any thread. It outlives
// the streams' calls.
class ChatStreams {
 public:
  // UNAVAILABLE once draining.
  absl::Status Add(const std::shared_ptr<ChatReactor>& stream);
  void Remove(ChatReactor* stream);
  // Each stream ends with UNAVAILABLE as soon as no turn runs on it, now if none does. Add refuses
  // from now on.
  void Drain();

 private:
  Mutex mutex_;
  std::map<ChatReactor*, std::weak_ptr<ChatReactor>> streams_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const ServiceContext& service,
                                                          grpc::CallbackServerContext& context,
                                                          const grpc::ByteBuffer& request);

// One Chat stream, listed in `streams` while it is open.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartChat(
    const ServiceContext& service, grpc::CallbackServerContext& context, ChatStreams& streams);

// `response` is gRPC's, until the call is finished.
grpc::ServerUnaryReactor* StartScore(const ServiceContext& service,
                                     grpc::CallbackServerContext& context,
                                     const grpc::ByteBuffer& request, grpc::ByteBuffer* response);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_REACTORS_H_
