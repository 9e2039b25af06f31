// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One Generate call. One write is in flight at a time; tokens that arrive meanwhile wait in the
// outbox, merged into the next message. Write hints are never set: gRPC 1.51 can stall on them.
#ifndef RIVULET_SERVER_RPC_GENERATE_REACTOR_H_
#define RIVULET_SERVER_RPC_GENERATE_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>

#include "server/rpc/scheduled_call.h"
#include "server/scheduler/stream_message.h"

namespace rivulet {

class GenerateReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                        public ScheduledCall,
                        public std::enable_shared_from_this<GenerateReactor> {
 public:
  // The reactor of a new call; it owns itself until OnDone. Does not block.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(const ServiceContext& service,
                                                           grpc::CallbackServerContext& context,
                                                           const grpc::ByteBuffer& request);

  GenerateReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
                  const grpc::ByteBuffer& request);

  void OnReady() override { Pump(); }
  void OnWriteDone(bool ok) override;
  void OnCancel() override { CancelRequest(); }
  void OnDone() override;

 private:
  void Prepare();
  absl::Status Admit();
  // Starts the next write, or finishes, unless a write is in flight.
  void Pump();
  Outbox::Taken TakeNext();
  bool WriteOnPool(StreamMessage& message);
  void Write(StreamMessage&& message);
  void End(const absl::Status& status);

  std::shared_ptr<GenerateReactor> self_;  // until OnDone
  grpc::ByteBuffer wire_request_;
  uint64_t seed_ = 0;

  // Of whoever set writing_, until OnWriteDone.
  grpc::ByteBuffer wire_message_;
  bool first_message_ = true;
  Usage usage_;

  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // a write failed: send nothing more
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_GENERATE_REACTOR_H_
