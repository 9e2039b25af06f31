// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/turn.h"

#include <utility>

#include "kernels/base/status.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/validation.h"
#include "server/rpc/wire.h"

namespace rivulet {
namespace {

StreamMessage CancelledMessage() {
  StreamMessage message;
  message.finish_reason = FinishReason::kCancelled;
  return message;
}

}  // namespace

Turn::Turn(const ServiceContext& service, grpc::CallbackServerContext& context, const char* method,
           TimePoint arrival, std::shared_ptr<TurnCarrier> carrier)
    : ScheduledCall(service, context, method, arrival), carrier_(std::move(carrier)) {}

void Turn::Run(const v1::GenerateRequest& proto) {
  const absl::Status status = Admit(proto);
  if (!status.ok()) Refuse(status);
}

absl::Status Turn::Admit(const v1::GenerateRequest& proto) {
  // For the log even of a request that is refused for their length.
  request_id_ = proto.request_id().empty() ? MakeRequestId()
                                           : proto.request_id().substr(0, kMaxRequestIdBytes);
  session_id_ = proto.session_id().substr(0, SessionTable::kMaxIdBytes);
  if (cancelled()) return absl::CancelledError("cancelled by the client");
  // Before it is tokenized: under overload most requests come here only to be refused.
  RIVULET_RETURN_IF_ERROR(service_.scheduler.CheckOpen());
  RIVULET_ASSIGN_OR_RETURN(
      std::unique_ptr<Request> request,
      MakeGenerateRequest(proto, service_.model, service_.max_prompt, service_.sessions));
  seed_ = request->sampling.seed;
  return Submit(std::move(request), weak_from_this());
}

void Turn::Refuse(const absl::Status& status) {
  CountRefusal(service_.metrics, status);
  {
    MutexLock lock(&mutex_);
    ended_ = true;
  }
  Finish(status);
}

void Turn::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  CancelRequest();
}

bool Turn::said_last() const {
  MutexLock lock(&mutex_);
  return said_last_;
}

void Turn::OnReady() {
  if (outbox().abandoned()) CutOff();
  Pump();
}

// The client does not read, so the write in flight may never end unless its call does.
void Turn::CutOff() {
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    cutting_ = true;
  }
  context_.TryCancel();
  MutexLock lock(&mutex_);
  cutting_ = false;
}

// The next message to send, or the end. Nothing while a write is in flight or after the end.
Outbox::Taken Turn::TakeNext() {
  MutexLock lock(&mutex_);
  if (writing_ || cutting_ || ended_) return {};
  for (;;) {
    Outbox::Taken taken = outbox().Take();
    if (broken_ && taken.message.has_value()) continue;
    writing_ = taken.message.has_value();
    ended_ = taken.end.has_value();
    return taken;
  }
}

void Turn::Pump() {
  Outbox::Taken taken = TakeNext();
  if (taken.message.has_value()) {
    if (!WriteOnPool(*taken.message)) Write(*std::move(taken.message));
  } else if (taken.end.has_value()) {
    Finish(*taken.end);
  }
}

// A long prompt's log-probabilities take too long for the dispatcher, on which all streams wait.
bool Turn::WriteOnPool(StreamMessage& message) {
  if (message.prompt_logprobs.size() < kManyLogprobs) return false;
  auto moved = std::make_shared<StreamMessage>(std::move(message));
  const auto task = [self = shared_from_this(), moved] { self->Write(std::move(*moved)); };
  if (service_.pool.Run(task)) return true;
  message = std::move(*moved);
  return false;
}

void Turn::Write(StreamMessage&& message) {
  const bool last = message.finish_reason != FinishReason::kNone;
  if (last) {
    usage_.prompt_tokens = message.usage.prompt_tokens;
    usage_.cached_tokens = message.usage.cached_tokens;
    usage_.completion_tokens += message.usage.completion_tokens;
  }
  v1::GenerateResponse response = ToProto(std::move(message), service_.model.tokenizer);
  if (std::exchange(first_message_, false)) {
    response.set_request_id(request_id_);
    response.set_session_id(session_id_);
    response.set_seed(seed_);
  }
  failure_ = SerializeMessage(response, &wire_message_);
  if (!failure_.ok()) return OnWriteDone(false);
  {
    MutexLock lock(&mutex_);
    said_last_ = said_last_ || last;
  }
  carrier_->Send(wire_message_);
}

void Turn::OnWriteDone(bool ok) {
  if (!ok) CancelRequest();
  std::optional<absl::Status> end;
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    broken_ = broken_ || !ok;
    end = std::move(end_);
  }
  if (end.has_value()) return End(*end);
  Pump();
}

// A turn that was stopped before it had a state slot, or before it was submitted.
bool Turn::MustSayCancelled(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (!stopped_ || broken_ || said_last_ || status.code() != absl::StatusCode::kCancelled) {
    return false;
  }
  end_ = status;
  return true;
}

void Turn::Finish(const absl::Status& status) {
  if (MustSayCancelled(status)) return Write(CancelledMessage());
  End(failure_.ok() ? status : failure_);
}

void Turn::End(const absl::Status& status) {
  LogEnd(status, usage_);
  const bool stopped = status.code() == absl::StatusCode::kCancelled && [this] {
    MutexLock lock(&mutex_);
    return stopped_ && said_last_;
  }();
  std::exchange(carrier_, nullptr)->OnTurnEnd(stopped ? absl::OkStatus() : status);
}

}  // namespace rivulet
