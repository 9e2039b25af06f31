// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A call that generates: one GenerateRequest and the messages that answer it. Generate is one such
// call; a Chat stream makes one for each turn. One write is in flight at a time; tokens that arrive
// meanwhile wait in the outbox, merged into the next message. Its states are CallState's
// (stream_state.h).
//
// Threading: as each method says. It keeps its response stream alive until it has ended.
#ifndef RIVULET_SERVER_RPC_GENERATION_CALL_H_
#define RIVULET_SERVER_RPC_GENERATION_CALL_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>

#include "rivulet/v1/inference.pb.h"
#include "server/rpc/scheduled_call.h"
#include "server/rpc/stream_state.h"
#include "server/scheduler/stream_message.h"

namespace rivulet {

// Where the messages go: a reactor.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // Starts a write of `message`, which stays unchanged until GenerationCall::OnWriteDone. Sets no
  // write hints: gRPC 1.51 can stall on them. Must not block.
  virtual void Send(const grpc::ByteBuffer& message) = 0;
  // Called once, after everything else; no write is in flight. Any thread.
  virtual void OnGenerationEnd(const absl::Status& status) = 0;
};

class GenerationCall : public ScheduledCall, public std::enable_shared_from_this<GenerationCall> {
 public:
  // As ScheduledCall. The gRPC call must not be finished before OnGenerationEnd.
  GenerationCall(const ServiceContext& service, grpc::CallbackServerContext& context,
                 const char* method, TimePoint arrival, std::shared_ptr<ResponseStream> stream);

  // Exactly one of these two is called first. Run is for a worker.
  void Run(const v1::GenerateRequest& proto);
  // The request is refused; `status` is not OK.
  void Refuse(const absl::Status& status);

  // The write of the response stream has ended.
  void OnWriteDone(bool ok);

  // ---- Any thread, any time.

  // The client is gone: nothing more needs to be sent.
  void Cancel() { CancelRequest(); }
  // The client cancels this call but keeps its stream: unless the call has already ended, its
  // last message has FINISH_REASON_CANCELLED and it ends with OK. Its usage has no prompt tokens
  // if the request had not begun; its session is then unchanged.
  void Stop();
  // The message with finish_reason is on its way: the client may know that the call is over.
  bool said_last() const;

  void OnReady() override;

 private:
  absl::Status Admit(const v1::GenerateRequest& proto);
  Outbox::Taken TakeNext();
  Outbox::Taken EndStream(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts a write, or ends the call.
  void Continue(Outbox::Taken next);
  bool WriteOnPool(StreamMessage& message);
  void Write(StreamMessage&& message);
  absl::Status Serialize(StreamMessage&& message);
  void End(absl::Status status);
  void CutOff();

  std::shared_ptr<ResponseStream> stream_;  // until the end
  uint64_t seed_ = 0;
  uint64_t rewritten_tokens_ = 0;
  bool starts_thinking_ = false;
  bool report_cache_ = false;

  // Of the thread that began the write in flight, until OnWriteDone.
  grpc::ByteBuffer wire_message_;
  bool first_message_ = true;
  Usage usage_;

  mutable Mutex mutex_;
  CallState state_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of a message that could not be sent
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_GENERATION_CALL_H_
