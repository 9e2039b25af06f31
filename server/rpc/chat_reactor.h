// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One Chat stream: turns, one after the other, and the time between them.
//
//   gRPC thread   a message was read; it is handed to the worker pool
//   worker        parses it; begins a turn, or stops the running one; reads the next
//   turn          ends: the stream goes on, or ends
//
// A stream that begins without a session creates one and deletes it at its end; if another call
// uses that session at that moment, it stays until its time to live is over.
//
// The stream ends once there is a reason (an error, a drain, the client's half-close) and nothing
// runs: no turn, so that its session is free, and no task, because tasks use the call. Its states
// are ChatState's (stream_state.h).
#ifndef RIVULET_SERVER_RPC_CHAT_REACTOR_H_
#define RIVULET_SERVER_RPC_CHAT_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "rivulet/v1/inference.pb.h"
#include "server/rpc/chat_streams.h"
#include "server/rpc/generation_call.h"
#include "server/rpc/service_context.h"
#include "server/rpc/stream_state.h"

namespace rivulet {

class ChatReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                    public ResponseStream,
                    public IdleEnder,
                    public std::enable_shared_from_this<ChatReactor> {
 public:
  // The reactor of a new stream; it owns itself until OnDone. Does not block.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      const ServiceContext& service, grpc::CallbackServerContext& context, ChatStreams& streams);

  ChatReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
              ChatStreams& streams);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Send(const grpc::ByteBuffer& message) override { StartWrite(&message); }
  void OnGenerationEnd(const absl::Status& status) override;

  void EndWhenIdle(const absl::Status& status) override;

 private:
  // A turn's message and when it came.
  struct Message {
    v1::GenerateRequest request;
    TimePoint arrival;
  };

  // Runs `task`, which the state counts already, on a worker.
  void RunTask(size_t bytes, std::function<absl::Status()> task);
  void EndTask(const absl::Status& status);

  // Tasks. A status that is not OK ends the stream.
  absl::Status Handle(TimePoint arrival);
  absl::Status HandleTurn(const std::shared_ptr<Message>& message);
  absl::Status BeginTurn(const std::shared_ptr<Message>& message);

  void StopTurn();
  // False, with the message kept for later, when the turn before it is about to end.
  absl::StatusOr<bool> MayBegin(const std::shared_ptr<Message>& message);
  absl::Status ChooseSession(v1::GenerateRequest& request);
  std::shared_ptr<GenerationCall> NewTurn(TimePoint arrival);
  // The stream ends with `status`, unless it has a reason already; the running turn is cancelled.
  void Fail(const absl::Status& status);
  void EndWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishIfIdle();
  void End(const absl::Status& status);

  CountedCall counted_;
  std::shared_ptr<ChatReactor> self_;  // until OnDone
  const ServiceContext& service_;
  grpc::CallbackServerContext& context_;
  ChatStreams& streams_;
  const TimePoint start_;
  grpc::ByteBuffer wire_message_;  // of the read in flight, then of the task that parses it

  // Used by the task that begins a turn; there is one at a time.
  std::string session_id_;   // which the next turn continues unless it names another
  std::string own_session_;  // to be deleted
  uint32_t turns_ = 0;

  Mutex mutex_;
  std::shared_ptr<GenerationCall> turn_ ABSL_GUARDED_BY(mutex_);  // runs
  // Came while the last message of turn_ was on its way. Nothing is read until it has begun.
  std::shared_ptr<Message> next_ ABSL_GUARDED_BY(mutex_);
  ChatState state_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // OK: the client has half-closed
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_CHAT_REACTOR_H_
