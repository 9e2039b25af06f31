// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A call that generates: one GenerateRequest and the messages that answer it, in any
// protocol. Generate and an HTTP request are one such call each; a Chat stream makes one for each
// turn. One write is in flight at a time; tokens that arrive meanwhile wait in the outbox, merged
// into the next message. Its states are CallState's (stream_state.h).
//
// Threading: as each method says. It keeps its response stream alive until it has ended.
#ifndef RIVULET_SERVER_SERVICE_GENERATION_CALL_H_
#define RIVULET_SERVER_SERVICE_GENERATION_CALL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "rivulet/v1/inference.pb.h"
#include "server/scheduler/stream_message.h"
#include "server/service/scheduled_call.h"
#include "server/service/stream_state.h"

namespace rivulet {

// Where the messages go: a reactor, or an HTTP response.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // Makes what Send writes out of a message. No write is in flight. A status that is not OK, or
  // std::bad_alloc, ends the call.
  virtual absl::Status Prepare(v1::GenerateResponse message) = 0;
  // Whether Prepare has kept the message for later, so that there is nothing to write.
  virtual bool SendsNothing() const { return false; }
  // Whether Prepare of a last message would take long, since it adds much that was kept.
  virtual bool LastIsSlow() const { return false; }
  // Starts the write; GenerationCall::OnWriteDone follows. Must not block.
  virtual void Send() = 0;
  // The client does not read: ends the write in flight, if necessary with the connection. May call
  // the GenerationCall.
  virtual void CutOff() = 0;
  // Called once, after everything else; no write is in flight. Any thread.
  virtual void OnGenerationEnd(const absl::Status& status) = 0;
};

class GenerationCall : public ScheduledCall, public std::enable_shared_from_this<GenerationCall> {
 public:
  // As ScheduledCall. What `stream` writes to must last until OnGenerationEnd.
  GenerationCall(const ServiceContext& service, CallOrigin origin,
                 std::shared_ptr<ResponseStream> stream);

  // Exactly one of these two is called first. Run is for a worker. REQUIRES of Run: a caller.
  void Run(const v1::GenerateRequest& proto);
  // The request is refused; `status` is not OK.
  void Refuse(const absl::Status& status);

  // The write of the response stream has ended.
  void OnWriteDone(bool ok);

  // ---- Any thread, any time.

  // The client is gone, or has not read for too long: nothing more needs to be sent.
  void Cancel(bool stalled = false) { CancelRequest(stalled); }
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
  // What comes after a write: the next message, or the end.
  Outbox::Taken EndWrite(bool ok);
  // Starts a write, or ends the call.
  void Continue(Outbox::Taken next);
  bool WriteOnPool(StreamMessage& message);
  // True: there was nothing to write, and the message counts as written.
  bool Write(StreamMessage&& message);
  v1::GenerateResponse Convert(StreamMessage&& message);
  void End(absl::Status status);
  void CutOff();
  void ForgetFork(const std::string& id);

  std::shared_ptr<ResponseStream> stream_;  // until the end
  uint64_t seed_ = 0;
  uint64_t position_ = 0;
  uint64_t rewritten_tokens_ = 0;
  bool starts_thinking_ = false;
  bool report_cache_ = false;

  // Of the thread that began the write in flight, until OnWriteDone.
  bool first_message_ = true;
  Usage usage_;
  std::string fork_id_;  // that it tells the client

  mutable Mutex mutex_;
  CallState state_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of a message that could not be sent
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_GENERATION_CALL_H_
