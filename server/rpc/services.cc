// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/services.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "server/rpc/completed_writes.h"
#include "server/rpc/origin.h"
#include "server/rpc/reactors.h"
#include "server/rpc/unary_call.h"
#include "server/service/conversation.h"
#include "server/service/session_calls.h"
#include "server/service/validation.h"
#include "server/text/detokenizer.h"

namespace rivulet {

namespace {

absl::StatusOr<std::vector<uint32_t>> TokenizeText(const ServedModel& model,
                                                   const Tokenizer& tokenizer,
                                                   const v1::TokenizeRequest& request) {
  RIVULET_RETURN_IF_ERROR(CheckTextBytes("text", request.text().size()));
  RIVULET_ASSIGN_OR_RETURN(std::vector<uint32_t> ids, request.special_tokens()
                                                          ? tokenizer.EncodeRendered(request.text())
                                                          : tokenizer.Encode(request.text()));
  if (!request.add_bos()) return ids;
  if (model.begin_ids.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "add_bos: ", model.info.name(), " begins no text with a BOS token; leave add_bos out"));
  }
  ids.insert(ids.begin(), model.begin_ids.begin(), model.begin_ids.end());
  return ids;
}

// The rendered text goes into the response, and is tokenized as Generate does it.
absl::StatusOr<std::vector<uint32_t>> TokenizeMessages(const ServedModel& model,
                                                       const Tokenizer& tokenizer,
                                                       const v1::TokenizeRequest& request,
                                                       v1::TokenizeResponse& response) {
  if (!request.text().empty() || request.add_bos() || request.special_tokens()) {
    return absl::InvalidArgumentError(
        "messages: leave out text, add_bos and special_tokens; the template writes BOS itself, and "
        "messages have a field special_tokens_in_messages");
  }
  RIVULET_RETURN_IF_ERROR(CheckTextBytes("messages", request.messages().ByteSizeLong()));
  RIVULET_ASSIGN_OR_RETURN(const ChatTemplateInput input, ReadMessages(request.messages()));
  RIVULET_ASSIGN_OR_RETURN(const MarkedText text, RenderMessages(model, input));
  RIVULET_RETURN_IF_ERROR(CheckTextBytes("the rendered text", text.bytes.size()));
  response.set_text(text.bytes);
  return tokenizer.EncodeMarked(text.bytes, text.plain);
}

}  // namespace

absl::Status Tokenize(const ServedModel& model, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse& response) {
  RIVULET_ASSIGN_OR_RETURN(const Tokenizer* const tokenizer, RequireTokenizer(model));
  RIVULET_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids,
                           request.has_messages()
                               ? TokenizeMessages(model, *tokenizer, request, response)
                               : TokenizeText(model, *tokenizer, request));
  for (const uint32_t id : ids) {
    response.add_token_ids(id);
    response.add_pieces(std::string(tokenizer->Piece(id)));
  }
  return absl::OkStatus();
}

absl::Status Detokenize(const ServedModel& model, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse& response) {
  RIVULET_ASSIGN_OR_RETURN(const Tokenizer* const tokenizer, RequireTokenizer(model));
  RIVULET_RETURN_IF_ERROR(CheckTokenIds(request.token_ids(), model, "token_ids"));
  const std::vector<uint32_t> ids(request.token_ids().begin(), request.token_ids().end());
  response.set_text(rivulet::Detokenize(*tokenizer, ids, /*starts_text=*/true));
  return absl::OkStatus();
}

