// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One Score call: collects the scheduler's messages and answers once.
#ifndef RIVULET_SERVER_RPC_SCORE_REACTOR_H_
#define RIVULET_SERVER_RPC_SCORE_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>

#include "server/rpc/scheduled_call.h"
#include "server/scheduler/stream_message.h"

namespace rivulet {

class ScoreReactor : public grpc::ServerUnaryReactor,
                     public ScheduledCall,
                     public std::enable_shared_from_this<ScoreReactor> {
 public:
  // The reactor of a new call; it owns itself until OnDone. Does not block. `response` is gRPC's,
  // until the call is finished.
  static grpc::ServerUnaryReactor* Start(const ServiceContext& service,
                                         grpc::CallbackServerContext& context,
                                         const grpc::ByteBuffer& request,
                                         grpc::ByteBuffer* response);

  ScoreReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
               const grpc::ByteBuffer& request, grpc::ByteBuffer* response);

  void OnReady() override;
  void OnCancel() override { CancelRequest(); }
  void OnDone() override;

 private:
  void Prepare();
  absl::Status Admit();
  absl::Status Collect(StreamMessage&& message);
  // On the pool if it is slow: all streams share the dispatcher.
  void EndOnPool(const absl::Status& status);
  void End(const absl::Status& status);

  CountedCall counted_;
  std::shared_ptr<ScoreReactor> self_;  // until OnDone
  grpc::ByteBuffer wire_request_;
  grpc::ByteBuffer* const wire_response_;
  // The dispatcher's, then End's.
  std::optional<StreamMessage> result_;
  absl::Status failure_;  // of collecting it
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SCORE_REACTOR_H_
