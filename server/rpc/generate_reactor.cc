// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "rivulet/v1/inference.pb.h"
#include "server/rpc/completed_writes.h"
#include "server/rpc/origin.h"
#include "server/rpc/reactors.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/generation_call.h"

namespace rivulet {
namespace {

class GenerateReactor final : public CountedReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>>,
                              public ResponseStream {
 public:
  GenerateReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
                  const grpc::ByteBuffer& request)
      : CountedReactor(service.calls), context_(context), wire_request_(request) {}

  void Start(const ServiceContext& service, const std::shared_ptr<GenerateReactor>& self) {
    Own(self);
    const absl::StatusOr<CallerPtr> caller = CallerOf(service, context_, Scope::kGenerate);
    call_ = std::make_shared<GenerationCall>(
        service, OriginOf("Generate", context_, caller.ok() ? *caller : nullptr), self);
    if (!caller.ok()) return call_->Refuse(caller.status());
    if (service.pool.Run([self] { self->Prepare(); }, wire_request_.Length())) return;
    service.metrics.CountRequest(Outcome::kRejectedQueue);
    call_->Refuse(TooManyCalls());
  }

  void OnWriteDone(bool ok) override { call_->OnWriteDone(ok); }
  void OnCancel() override { call_->Cancel(); }

  absl::Status Prepare(v1::GenerateResponse message) override {
    return SerializeMessage(message, &wire_response_);
  }
  void Send() override { StartWriteHere(*this, &wire_response_); }
  void CutOff() override { context_.TryCancel(); }
  void OnGenerationEnd(const absl::Status& status) override { FinishCall(*this, context_, status); }

 private:
  void Prepare() {
    v1::GenerateRequest proto;
    const absl::Status parsed = OrNoMemory([&] { return ParseMessage(wire_request_, &proto); });
    wire_request_.Clear();
    if (!parsed.ok()) return call_->Refuse(parsed);
    call_->Run(proto);
  }

  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer wire_request_;
  grpc::ByteBuffer wire_response_;  // of the write in flight
  std::shared_ptr<GenerationCall> call_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const ServiceContext& service,
                                                          grpc::CallbackServerContext& context,
                                                          const grpc::ByteBuffer& request) {
  const auto reactor = std::make_shared<GenerateReactor>(service, context, request);
  reactor->Start(service, reactor);
  return reactor.get();
}

}  // namespace rivulet
