// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/generate_reactor.h"

#include <utility>

#include "kernels/base/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/status_map.h"
#include "server/rpc/validation.h"
#include "server/rpc/wire.h"

namespace rivulet {

GenerateReactor::GenerateReactor(const ServiceContext& service,
                                 grpc::CallbackServerContext& context,
                                 const grpc::ByteBuffer& request)
    : ScheduledCall(service, context, "Generate"), wire_request_(request) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateReactor::Start(
    const ServiceContext& service, grpc::CallbackServerContext& context,
    const grpc::ByteBuffer& request) {
  auto reactor = std::make_shared<GenerateReactor>(service, context, request);
  reactor->self_ = reactor;
  if (!service.pool.Run([reactor] { reactor->Prepare(); }, request.Length())) {
    const absl::Status busy = TooManyCalls();
    service.metrics.CountRequest(Outcome::kRejectedQueue);
    reactor->End(busy);
  }
  return reactor.get();
}

void GenerateReactor::Prepare() {
  const absl::Status status = Admit();
  if (status.ok()) return;
  CountRefusal(status);
  {
    MutexLock lock(&mutex_);
    finished_ = true;
  }
  End(status);
}

absl::Status GenerateReactor::Admit() {
  if (cancelled()) return absl::CancelledError("cancelled by the client");
  v1::GenerateRequest proto;
  RIVULET_RETURN_IF_ERROR(ParseMessage(wire_request_, &proto));
  wire_request_.Clear();
  request_id_ = proto.request_id().empty() ? MakeRequestId() : proto.request_id();
  RIVULET_ASSIGN_OR_RETURN(std::unique_ptr<Request> request,
                           MakeGenerateRequest(proto, service_.model, service_.max_prompt));
  seed_ = request->sampling.seed;
  return Submit(std::move(request), weak_from_this());
}

// The next message to send, or the end. Nothing while a write is in flight or after the end.
Outbox::Taken GenerateReactor::TakeNext() {
  MutexLock lock(&mutex_);
  if (writing_ || finished_) return {};
  for (;;) {
    Outbox::Taken taken = outbox().Take();
    if (broken_ && taken.message.has_value()) continue;
    writing_ = taken.message.has_value();
    finished_ = taken.end.has_value();
    return taken;
  }
}

void GenerateReactor::Pump() {
  Outbox::Taken taken = TakeNext();
  if (taken.message.has_value()) {
    if (!WriteOnPool(*taken.message)) Write(*std::move(taken.message));
  } else if (taken.end.has_value()) {
    End(*taken.end);
  }
}

// A long prompt's log-probabilities take too long for the dispatcher, on which all streams wait.
bool GenerateReactor::WriteOnPool(StreamMessage& message) {
  if (message.prompt_logprobs.size() < kManyLogprobs) return false;
  auto moved = std::make_shared<StreamMessage>(std::move(message));
  const auto task = [self = shared_from_this(), moved] { self->Write(std::move(*moved)); };
  if (service_.pool.Run(task)) return true;
  message = std::move(*moved);
  return false;
}

void GenerateReactor::Write(StreamMessage&& message) {
  if (message.finish_reason != FinishReason::kNone) {
    usage_.prompt_tokens = message.usage.prompt_tokens;
    usage_.completion_tokens += message.usage.completion_tokens;
  }
  v1::GenerateResponse response = ToProto(std::move(message), service_.model.tokenizer);
  if (std::exchange(first_message_, false)) {
    response.set_request_id(request_id_);
    response.set_seed(seed_);
  }
  const absl::Status status = SerializeMessage(response, &wire_message_);
  if (!status.ok()) {
    CancelRequest();
    {
      MutexLock lock(&mutex_);
      finished_ = true;
    }
    return End(status);
  }
  StartWrite(&wire_message_);
}

void GenerateReactor::OnWriteDone(bool ok) {
  if (!ok) CancelRequest();
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    broken_ = broken_ || !ok;
  }
  Pump();
}

void GenerateReactor::End(const absl::Status& status) {
  NoteEnd(status, usage_);
  Finish(ToGrpcStatus(status));
}

void GenerateReactor::OnDone() {
  // Whoever still holds a reference (the dispatcher, for a moment) deletes it.
  const std::shared_ptr<GenerateReactor> self = std::move(self_);
}

}  // namespace rivulet
