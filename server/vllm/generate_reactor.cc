// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/generate_reactor.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/rpc/call_metadata.h"
#include "server/rpc/counted_reactor.h"
#include "server/rpc/origin.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/call_status.h"
#include "server/service/generation_call.h"
#include "server/service/new_session.h"
#include "server/vllm/engine_reply.h"
#include "server/vllm/engine_request.h"

namespace rivulet::vllm_engine {
namespace {

class GenerateReactor final : public CountedReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>>,
                              public ResponseStream {
 public:
  GenerateReactor(const ServiceContext& service, RunningCalls& running,
                  grpc::CallbackServerContext& context, const grpc::ByteBuffer& request)
      : CountedReactor(service.calls),
        running_(running),
        context_(context),
        new_session_(service.sessions),
        wire_request_(request) {}

  void Start(const ServiceContext& service, const std::shared_ptr<GenerateReactor>& self) {
    Own(self);
    const absl::StatusOr<CallerPtr> caller = CallerOf(service, context_, Scope::kGenerate);
    if (caller.ok()) tenant_ = (*caller)->tenant->name();
    call_ = std::make_shared<GenerationCall>(
        service, OriginOf("vllm.Generate", context_, caller.ok() ? *caller : nullptr), self);
    if (!caller.ok()) return call_->Refuse(caller.status());
    if (service.pool.Run([self] { self->ReadAndRun(); }, wire_request_.Length())) return;
    service.metrics.CountRequest(Outcome::kRejectedQueue);
    call_->Refuse(TooManyCalls());
  }

  void OnWriteDone(bool ok) override {
    if (ok && ++written_ < out_.size()) return StartWrite(&out_[written_]);
    call_->OnWriteDone(ok);
  }
  void OnCancel() override { call_->Cancel(); }

  absl::Status Prepare(v1::GenerateResponse message) override {
    TellSession(message.session_id());
    out_.clear();
    written_ = 0;
    RIVULET_ASSIGN_OR_RETURN(const std::vector<wire::GenerateResponse> responses,
                             reply_->Add(message));
    for (const wire::GenerateResponse& response : responses) {
      RIVULET_RETURN_IF_ERROR(SerializeMessage(response, &out_.emplace_back()));
    }
    return absl::OkStatus();
  }
  bool SendsNothing() const override { return out_.empty(); }
  bool LastIsSlow() const override { return reply_->kept_logprobs() >= kManyLogprobs; }
  void Send() override { StartWrite(&out_[0]); }
  void CutOff() override { context_.TryCancel(); }

  void OnGenerationEnd(const absl::Status& status) override {
    running_.Remove({tenant_, request_id_}, call_.get());
    if (!status.ok() && !told_session_) new_session_.Drop();
    FinishCall(*this, context_, status);
  }

 private:
  void ReadAndRun() {
    EngineRequest request;
    const absl::Status read = OrNoMemory([&] { return Read(request); });
    read.ok() ? call_->Run(request.proto) : call_->Refuse(read);
  }

  absl::Status Read(EngineRequest& request) {
    wire::GenerateRequest wire_request;
    RIVULET_RETURN_IF_ERROR(ParseMessage(wire_request_, &wire_request));
    wire_request_.Clear();
    RIVULET_ASSIGN_OR_RETURN(request, ReadRequest(wire_request));
    RIVULET_ASSIGN_OR_RETURN(const CallMetadata metadata, ReadMetadata(context_));
    request.proto.set_session_id(metadata.session_id);
    if (request.proto.request_id().empty()) request.proto.set_request_id(metadata.request_id);
    reply_.emplace(request.format);
    RIVULET_RETURN_IF_ERROR(new_session_.MakeFor(request.proto, tenant_, "vllm.Generate"));
    request_id_ = request.proto.request_id();
    if (!request_id_.empty()) running_.Add({tenant_, request_id_}, call_);
    return absl::OkStatus();
  }

  // In the first message; gRPC sends metadata with the first write.
  void TellSession(const std::string& session_id) {
    if (session_id.empty() || told_session_) return;
    context_.AddInitialMetadata(kSessionIdKey, session_id);
    told_session_ = true;
  }

  RunningCalls& running_;
  grpc::CallbackServerContext& context_;
  NewSession new_session_;
  grpc::ByteBuffer wire_request_;
  std::shared_ptr<GenerationCall> call_;
  std::string tenant_;
  // Set on a worker, before the first message.
  std::optional<EngineReply> reply_;
  std::string request_id_;
  // Of the thread that began the write in flight.
  bool told_session_ = false;
  std::vector<grpc::ByteBuffer> out_;
  size_t written_ = 0;  // of out_
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const ServiceContext& service,
                                                          RunningCalls& running,
                                                          grpc::CallbackServerContext& context,
                                                          const grpc::ByteBuffer& request) {
  const auto reactor = std::make_shared<GenerateReactor>(service, running, context, request);
  reactor->Start(service, reactor);
  return reactor.get();
}

}  // namespace rivulet::vllm_engine
