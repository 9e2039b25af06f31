// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/score_reactor.h"

#include <utility>

#include "kernels/base/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/status_map.h"
#include "server/rpc/validation.h"
#include "server/rpc/wire.h"

namespace rivulet {

ScoreReactor::ScoreReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
                           const grpc::ByteBuffer& request, grpc::ByteBuffer* response)
    : ScheduledCall(service, context, "Score", Clock::now()),
      counted_(service.calls),
      wire_request_(request),
      wire_response_(response) {}

grpc::ServerUnaryReactor* ScoreReactor::Start(const ServiceContext& service,
                                              grpc::CallbackServerContext& context,
                                              const grpc::ByteBuffer& request,
                                              grpc::ByteBuffer* response) {
  auto reactor = std::make_shared<ScoreReactor>(service, context, request, response);
  reactor->self_ = reactor;
  if (!service.pool.Run([reactor] { reactor->Prepare(); }, request.Length())) {
    service.metrics.CountRequest(Outcome::kRejectedQueue);
    reactor->End(TooManyCalls());
  }
  return reactor.get();
}

void ScoreReactor::Prepare() {
  const absl::Status status = OrNoMemory([this] { return Admit(); });
  if (status.ok()) return;
  CountRefusal(service_.metrics, status);
  End(status);
}

absl::Status ScoreReactor::Admit() {
  request_id_ = MakeRequestId();
  if (cancelled()) return absl::CancelledError("cancelled by the client");
  RIVULET_RETURN_IF_ERROR(service_.scheduler.CheckOpen());
  v1::ScoreRequest proto;
  RIVULET_RETURN_IF_ERROR(ParseMessage(wire_request_, &proto));
  wire_request_.Clear();
  session_id_ = proto.session_id().substr(0, SessionTable::kMaxIdBytes);
  RIVULET_ASSIGN_OR_RETURN(
      std::unique_ptr<Request> request,
      MakeScoreRequest(proto, service_.model, service_.max_prompt, service_.sessions));
  return Submit(std::move(request), weak_from_this());
}

// Only on the dispatcher's thread, so the end is seen once.
void ScoreReactor::OnReady() {
  for (;;) {
    Outbox::Taken taken = outbox().Take();
    if (taken.end.has_value()) return EndOnPool(failure_.ok() ? *taken.end : failure_);
    if (!taken.message.has_value()) return;
    failure_.Update(OrNoMemory([&] { return Collect(*std::move(taken.message)); }));
    if (!failure_.ok()) CancelRequest();
  }
}

absl::Status ScoreReactor::Collect(StreamMessage&& message) {
  if (result_.has_value()) {
    result_->Merge(std::move(message));
  } else {
    result_ = std::move(message);
  }
  return absl::OkStatus();
}

void ScoreReactor::EndOnPool(const absl::Status& status) {
  const bool many = result_.has_value() && result_->prompt_logprobs.size() >= kManyLogprobs;
  const auto task = [self = shared_from_this(), status] { self->End(status); };
  if (!many || !service_.pool.Run(task)) End(status);
}

void ScoreReactor::End(const absl::Status& status) {
  absl::Status result = status;
  if (result.ok()) {
    result = OrNoMemory([this] {
      return SerializeMessage(ToScoreResponse(*result_, service_.model.tokenizer), wire_response_);
    });
  }
  LogEnd(result, result_.has_value() ? result_->usage : Usage());
  FinishCall(*this, context_, result);
}

void ScoreReactor::OnDone() {
  // The last reference may be the dispatcher's, for a moment longer.
  const std::shared_ptr<ScoreReactor> self = std::move(self_);
}

}  // namespace rivulet
