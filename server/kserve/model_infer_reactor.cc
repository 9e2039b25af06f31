// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/kserve/infer_reactors.h"
#include "server/kserve/infer_turn.h"
#include "server/rpc/counted_reactor.h"
#include "server/rpc/origin.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/call_status.h"

namespace rivulet::kserve {
namespace {

class ModelInferReactor final : public CountedReactor<grpc::ServerUnaryReactor>,
                                public ResponseStream {
 public:
  ModelInferReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
                    const grpc::ByteBuffer& request, grpc::ByteBuffer* response)
      : CountedReactor(service.calls),
        context_(context),
        turn_(service),
        wire_request_(request),
        wire_response_(response) {}

  void Start(const ServiceContext& service, const std::shared_ptr<ModelInferReactor>& self) {
    Own(self);
    const absl::StatusOr<CallerPtr> caller = CallerOf(service, context_, Scope::kGenerate);
    if (caller.ok()) caller_ = *caller;
    call_ = std::make_shared<GenerationCall>(
        service, OriginOf("kserve.ModelInfer", context_, caller_, arrival_), self);
    if (!caller.ok()) return call_->Refuse(caller.status());
    if (service.pool.Run([self] { self->ReadAndRun(); }, wire_request_.Length())) return;
    service.metrics.CountRequest(Outcome::kRejectedQueue);
    call_->Refuse(TooManyCalls());
  }

  void OnCancel() override { call_->Cancel(); }

  absl::Status Prepare(v1::GenerateResponse message) override {
    RIVULET_ASSIGN_OR_RETURN(const auto response, turn_.Add(message));
    return response.has_value() ? SerializeMessage(*response, wire_response_) : absl::OkStatus();
  }
  // The response goes out with the status.
  bool SendsNothing() const override { return true; }
  bool LastIsSlow() const override { return turn_.LastIsSlow(); }
  void Send() override {}
  void CutOff() override { context_.TryCancel(); }

  void OnGenerationEnd(const absl::Status& status) override {
    turn_.End();
    FinishCall(*this, context_, status);
  }

 private:
  void ReadAndRun() {
    const absl::Status read = OrNoMemory([this] { return Read(); });
    read.ok() ? turn_.Run(*caller_, *call_) : call_->Refuse(read);
  }

  absl::Status Read() {
    wire::ModelInferRequest request;
    RIVULET_RETURN_IF_ERROR(ParseMessage(wire_request_, &request));
    wire_request_.Clear();
    RIVULET_RETURN_IF_ERROR(turn_.Read(request, arrival_, *call_));
    if (!turn_.streams()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "input 'stream': ModelInfer has one response; use ModelStreamInfer, or leave it out");
  }

  grpc::CallbackServerContext& context_;
  const TimePoint arrival_ = Clock::now();
  CallerPtr caller_;
  InferTurn turn_;
  grpc::ByteBuffer wire_request_;
  grpc::ByteBuffer* const wire_response_;
  std::shared_ptr<GenerationCall> call_;
};

}  // namespace

grpc::ServerUnaryReactor* StartModelInfer(const ServiceContext& service,
                                          grpc::CallbackServerContext& context,
                                          const grpc::ByteBuffer& request,
                                          grpc::ByteBuffer* response) {
  const auto reactor = std::make_shared<ModelInferReactor>(service, context, request, response);
  reactor->Start(service, reactor);
  return reactor.get();
}

}  // namespace rivulet::kserve
