// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <cstdint>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "client/grpc.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "rivulet/v1/inference.grpc.pb.h"

namespace rivulet {

// `running` is the context that Cancel ends; `cancelled` is for calls that start later.
struct Cancellation::State {
  Mutex mutex;
  grpc::ClientContext* running ABSL_GUARDED_BY(mutex) = nullptr;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
};

// The context of a call with its CallOptions applied. Its Cancellation can reach it while it
// exists.
class RunningCall {
 public:
  explicit RunningCall(const CallOptions& options) : cancellation_(options.cancellation) {
    if (options.timeout) {
      context_.set_deadline(std::chrono::system_clock::now() + *options.timeout);
    }
    if (cancellation_ == nullptr) return;
    MutexLock lock(&cancellation_->state_->mutex);
    cancellation_->state_->running = &context_;
    if (cancellation_->state_->cancelled) context_.TryCancel();
  }
  ~RunningCall() {
    if (cancellation_ == nullptr) return;
    MutexLock lock(&cancellation_->state_->mutex);
    cancellation_->state_->running = nullptr;
  }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  Cancellation* const cancellation_;
};

struct ChatStream::Call {
  Call(v1::Inference::Stub& stub, const CallOptions& options)
      : running(options), stream(stub.Chat(running.context())) {}

  RunningCall running;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::ChatRequest, v1::GenerateResponse>> stream;
  std::optional<absl::Status> ended;  // used by the thread of the turns only

  // gRPC allows one write at a time; Turn and Cancel both write.
  Mutex mutex;
  bool turn_runs ABSL_GUARDED_BY(mutex) = false;
};

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

// gRPC and Abseil use the same numbers for codes.
absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto wait = metadata.find("retry-after-ms");
  if (wait == metadata.end()) return result;
  result.SetPayload(kRetryAfterPayload,
                    absl::Cord(absl::string_view(wait->second.data(), wait->second.size())));
  return result;
}

std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterPayload);
  uint32_t count = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &count)) return std::nullopt;
  return std::chrono::milliseconds(count);
}

ChatStream::ChatStream(std::unique_ptr<Call> call) : call_(std::move(call)) {}

ChatStream::~ChatStream() {
  if (call_->ended) return;
  call_->running.context()->TryCancel();
  (void)Finish();  // CANCELLED, by ourselves
}

absl::Status ChatStream::Turn(const v1::GenerateRequest& request,
                              const std::function<bool(const v1::GenerateResponse&)>& on_message) {
  if (call_->ended) {
    RIVULET_RETURN_IF_ERROR(*call_->ended);
    return absl::FailedPreconditionError("this chat stream is closed; open another");
  }
  v1::ChatRequest message;
  *message.mutable_turn() = request;
  {
    MutexLock lock(&call_->mutex);
    call_->turn_runs = true;
    // A failed write means that the stream has ended; reading returns the reason.
    (void)call_->stream->Write(message);
  }
  return ReadTurn(on_message);
}

absl::Status ChatStream::ReadTurn(
    const std::function<bool(const v1::GenerateResponse&)>& on_message) {
  v1::GenerateResponse message;
  bool wanted = true;
  while (call_->stream->Read(&message)) {
    if (wanted && !on_message(message)) {
      wanted = false;
      Cancel();
    }
    if (message.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) continue;
    MutexLock lock(&call_->mutex);
    call_->turn_runs = false;
    return absl::OkStatus();
  }
  RIVULET_RETURN_IF_ERROR(Finish());
  call_->ended = absl::UnavailableError("the server ended the chat before the turn had finished");
  return *call_->ended;
}

void ChatStream::Cancel() {
  v1::ChatRequest message;
  message.set_cancel(true);
  MutexLock lock(&call_->mutex);
  if (call_->turn_runs) (void)call_->stream->Write(message);
}

absl::Status ChatStream::Close() {
  if (call_->ended) return *call_->ended;
  {
    MutexLock lock(&call_->mutex);
    (void)call_->stream->WritesDone();
  }
  v1::GenerateResponse ignored;
  while (call_->stream->Read(&ignored)) {
  }
  return Finish();
}

absl::Status ChatStream::Finish() {
  {
    MutexLock lock(&call_->mutex);
    call_->turn_runs = false;  // no more writes
  }
  call_->ended = ToStatus(call_->stream->Finish(), *call_->running.context());
  return *call_->ended;
}

namespace {

// The same limit as the server's (docs/architecture.md#api-limits).
constexpr int kMaxMessageBytes = 64 << 20;
// How soon a restarted server is noticed; gRPC's default is two minutes.
constexpr int kMaxReconnectBackoffMs = 1000;

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

// Sends the token with every call. gRPC's own credentials for calls refuse to do so in plain text.
class TokenSender final : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(const std::string& header) : header_(header) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Hook = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", header_});
    }
    methods->Proceed();
  }

 private:
  const std::string& header_;  // the factory's, which lives as long as the channel
};

class TokenSenderFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenderFactory(const std::string& token) : header_("Bearer " + token) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenSender(header_);
  }

 private:
  const std::string header_;
};

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const Access& access) {
  if (!access.tls) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({access.authorities, access.key, access.certificate});
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Access& access,
                                           bool own_connection) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, own_connection ? 1 : 0);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!access.token.empty()) {
    interceptors.push_back(std::make_unique<TokenSenderFactory>(access.token));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, CredentialsOf(access), arguments, std::move(interceptors));
}

struct Client::Connection {
  explicit Connection(const std::shared_ptr<grpc::Channel>& channel)
      : inference(v1::Inference::NewStub(channel)), sessions(v1::Sessions::NewStub(channel)) {}

  const std::unique_ptr<v1::Inference::Stub> inference;
  const std::unique_ptr<v1::Sessions::Stub> sessions;
};

Client::Client(const std::string& address, const Access& access)
    : connection_(new Connection(MakeChannel(address, access, false))) {}

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

absl::StatusOr<v1::Session> Client::ForkSession(const v1::ForkSessionRequest& request,
                                                const CallOptions& options) {
  return Call(*connection_->sessions, &v1::Sessions::Stub::ForkSession, request, options);
}

absl::StatusOr<v1::Session> Client::RewindSession(const v1::RewindSessionRequest& request,
                                                  const CallOptions& options) {
  return Call(*connection_->sessions, &v1::Sessions::Stub::RewindSession, request, options);
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
    RIVULET_ASSIGN_OR_RETURN(v1::ListSessionsResponse page, ListSessions(request, options));
    if (!page.next_page_token().empty() && page.next_page_token() == request.page_token()) {
      return absl::InternalError(
          "ListSessions: the server repeats a page, so its list would not end");
    }
    for (v1::Session& session : *page.mutable_sessions()) sessions.push_back(std::move(session));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return sessions;
}

}  // namespace rivulet
