// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/generation_call.h"

#include <utility>

#include "kernels/base/status.h"
#include "server/service/call_status.h"
#include "server/service/conversation.h"
#include "server/service/message_conversion.h"
#include "server/service/validation.h"

namespace rivulet {

GenerationCall::GenerationCall(const ServiceContext& service, CallOrigin origin,
                               std::shared_ptr<ResponseStream> stream)
    : ScheduledCall(service, std::move(origin)), stream_(std::move(stream)) {}

void GenerationCall::Run(const v1::GenerateRequest& proto) {
  const absl::Status status = OrNoMemory([&] { return Admit(proto); });
  if (!status.ok()) Refuse(status);
}

absl::Status GenerationCall::Admit(const v1::GenerateRequest& proto) {
  // Set first, so that the log names a request that is refused for their length.
  request_id_ = proto.request_id().empty() ? MakeRandomId()
                                           : proto.request_id().substr(0, kMaxRequestIdBytes);
  session_id_ = proto.session_id().substr(0, SessionTable::kMaxIdBytes);
  RIVULET_RETURN_IF_ERROR(Open());
  RIVULET_ASSIGN_OR_RETURN(
      std::unique_ptr<Request> request,
      MakeGenerateRequest(proto, service_.model, service_.max_prompt, service_.sessions, tenant()));
  seed_ = request->sampling.seed;
  position_ = ContextTokens(*request) + request->prompt.size();
  report_cache_ = proto.report_cache();
  if (request->begins_anew) rewritten_tokens_ = request->session.tokens();
  starts_thinking_ = StartsThinking(*request);
  return Submit(std::move(request), weak_from_this());
}

void GenerationCall::Refuse(const absl::Status& status) {
  CountRefusal(service_.metrics, status);
  Outbox::Taken next;
  {
    MutexLock lock(&mutex_);
    next = EndStream(status);
  }
  Continue(std::move(next));
}

void GenerationCall::Stop() {
  {
    MutexLock lock(&mutex_);
    state_.Stop();
  }
  CancelRequest();
}

bool GenerationCall::said_last() const {
  MutexLock lock(&mutex_);
  return state_.said_last();
}

void GenerationCall::OnReady() {
  if (outbox().abandoned()) CutOff();
  Continue(TakeNext());
}

// The client does not read, so the write in flight may never end unless the call is cancelled.
void GenerationCall::CutOff() {
  {
    MutexLock lock(&mutex_);
    if (!state_.BeginCut()) return;
  }
  stream_->CutOff();  // may run callbacks of this call
  MutexLock lock(&mutex_);
  state_.EndCut();
}

// The next message to send, or the end. Nothing while a write is in flight or after the end.
Outbox::Taken GenerationCall::TakeNext() {
  MutexLock lock(&mutex_);
  while (state_.may_take()) {
    Outbox::Taken taken = outbox().Take();
    if (taken.end.has_value()) return EndStream(*std::move(taken.end));
    if (!taken.message.has_value()) break;
    const bool last = taken.message->finish_reason != FinishReason::kNone;
    if (state_.BeginWrite(last)) return taken;
    ForgetFork(taken.message->fork_id);
  }
  return {};
}

// The client was not told of this session, and would never delete it.
void GenerationCall::ForgetFork(const std::string& id) {
  // Gone already, or found by another call.
  if (!id.empty()) service_.sessions.Delete(Key(id)).IgnoreError();
}

// A call that was stopped before it had a state slot, or before it was submitted, still owes its
// client a last message.
Outbox::Taken GenerationCall::EndStream(absl::Status status) {
  state_.End(absl::IsCancelled(status));
  Outbox::Taken next;
  if (state_.phase() == CallState::Phase::kSayingCancelled) {
    next.message.emplace().finish_reason = FinishReason::kCancelled;
  } else {
    next.end = std::move(status);
  }
  return next;
}

void GenerationCall::Continue(Outbox::Taken next) {
  for (;;) {
    if (next.end.has_value()) return End(*std::move(next.end));
    if (!next.message.has_value() || WriteOnPool(*next.message)) return;
    if (!Write(*std::move(next.message))) return;
    next = EndWrite(true);
  }
}

// It would hold up the dispatcher, which all streams share.
bool GenerationCall::WriteOnPool(StreamMessage& message) {
  const bool last = message.finish_reason != FinishReason::kNone;
  const bool slow = last && stream_->LastIsSlow();
  if (!slow && message.prompt_logprobs.size() < kManyLogprobs) return false;
  auto moved = std::make_shared<StreamMessage>(std::move(message));
  const auto task = [self = shared_from_this(), moved] {
    if (self->Write(std::move(*moved))) self->OnWriteDone(true);
  };
  if (service_.pool.Run(task)) return true;
  message = std::move(*moved);
  return false;
}

bool GenerationCall::Write(StreamMessage&& message) {
  fork_id_ = message.fork_id;
  absl::Status prepared = OrNoMemory([&] { return stream_->Prepare(Convert(std::move(message))); });
  const bool ok = prepared.ok();
  {
    MutexLock lock(&mutex_);
    failure_ = std::move(prepared);
  }
  if (!ok) {
    OnWriteDone(false);
    return false;
  }
  if (stream_->SendsNothing()) return true;
  stream_->Send();
  return false;
}

v1::GenerateResponse GenerationCall::Convert(StreamMessage&& message) {
  const bool last = message.finish_reason != FinishReason::kNone;
  CountGenerated(message.tokens.size());
  const Usage usage = message.usage;
  if (last) {
    usage_.prompt_tokens = message.usage.prompt_tokens;
    usage_.cached_tokens = message.usage.cached_tokens;
    usage_.completion_tokens += message.usage.completion_tokens;
  }
  v1::GenerateResponse response = ToProto(std::move(message), service_.model.tokenizer);
  if (last && report_cache_) AddCacheReport(usage, response);
  if (std::exchange(first_message_, false)) {
    response.set_request_id(request_id_);
    response.set_session_id(session_id_);
    response.set_seed(seed_);
    response.set_position(position_);
    response.set_rewritten_tokens(rewritten_tokens_);
    response.set_starts_thinking(starts_thinking_);
  }
  return response;
}

void GenerationCall::OnWriteDone(bool ok) { Continue(EndWrite(ok)); }

Outbox::Taken GenerationCall::EndWrite(bool ok) {
  if (!ok) {
    CancelRequest();
    ForgetFork(fork_id_);
  }
  bool ended = false;
  {
    MutexLock lock(&mutex_);
    state_.EndWrite(ok);
    ended = state_.ended();
  }
  if (!ended) return TakeNext();
  Outbox::Taken end;
  end.end = absl::CancelledError("cancelled by the client");
  return end;
}

void GenerationCall::End(absl::Status status) {
  bool by_stop = false;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) status = failure_;
    by_stop = state_.phase() == CallState::Phase::kEndedByStop;
  }
  LogEnd(status, usage_);
  std::exchange(stream_, nullptr)->OnGenerationEnd(by_stop ? absl::OkStatus() : status);
}

}  // namespace rivulet
