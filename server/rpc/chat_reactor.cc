// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/chat_reactor.h"

#include <chrono>
#include <utility>

#include "kernels/base/status.h"
#include "server/log/log.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"

namespace rivulet {

ChatReactor::ChatReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
                         ChatStreams& streams)
    : counted_(service.calls),
      service_(service),
      context_(context),
      streams_(streams),
      start_(Clock::now()) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ChatReactor::Start(
    const ServiceContext& service, grpc::CallbackServerContext& context, ChatStreams& streams) {
  auto reactor = std::make_shared<ChatReactor>(service, context, streams);
  reactor->self_ = reactor;
  reactor->StartRead(&reactor->wire_message_);
  const absl::Status added = streams.Add(reactor);
  if (!added.ok()) reactor->EndWhenIdle(added);
  return reactor.get();
}

void ChatReactor::RunTask(size_t bytes, std::function<absl::Status()> task) {
  const auto run = [self = shared_from_this(), task = std::move(task)] {
    self->EndTask(OrNoMemory(task));
  };
  if (service_.pool.Run(run, bytes)) return;
  service_.metrics.CountRequest(Outcome::kRejectedQueue);
  EndTask(TooManyCalls());
}

void ChatReactor::EndTask(const absl::Status& status) {
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

void ChatReactor::OnReadDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    if (state_.phase() == ChatState::Phase::kFinished) return;  // the call may be gone
    ok ? state_.BeginTask() : state_.End();
  }
  if (!ok) return FinishIfIdle();
  RunTask(wire_message_.Length(), [this, arrival = Clock::now()] { return Handle(arrival); });
}

absl::Status ChatReactor::Handle(TimePoint arrival) {
  v1::ChatRequest proto;
  RIVULET_RETURN_IF_ERROR(ParseMessage(wire_message_, &proto));
  wire_message_.Clear();
  if (proto.has_turn()) {
    auto message = std::make_shared<Message>();
    message->request = std::move(*proto.mutable_turn());
    message->arrival = arrival;
    return HandleTurn(message);
  }
  if (!proto.has_cancel()) {
    return absl::InvalidArgumentError("the message has no action: set turn or cancel");
  }
  if (proto.cancel()) StopTurn();
  StartRead(&wire_message_);
  return absl::OkStatus();
}

// Without a running turn there is nothing to do: it ended before the message arrived.
void ChatReactor::StopTurn() {
  std::shared_ptr<GenerationCall> turn;
  {
    MutexLock lock(&mutex_);
    turn = turn_;
  }
  if (turn != nullptr) turn->Stop();
}

absl::Status ChatReactor::HandleTurn(const std::shared_ptr<Message>& message) {
  RIVULET_ASSIGN_OR_RETURN(const bool begins, MayBegin(message));
  return begins ? BeginTurn(message) : absl::OkStatus();
}

absl::StatusOr<bool> ChatReactor::MayBegin(const std::shared_ptr<Message>& message) {
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

absl::Status ChatReactor::BeginTurn(const std::shared_ptr<Message>& message) {
  RIVULET_RETURN_IF_ERROR(ChooseSession(message->request));
  const std::shared_ptr<GenerationCall> turn = NewTurn(message->arrival);
  if (turn == nullptr) return absl::OkStatus();
  ++turns_;
  // From here on a cancel can reach the turn, and the end of the stream waits for its end.
  StartRead(&wire_message_);
  turn->Run(message->request);
  return absl::OkStatus();
}

absl::Status ChatReactor::ChooseSession(v1::GenerateRequest& request) {
  if (request.session_id().empty() && session_id_.empty()) {
    const auto session = service_.sessions.Create("", "");
    if (!session.ok()) {
      service_.metrics.CountRequest(Outcome::kRejectedSession);
      return session.status();
    }
    session_id_ = own_session_ = session->id;
    LogInfo("session_created", {{"session_id", session->id}, {"method", "Chat"}});
  }
  if (request.session_id().empty()) request.set_session_id(session_id_);
  session_id_ = request.session_id();
  return absl::OkStatus();
}

// Null when the stream is to end.
std::shared_ptr<GenerationCall> ChatReactor::NewTurn(TimePoint arrival) {
  MutexLock lock(&mutex_);
  if (!state_.Begin()) return nullptr;
  turn_ = std::make_shared<GenerationCall>(service_, context_, "Chat", arrival, shared_from_this());
  return turn_;
}

void ChatReactor::OnWriteDone(bool ok) {
  std::shared_ptr<GenerationCall> turn;
  {
    MutexLock lock(&mutex_);
    turn = turn_;
  }
  turn->OnWriteDone(ok);
}

void ChatReactor::OnGenerationEnd(const absl::Status& status) {
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

void ChatReactor::OnCancel() {
  Fail(absl::CancelledError("cancelled by the client"));
  FinishIfIdle();
}

void ChatReactor::EndWhenIdle(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    EndWith(status);
  }
  FinishIfIdle();
}

void ChatReactor::EndWith(const absl::Status& status) {
  state_.End();
  end_.Update(status);
}

void ChatReactor::Fail(const absl::Status& status) {
  std::shared_ptr<GenerationCall> turn;
  {
    MutexLock lock(&mutex_);
    EndWith(status);
    turn = turn_;
  }
  if (turn != nullptr) turn->Cancel();
}

void ChatReactor::FinishIfIdle() {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (!state_.Finish()) return;
    status = end_;
  }
  End(status);
}

void ChatReactor::End(const absl::Status& status) {
  if (!own_session_.empty()) (void)service_.sessions.Delete(own_session_);
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  LogInfo("chat_ended", {{"session_id", session_id_.substr(0, SessionTable::kMaxIdBytes)},
                         {"turns", turns_},
                         {"code", absl::StatusCodeToString(status.code())},
                         {"error", std::string(status.message())},
                         {"seconds", seconds}});
  FinishCall(*this, context_, status);
}

void ChatReactor::OnDone() {
  streams_.Remove(this);
  // The last reference may be a turn's, for a moment longer.
  const std::shared_ptr<ChatReactor> self = std::move(self_);
}

}  // namespace rivulet
