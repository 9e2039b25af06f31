// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "client/chat_call.h"
#include "client/running_call.h"
#include "rivulet/v1/inference.grpc.pb.h"

namespace rivulet {

Cancellation::Cancellation() : state_(std::make_shared<State>()) {}
Cancellation::~Cancellation() = default;

void Cancellation::Cancel() {
  MutexLock lock(&state_->mutex);
  state_->cancelled = true;
  if (state_->running != nullptr) state_->running->TryCancel();
}

bool Cancellation::cancelled() const {
  MutexLock lock(&state_->mutex);
  return state_->cancelled;
}

namespace {

// The same limit as the server's (docs/architecture.md#api-limits).
constexpr int kMaxMessageBytes = 64 << 20;
// How soon a restarted server is noticed; gRPC's default is two minutes.
constexpr int kMaxReconnectBackoffMs = 1000;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// A stub's blocking method.
template <typename Stub, typename Request, typename Response>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(Stub& stub, Method<Stub, Request, Response> method,
                              const Request& request, const CallOptions& options) {
  RunningCall call(options);
  Response response;
  const grpc::Status status = (stub.*method)(call.context(), request, &response);
  if (!status.ok()) return ToStatus(status, *call.context());
  return response;
}

}  // namespace

struct Client::Connection {
  explicit Connection(const std::shared_ptr<grpc::Channel>& channel)
      : inference(v1::Inference::NewStub(channel)), sessions(v1::Sessions::NewStub(channel)) {}

  const std::unique_ptr<v1::Inference::Stub> inference;
  const std::unique_ptr<v1::Sessions::Stub> sessions;
};

Client::Client(const std::string& address) : connection_(new Connection(MakeChannel(address))) {}

Client::~Client() = default;

absl::Status Client::Generate(const v1::GenerateRequest& request, const CallOptions& options,
                              const std::function<bool(const v1::GenerateResponse&)>& on_message) {
  RunningCall call(options);
  const auto stream = connection_->inference->Generate(call.context(), request);
  v1::GenerateResponse message;
  bool wanted = true;
  while (wanted && stream->Read(&message)) wanted = on_message(message);
  if (wanted) return ToStatus(stream->Finish(), *call.context());
  call.context()->TryCancel();
  (void)stream->Finish();  // CANCELLED, as the caller asked
  return absl::OkStatus();
}

std::unique_ptr<ChatStream> Client::OpenChat(const CallOptions& options) {
  return std::unique_ptr<ChatStream>(
      new ChatStream(std::make_unique<ChatStream::Call>(*connection_->inference, options)));
}

absl::StatusOr<v1::ScoreResponse> Client::Score(const v1::ScoreRequest& request,
                                                const CallOptions& options) {
  return Call(*connection_->inference, &v1::Inference::Stub::Score, request, options);
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request,
                                                      const CallOptions& options) {
  return Call(*connection_->inference, &v1::Inference::Stub::Tokenize, request, options);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request,
                                                          const CallOptions& options) {
  return Call(*connection_->inference, &v1::Inference::Stub::Detokenize, request, options);
}

absl::StatusOr<v1::Model> Client::GetModel(const CallOptions& options) {
  return Call(*connection_->inference, &v1::Inference::Stub::GetModel, v1::GetModelRequest(),
              options);
}

absl::StatusOr<v1::Session> Client::CreateSession(const v1::CreateSessionRequest& request,
                                                  const CallOptions& options) {
  return Call(*connection_->sessions, &v1::Sessions::Stub::CreateSession, request, options);
}

absl::StatusOr<v1::Session> Client::GetSession(const std::string& id, const CallOptions& options) {
  v1::GetSessionRequest request;
  request.set_id(id);
  return Call(*connection_->sessions, &v1::Sessions::Stub::GetSession, request, options);
}

absl::StatusOr<v1::Session> Client::UpdateSession(const v1::UpdateSessionRequest& request,
                                                  const CallOptions& options) {
  return Call(*connection_->sessions, &v1::Sessions::Stub::UpdateSession, request, options);
}

absl::Status Client::DeleteSession(const std::string& id, const CallOptions& options) {
  v1::DeleteSessionRequest request;
  request.set_id(id);
  return Call(*connection_->sessions, &v1::Sessions::Stub::DeleteSession, request, options)
      .status();
}

absl::StatusOr<v1::ListSessionsResponse> Client::ListSessions(
    const v1::ListSessionsRequest& request, const CallOptions& options) {
  return Call(*connection_->sessions, &v1::Sessions::Stub::ListSessions, request, options);
}

absl::StatusOr<std::vector<v1::Session>> Client::ListAllSessions(const CallOptions& options) {
  std::vector<v1::Session> sessions;
  v1::ListSessionsRequest request;
  do {
    absl::StatusOr<v1::ListSessionsResponse> page = ListSessions(request, options);
    if (!page.ok()) return page.status();
    if (!page->next_page_token().empty() && page->next_page_token() == request.page_token()) {
      return absl::InternalError(
          "ListSessions: the server repeats a page, so its list would not end");
    }
    for (v1::Session& session : *page->mutable_sessions()) sessions.push_back(std::move(session));
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return sessions;
}

}  // namespace rivulet
