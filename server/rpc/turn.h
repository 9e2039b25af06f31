// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One turn: a GenerateRequest and the messages that answer it. Generate is one turn, Chat is one
// after the other; this is what they share. One write is in flight at a time; tokens that arrive
// meanwhile wait in the outbox, merged into the next message.
//
// Threading: each method as it says. It keeps its carrier alive until it has ended.
#ifndef RIVULET_SERVER_RPC_TURN_H_
#define RIVULET_SERVER_RPC_TURN_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "rivulet/v1/inference.pb.h"
#include "server/rpc/scheduled_call.h"
#include "server/scheduler/stream_message.h"

namespace rivulet {

// What carries a turn to its client: a reactor.
class TurnCarrier {
 public:
  virtual ~TurnCarrier() = default;
  // Starts a write of `message`, which stays as it is until Turn::OnWriteDone, and sets no write
  // hints: gRPC 1.51 can stall on them. Must not wait.
  virtual void Send(const grpc::ByteBuffer& message) = 0;
  // Once, after everything else; no write is in flight. Any thread.
  virtual void OnTurnEnd(const absl::Status& status) = 0;
};

class Turn : public ScheduledCall, public std::enable_shared_from_this<Turn> {
 public:
  // As ScheduledCall. The carrier's call must not be finished before OnTurnEnd.
  Turn(const ServiceContext& service, grpc::CallbackServerContext& context, const char* method,
       TimePoint arrival, std::shared_ptr<TurnCarrier> carrier);

  // Exactly one of these two begins it. Run is for a worker.
  void Run(const v1::GenerateRequest& proto);
  // The turn is refused; `status` is not OK.
  void Refuse(const absl::Status& status);

  // The carrier's write has ended.
  void OnWriteDone(bool ok);

  // ---- Any thread, any time.

  // The client is gone: nothing more needs to be sent.
  void Cancel() { CancelRequest(); }
  // The client wants no more of this turn, but goes on: if the turn had not ended by itself, its
  // last message says FINISH_REASON_CANCELLED and the turn then ends with OK. Its usage has no
  // prompt tokens if the turn had not begun: its session is then as it was.
  void Stop();
  // The message with finish_reason is on its way: the client may think that the turn is over.
  bool said_last() const;

  void OnReady() override;

 private:
  absl::Status Admit(const v1::GenerateRequest& proto);
  // Starts the next write, or ends the turn, unless a write is in flight.
  void Pump();
  Outbox::Taken TakeNext();
  bool WriteOnPool(StreamMessage& message);
  void Write(StreamMessage&& message);
  // Everything that the scheduler said was sent.
  void Finish(const absl::Status& status);
  bool MustSayCancelled(const absl::Status& status);
  void End(const absl::Status& status);
  void CutOff();

  // Until the turn has ended.
  std::shared_ptr<TurnCarrier> carrier_;
  uint64_t seed_ = 0;

  // Of whoever set writing_, until OnWriteDone.
  grpc::ByteBuffer wire_message_;
  bool first_message_ = true;
  Usage usage_;
  absl::Status failure_;  // of a message that could not be sent

  mutable Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cutting_ ABSL_GUARDED_BY(mutex_) = false;  // CutOff needs the call a moment longer
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;   // a write failed: send nothing more
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool said_last_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // the outbox has no more to say
  // The end, while the message before it that the scheduler did not give is written.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_TURN_H_
