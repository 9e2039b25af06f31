// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "rivulet/v1/inference.grpc.pb.h"
#include "server/rpc/chat_reactor.h"
#include "server/rpc/chat_streams.h"
#include "server/rpc/generate_reactor.h"
#include "server/rpc/score_reactor.h"
#include "server/rpc/services.h"
#include "server/rpc/text_methods.h"
#include "server/rpc/unary_call.h"

namespace rivulet {
namespace {

// Raw: methods take and give bytes (wire.h says why).
using RawGenerate = v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::Service>;
using RawChat = v1::Inference::WithRawCallbackMethod_Chat<RawGenerate>;
using RawScore = v1::Inference::WithRawCallbackMethod_Score<RawChat>;
using RawTokenize = v1::Inference::WithRawCallbackMethod_Tokenize<RawScore>;
using RawDetokenize = v1::Inference::WithRawCallbackMethod_Detokenize<RawTokenize>;
using RawInference = v1::Inference::WithRawCallbackMethod_GetModel<RawDetokenize>;

class InferenceService final : public RawInference {
 public:
  InferenceService(const ServiceContext& context, ChatStreams& chats)
      : service_(context), chats_(chats) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override {
    return GenerateReactor::Start(service_, *context, *request);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Chat(
      grpc::CallbackServerContext* context) override {
    return ChatReactor::Start(service_, *context, chats_);
  }
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override {
    return ScoreReactor::Start(service_, *context, *request, response);
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    return RunOnPool(service_, service_.model, context, &rivulet::Tokenize, request, response);
  }
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    Handler<ServedModel, v1::DetokenizeRequest, v1::DetokenizeResponse> handler =
        &rivulet::Detokenize;
    return RunOnPool(service_, service_.model, context, handler, request, response);
  }
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    return RunOnPool(service_, service_.model, context, &rivulet::GetModel, request, response);
  }

 private:
  const ServiceContext& service_;
  ChatStreams& chats_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(const ServiceContext& context,
                                                    ChatStreams& chats) {
  return std::make_unique<InferenceService>(context, chats);
}

}  // namespace rivulet
