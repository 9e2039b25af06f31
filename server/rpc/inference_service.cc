// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "rivulet/v1/inference.grpc.pb.h"
#include "server/rpc/generate_reactor.h"
#include "server/rpc/score_reactor.h"
#include "server/rpc/services.h"
#include "server/rpc/status_map.h"
#include "server/rpc/text_methods.h"
#include "server/rpc/wire.h"

namespace rivulet {
namespace {

// Raw: methods take and give bytes (wire.h says why).
using RawGenerate = v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::Service>;
using RawChat = v1::Inference::WithRawCallbackMethod_Chat<RawGenerate>;
using RawScore = v1::Inference::WithRawCallbackMethod_Score<RawChat>;
using RawTokenize = v1::Inference::WithRawCallbackMethod_Tokenize<RawScore>;
using RawDetokenize = v1::Inference::WithRawCallbackMethod_Detokenize<RawTokenize>;
using RawInference = v1::Inference::WithRawCallbackMethod_GetModel<RawDetokenize>;

// Ends the call at once.
class RefuseChat : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RefuseChat() {
    Finish(ToGrpcStatus(absl::UnimplementedError(
        "Chat: this version keeps no sessions; use Generate with the whole prompt")));
  }
  void OnDone() override { delete this; }
};

template <typename Request, typename Response>
using Handler = absl::Status (*)(const ServedModel&, const Request&, Response&);

template <typename Request, typename Response>
absl::Status Handle(const ServedModel& model, Handler<Request, Response> handler,
                    const grpc::ByteBuffer& wire_request, grpc::ByteBuffer* wire_response) {
  Request request;
  Response response;
  absl::Status status = ParseMessage(wire_request, &request);
  if (status.ok()) status = handler(model, request, response);
  if (status.ok()) status = SerializeMessage(response, wire_response);
  return status;
}

// Runs `handler` on a worker. gRPC keeps request and response until the call is finished.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* RunOnPool(const ServiceContext& service,
                                    grpc::CallbackServerContext* context,
                                    Handler<Request, Response> handler,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto work = [=, &service] {
    if (context->IsCancelled()) {
      return reactor->Finish(ToGrpcStatus(absl::CancelledError("cancelled while it waited")));
    }
    reactor->Finish(ToGrpcStatus(Handle(service.model, handler, *request, response)));
  };
  const bool taken = service.pool.Run(work, request->Length());
  if (!taken) {
    AddErrorDetails(TooManyCalls(), *context);
    reactor->Finish(ToGrpcStatus(TooManyCalls()));
  }
  return reactor;
}

class InferenceService final : public RawInference {
 public:
  explicit InferenceService(const ServiceContext& context) : service_(context) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override {
    return GenerateReactor::Start(service_, *context, *request);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Chat(
      grpc::CallbackServerContext*) override {
    return new RefuseChat;
  }
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override {
    return ScoreReactor::Start(service_, *context, *request, response);
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    return RunOnPool(service_, context, &rivulet::Tokenize, request, response);
  }
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    Handler<v1::DetokenizeRequest, v1::DetokenizeResponse> handler = &rivulet::Detokenize;
    return RunOnPool(service_, context, handler, request, response);
  }
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    return RunOnPool(service_, context, &rivulet::GetModel, request, response);
  }

 private:
  const ServiceContext& service_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(const ServiceContext& context) {
  return std::make_unique<InferenceService>(context);
}

}  // namespace rivulet
