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
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/log/log.h"
#include "server/rpc/completed_writes.h"
#include "server/rpc/origin.h"
#include "server/rpc/reactors.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/generation_call.h"
#include "server/service/stream_state.h"

namespace rivulet {

class ChatReactor final
    : public CountedReactor<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>,
      public ResponseStream,
      public OpenStream,
      public std::enable_shared_from_this<ChatReactor> {
 public:
  ChatReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
              OpenStreams& streams)
      : CountedReactor(service.calls), service_(service), context_(context), streams_(streams) {}

  void Start() {
    Own(shared_from_this());
    StartRead(&wire_message_);
    OpenFor(service_, context_, streams_, shared_from_this());
  }

  void OnReadDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      if (state_.phase() == ChatState::Phase::kFinished) return;  // the call may be gone
      ok ? state_.BeginTask() : state_.End();
    }
    if (!ok) return FinishIfIdle();
    RunTask(wire_message_.Length(), [this, arrival = Clock::now()] { return Handle(arrival); });
  }

  void OnWriteDone(bool ok) override { Turn()->OnWriteDone(ok); }

  void OnCancel() override {
    Fail(absl::CancelledError("cancelled by the client"));
    FinishIfIdle();
  }

  void OnDone() override {
    streams_.Remove(this);
    CountedReactor::OnDone();
  }

  absl::Status Prepare(v1::GenerateResponse message) override {
    return SerializeMessage(message, &wire_response_);
  }
  void Send() override { StartWriteHere(*this, &wire_response_); }
  void CutOff() override { context_.TryCancel(); }

  void OnGenerationEnd(const absl::Status& status) override {
    std::shared_ptr<GenerationCall> ended;
    std::shared_ptr<Message> next;
    {
      MutexLock lock(&mutex_);
      ended.swap(turn_);
      next.swap(next_);
      if (!status.ok()) EndWith(status);
      if (!state_.EndTurn()) next = nullptr;
    }
    if (next != nullptr) {
      RunTask(next->request.ByteSizeLong(), [this, next] { return BeginTurn(next); });
    }
    FinishIfIdle();
  }

  void EndWhenIdle(const absl::Status& status) override {
    {
      MutexLock lock(&mutex_);
      EndWith(status);
    }
    FinishIfIdle();
  }

 private:
  // A turn's message and when it came.
  struct Message {
    v1::GenerateRequest request;
    TimePoint arrival;
  };

  // Runs `task`, which the state counts already, on a worker. A status that is not OK ends the
  // stream.
  void RunTask(size_t bytes, std::function<absl::Status()> task) {
    const auto run = [self = shared_from_this(), task = std::move(task)] {
      self->EndTask(OrNoMemory(task));
    };
    if (service_.pool.Run(run, bytes)) return;
    service_.metrics.CountRequest(Outcome::kRejectedQueue);
    EndTask(TooManyCalls());
  }

  void EndTask(const absl::Status& status) {
    if (!status.ok()) {
      CountRefusal(service_.metrics, status);
      Fail(status);
    }
    {
      MutexLock lock(&mutex_);
      state_.EndTask();
    }
    FinishIfIdle();
  }

  absl::Status Handle(TimePoint arrival) {
    v1::ChatRequest proto;
    RIVULET_RETURN_IF_ERROR(ParseMessage(wire_message_, &proto));
    wire_message_.Clear();
    if (proto.has_turn()) {
      const auto message =
          std::make_shared<Message>(Message{std::move(*proto.mutable_turn()), arrival});
      RIVULET_ASSIGN_OR_RETURN(const bool begins, MayBegin(message));
      return begins ? BeginTurn(message) : absl::OkStatus();
    }
    if (!proto.has_cancel()) {
      return absl::InvalidArgumentError("the message has no action: set turn or cancel");
    }
    // Without a running turn there is nothing to do: it ended before the message arrived.
    const std::shared_ptr<GenerationCall> turn = proto.cancel() ? Turn() : nullptr;
    if (turn != nullptr) turn->Stop();
    StartRead(&wire_message_);
    return absl::OkStatus();
  }

  // False, with the message kept for later, when the turn before it is about to end.
  absl::StatusOr<bool> MayBegin(const std::shared_ptr<Message>& message) {
    MutexLock lock(&mutex_);
    if (turn_ == nullptr) return true;
    if (!turn_->said_last()) {
      return absl::FailedPreconditionError(
          "a turn runs on this stream already: wait for its message with finish_reason, or send "
          "cancel and wait for that");
    }
    next_ = message;
    state_.Queue();
    return false;
  }

  absl::Status BeginTurn(const std::shared_ptr<Message>& message) {
    // For each turn: a token may have been withdrawn since the last one.
    RIVULET_ASSIGN_OR_RETURN(caller_, CallerOf(service_, context_, Scope::kGenerate));
    RIVULET_RETURN_IF_ERROR(ChooseSession(message->request));
    const std::shared_ptr<GenerationCall> turn = NewTurn(message->arrival);
    if (turn == nullptr) return absl::OkStatus();
    ++turns_;
    // From here on a cancel can reach the turn, and the end of the stream waits for its end.
    StartRead(&wire_message_);
    turn->Run(message->request);
    return absl::OkStatus();
  }

  absl::Status ChooseSession(v1::GenerateRequest& request) {
    if (request.n() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("n = ", request.n(),
                       ": a turn of Chat has one completion; use Generate with session_id"));
    }
    if (request.session_id().empty() && session_id_.empty()) {
      const auto session = service_.sessions.Create(Key(""), "");
      if (!session.ok()) {
        service_.metrics.CountRequest(Outcome::kRejectedSession);
        return session.status();
      }
      session_id_ = own_session_ = session->id;
      LogInfo("session_created",
              {{"tenant", session->tenant}, {"session_id", session->id}, {"method", "Chat"}});
    }
    if (request.session_id().empty()) request.set_session_id(session_id_);
    session_id_ = request.session_id();
    return absl::OkStatus();
  }

  // Null when the stream is to end.
  std::shared_ptr<GenerationCall> NewTurn(TimePoint arrival) {
    MutexLock lock(&mutex_);
    if (!state_.Begin()) return nullptr;
    turn_ = std::make_shared<GenerationCall>(service_, OriginOf("Chat", context_, caller_, arrival),
                                             shared_from_this());
    return turn_;
  }

  // The running one, or null.
  std::shared_ptr<GenerationCall> Turn() {
    MutexLock lock(&mutex_);
    return turn_;
  }

  // The stream ends with `status`, unless it has a reason already; the running turn is cancelled.
  void Fail(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      EndWith(status);
    }
    if (const std::shared_ptr<GenerationCall> turn = Turn()) turn->Cancel();
  }

  void EndWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    state_.End();
    end_.Update(status);
  }

  void FinishIfIdle() {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (!state_.Finish()) return;
      status = end_;
    }
    End(status);
  }

  void End(const absl::Status& status) {
    if (!own_session_.empty()) (void)service_.sessions.Delete(Key(own_session_));
    LogInfo("chat_ended", {{"session_id", session_id_.substr(0, SessionTable::kMaxIdBytes)},
                           {"turns", turns_},
                           {"code", absl::StatusCodeToString(status.code())},
                           {"error", std::string(status.message())},
                           {"seconds", Seconds(Clock::now() - start_)}});
    FinishCall(*this, context_, status);
  }

  // Of the caller of the last turn.
  SessionKey Key(const std::string& id) const { return {caller_->tenant->name(), id}; }

  const ServiceContext& service_;
  grpc::CallbackServerContext& context_;
  OpenStreams& streams_;
  const TimePoint start_ = Clock::now();
  grpc::ByteBuffer wire_message_;  // of the read in flight, then of the task that parses it

  grpc::ByteBuffer wire_response_;  // of the write in flight

  // Used by the task that begins a turn; there is one at a time.
  CallerPtr caller_;
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

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartChat(
    const ServiceContext& service, grpc::CallbackServerContext& context, OpenStreams& streams) {
  const auto reactor = std::make_shared<ChatReactor>(service, context, streams);
  reactor->Start();
  return reactor.get();
}

}  // namespace rivulet