namespace {

using Bytes = grpc::ByteBuffer;
using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;

// Raw: methods take and give bytes (wire.h says why).
using RawGenerate = v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::Service>;
using RawChat = v1::Inference::WithRawCallbackMethod_Chat<RawGenerate>;
using RawScore = v1::Inference::WithRawCallbackMethod_Score<RawChat>;
using RawTokenize = v1::Inference::WithRawCallbackMethod_Tokenize<RawScore>;
using RawDetokenize = v1::Inference::WithRawCallbackMethod_Detokenize<RawTokenize>;
using RawInference = v1::Inference::WithRawCallbackMethod_GetModel<RawDetokenize>;

class InferenceService final : public RawInference {
 public:
  InferenceService(const ServiceContext& context, OpenStreams& chats)
      : service_(context), chats_(chats) {
    using GenerateHandler = grpc::internal::CallbackServerStreamingHandler<Bytes, Bytes>;
    using ChatHandler = grpc::internal::CallbackBidiHandler<Bytes, Bytes>;
    MarkMethodRawCallback(
        kGenerate, new NotingHandler<GenerateHandler>([this](Context* call, const Bytes* request) {
          return Generate(call, request);
        }));
    MarkMethodRawCallback(
        kChat, new NotingHandler<ChatHandler>([this](Context* call) { return Chat(call); }));
  }

  grpc::ServerWriteReactor<Bytes>* Generate(Context* context, const Bytes* request) override {
    return StartGenerate(service_, *context, *request);
  }
  grpc::ServerBidiReactor<Bytes, Bytes>* Chat(Context* context) override {
    return StartChat(service_, *context, chats_);
  }
  Unary* Score(Context* context, const Bytes* request, Bytes* response) override {
    return StartScore(service_, *context, *request, response);
  }
  Unary* Tokenize(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, service_.model, &rivulet::Tokenize, {context, request, response},
                     /*counts=*/true);
  }
  Unary* Detokenize(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool<ServedModel, v1::DetokenizeRequest, v1::DetokenizeResponse>(
        service_, service_.model, &rivulet::Detokenize, {context, request, response},
        /*counts=*/true);
  }
  Unary* GetModel(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, service_.model, &rivulet::GetModel, {context, request, response});
  }

 private:
  // Their places in the service.
  static constexpr int kGenerate = 0, kChat = 1;

  const ServiceContext& service_;
  OpenStreams& chats_;
};

using RawCreate = v1::Sessions::WithRawCallbackMethod_CreateSession<v1::Sessions::Service>;
using RawGet = v1::Sessions::WithRawCallbackMethod_GetSession<RawCreate>;
using RawList = v1::Sessions::WithRawCallbackMethod_ListSessions<RawGet>;
using RawUpdate = v1::Sessions::WithRawCallbackMethod_UpdateSession<RawList>;
using RawFork = v1::Sessions::WithRawCallbackMethod_ForkSession<RawUpdate>;
using RawRewind = v1::Sessions::WithRawCallbackMethod_RewindSession<RawFork>;
using RawSessions = v1::Sessions::WithRawCallbackMethod_DeleteSession<RawRewind>;

class SessionsService final : public RawSessions {
 public:
  explicit SessionsService(const ServiceContext& context) : service_(context) {}

  Unary* CreateSession(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kSessions, &rivulet::CreateSession,
                     {context, request, response});
  }
  Unary* GetSession(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kSessions, &rivulet::GetSession,
                     {context, request, response});
  }
  Unary* ListSessions(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kSessions, &rivulet::ListSessions,
                     {context, request, response});
  }
  Unary* UpdateSession(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kSessions, &rivulet::UpdateSession,
                     {context, request, response});
  }
  Unary* ForkSession(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kSessions, &rivulet::ForkSession,
                     {context, request, response});
  }
  Unary* RewindSession(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kSessions, &rivulet::RewindSession,
                     {context, request, response});
  }
  Unary* DeleteSession(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kSessions, &rivulet::DeleteSession,
                     {context, request, response});
  }

 private:
  const ServiceContext& service_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(const ServiceContext& context,
                                                    OpenStreams& chats) {
  return std::make_unique<InferenceService>(context, chats);
}

std::unique_ptr<grpc::Service> MakeSessionsService(const ServiceContext& context) {
  return std::make_unique<SessionsService>(context);
}

}  // namespace rivulet
