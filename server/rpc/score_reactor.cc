// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "kernels/base/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/rpc/origin.h"
#include "server/rpc/reactors.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/message_conversion.h"
#include "server/service/scheduled_call.h"
#include "server/service/validation.h"

namespace rivulet {
namespace {

// One Score call: collects the scheduler's messages and answers once.
class ScoreReactor final : public CountedReactor<grpc::ServerUnaryReactor>,
                           public ScheduledCall,
                           public std::enable_shared_from_this<ScoreReactor> {
 public:
  ScoreReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
               CallerPtr caller, const grpc::ByteBuffer& request, grpc::ByteBuffer* response)
      : CountedReactor(service.calls),
        ScheduledCall(service, OriginOf("Score", context, std::move(caller))),
        context_(context),
        wire_request_(request),
        wire_response_(response) {}

  void Start() {
    Own(shared_from_this());
    if (RunOnPool([this] { Prepare(); }, wire_request_.Length())) return;
    service_.metrics.CountRequest(Outcome::kRejectedQueue);
    End(TooManyCalls());
  }

  // In place of Start.
  void Refuse(const absl::Status& status) {
    Own(shared_from_this());
    CountRefusal(service_.metrics, status);
    End(status);
  }

  // Only on the dispatcher's thread, so the end is seen once.
  void OnReady() override {
    for (;;) {
      Outbox::Taken taken = outbox().Take();
      if (taken.end.has_value()) return EndOnPool(failure_.ok() ? *taken.end : failure_);
      if (!taken.message.has_value()) return;
      failure_.Update(OrNoMemory([&] {
        result_.Merge(*std::move(taken.message));
        return absl::OkStatus();
      }));
      if (!failure_.ok()) CancelRequest();
    }
  }

  void OnCancel() override { CancelRequest(); }

 private:
  template <typename Work>
  bool RunOnPool(Work work, size_t bytes = 0) {
    return service_.pool.Run([self = shared_from_this(), work] { work(); }, bytes);
  }

  void Prepare() {
    const absl::Status status = OrNoMemory([this] { return Admit(); });
    if (status.ok()) return;
    CountRefusal(service_.metrics, status);
    End(status);
  }

  absl::Status Admit() {
    request_id_ = MakeRandomId();
    RIVULET_RETURN_IF_ERROR(Open());
    v1::ScoreRequest proto;
    RIVULET_RETURN_IF_ERROR(ParseMessage(wire_request_, &proto));
    wire_request_.Clear();
    session_id_ = proto.session_id().substr(0, SessionTable::kMaxIdBytes);
    RIVULET_ASSIGN_OR_RETURN(
        std::unique_ptr<Request> request,
        MakeScoreRequest(proto, service_.model, service_.max_prompt, service_.sessions, tenant()));
    return Submit(std::move(request), weak_from_this());
  }

  // On the pool if it is slow: all streams share the dispatcher.
  void EndOnPool(const absl::Status& status) {
    const bool many = result_.prompt_logprobs.size() >= kManyLogprobs;
    if (!many || !RunOnPool([this, status] { End(status); })) End(status);
  }

  void End(absl::Status status) {
    if (status.ok()) {
      status = OrNoMemory([this] {
        return SerializeMessage(ToScoreResponse(result_, service_.model.tokenizer), wire_response_);
      });
    }
    LogEnd(status, result_.usage);
    FinishCall(*this, context_, status);
  }

  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer wire_request_;
  grpc::ByteBuffer* const wire_response_;
  // The dispatcher's, then End's.
  StreamMessage result_;
  absl::Status failure_;  // of collecting it
};

}  // namespace

grpc::ServerUnaryReactor* StartScore(const ServiceContext& service,
                                     grpc::CallbackServerContext& context,
                                     const grpc::ByteBuffer& request, grpc::ByteBuffer* response) {
  const absl::StatusOr<CallerPtr> caller = CallerOf(service, context, Scope::kGenerate);
  const auto reactor = std::make_shared<ScoreReactor>(
      service, context, caller.ok() ? *caller : nullptr, request, response);
  caller.ok() ? reactor->Start() : reactor->Refuse(caller.status());
  return reactor.get();
}

}  // namespace rivulet
