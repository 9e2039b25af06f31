// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "kernels/base/mutex.h"
#include "rivulet/v1/inference.grpc.pb.h"

namespace rivulet {

// The context of the running call, so that Cancel can reach it, and whether Cancel came first.
struct Cancellation::State {
  Mutex mutex;
  grpc::ClientContext* running ABSL_GUARDED_BY(mutex) = nullptr;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
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

// A context with the call's options, known to its Cancellation while it lives.
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

namespace {

// The limit that the server keeps too (DESIGN 4).
constexpr int kMaxMessageBytes = 64 << 20;

// gRPC's codes and Abseil's are the same numbers.
absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

struct Client::Connection {
  std::unique_ptr<v1::Inference::Stub> inference;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Unary(grpc::Status (v1::Inference::Stub::*method)(grpc::ClientContext*,
                                                                             const Request&,
                                                                             Response*),
                                 const Request& request, const CallOptions& options) {
    RunningCall call(options);
    Response response;
    const grpc::Status status = (inference.get()->*method)(call.context(), request, &response);
    if (!status.ok()) return ToStatus(status);
    return response;
  }
};

Client::Client(const std::string& address)
    : connection_(new Connection{v1::Inference::NewStub(MakeChannel(address))}) {}

Client::~Client() = default;

absl::Status Client::Generate(const v1::GenerateRequest& request, const CallOptions& options,
                              const std::function<bool(const v1::GenerateResponse&)>& on_message) {
  RunningCall call(options);
  const auto stream = connection_->inference->Generate(call.context(), request);
  v1::GenerateResponse message;
  bool wanted = true;
  while (wanted && stream->Read(&message)) wanted = on_message(message);
  if (wanted) return ToStatus(stream->Finish());
  call.context()->TryCancel();
  (void)stream->Finish();  // CANCELLED, by ourselves: the caller asked for it
  return absl::OkStatus();
}

absl::StatusOr<v1::ScoreResponse> Client::Score(const v1::ScoreRequest& request,
                                                const CallOptions& options) {
  return connection_->Unary(&v1::Inference::Stub::Score, request, options);
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request,
                                                      const CallOptions& options) {
  return connection_->Unary(&v1::Inference::Stub::Tokenize, request, options);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request,
                                                          const CallOptions& options) {
  return connection_->Unary(&v1::Inference::Stub::Detokenize, request, options);
}

absl::StatusOr<v1::Model> Client::GetModel(const CallOptions& options) {
  return connection_->Unary(&v1::Inference::Stub::GetModel, v1::GetModelRequest(), options);
}

}  // namespace rivulet
