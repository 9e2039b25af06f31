// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/generation.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/log/log.h"
#include "server/openai/errors.h"
#include "server/openai/reply.h"
#include "server/security/trace_context.h"
#include "server/service/call_status.h"
#include "server/service/generation_call.h"
#include "server/service/validation.h"

namespace rivulet::openai {
namespace {

// Null if the reply cannot call any.
std::shared_ptr<const ToolSchemas> ToolsOf(const ApiRequest& request) {
  if (!request.parse_tool_calls) return nullptr;
  auto tools = std::make_shared<ToolSchemas>();
  for (const std::string& text : request.proto.messages().tools()) {
    const auto tool = ParseJson(text);
    if (tool.ok()) tools->Add(*tool);
  }
  return tools;
}

// From this many log-probabilities on, building a reply is work for the pool.
constexpr size_t kManyLogprobs = 512;

class Generation final : public ResponseStream, public std::enable_shared_from_this<Generation> {
 public:
  Generation(const ServiceContext& service, Endpoint endpoint,
             std::shared_ptr<HttpExchange> exchange)
      : service_(service), endpoint_(endpoint), exchange_(std::move(exchange)) {
    service_.calls.Add(1);
  }
  ~Generation() override { service_.calls.Add(-1); }

  void Start() {
    const bool chat = endpoint_ == Endpoint::kChat;
    const HttpRequest& http = exchange_->request();
    CallOrigin origin = {chat ? "ChatCompletions" : "Completions", Clock::now(), kNoDeadline,
                         http.caller, ""};
    if (const std::string* const trace = http.Find(kTraceParentHeader)) {
      origin.trace_id = TraceIdOf(*trace);
    }
    call_ = std::make_shared<GenerationCall>(service_, std::move(origin), shared_from_this());
    exchange_->WhenGone([call = call_] { call->Cancel(); });
    const size_t bytes = http.body.size();
    if (service_.pool.Run([self = shared_from_this()] { self->ReadBody(); }, bytes)) return;
    service_.metrics.CountRequest(Outcome::kRejectedQueue);
    call_->Refuse(TooManyCalls());
  }

  absl::Status Prepare(v1::GenerateResponse message) override {
    RIVULET_ASSIGN_OR_RETURN(events_, reply_->Add(std::move(message)));
    return absl::OkStatus();
  }

  // Also for a reply that is not streamed, with no bytes: the end of the write then comes on
  // another stack.
  void Send() override {
    const bool begins = !begun_ && !events_.empty();
    if (begins) exchange_->BeginStream(Head("text/event-stream"));
    begun_ = begun_ || begins;
    exchange_->Write(std::exchange(events_, {}),
                     [call = call_](bool ok) { call->OnWriteDone(ok); });
  }

  void CutOff() override { exchange_->Cut(); }

  void OnGenerationEnd(const absl::Status& status) override {
    if (!status.ok() && !reply_begun()) DropNewSession();
    if (begun_) return EndStream(status);
    if (!status.ok()) return Respond(ErrorResponse(status));
    const auto respond = [self = shared_from_this()] { self->RespondWhole(); };
    const bool many = reply_->kept_logprobs() >= kManyLogprobs;
    if (!many || !service_.pool.Run(respond)) respond();
  }

 private:
  bool reply_begun() const { return reply_.has_value() && !reply_->request_id().empty(); }

  void ReadBody() {
    ApiRequest request;
    const absl::Status read = OrNoMemory([&] { return Read(request); });
    read.ok() ? call_->Run(request.proto) : call_->Refuse(read);
  }

  absl::Status Read(ApiRequest& request) {
    HttpRequest& http = exchange_->request();
    const std::string& model = service_.model.info.name();
    RIVULET_ASSIGN_OR_RETURN(request, ReadApiRequest(http, endpoint_, model));
    http.body = {};
    ReplyFormat format = {.endpoint = endpoint_,
                          .stream = request.stream,
                          .include_usage = request.include_usage,
                          .logprobs = request.logprobs,
                          .top_logprobs = request.top_logprobs,
                          .token_ids = request.token_ids,
                          .choices = 1,
                          .model = model,
                          .tools = ToolsOf(request)};
    if (request.proto.has_n()) format.choices = std::clamp(request.proto.n(), 1u, kMaxCompletions);
    reply_.emplace(std::move(format), service_.model.tokenizer);
    return ChooseSession(request.proto);
  }

  absl::Status ChooseSession(v1::GenerateRequest& proto) {
    if (proto.session_id() != kNewSession) return absl::OkStatus();
    const auto session = service_.sessions.Create(Key(""), "");
    RIVULET_RETURN_IF_ERROR(session.status());
    new_session_ = session->id;
    proto.set_session_id(session->id);
    LogInfo("session_created",
            {{"tenant", session->tenant}, {"session_id", session->id}, {"method", "HTTP"}});
    return absl::OkStatus();
  }

  // The client was not told its name.
  void DropNewSession() {
    if (!new_session_.empty()) (void)service_.sessions.Delete(Key(new_session_));
  }

  SessionKey Key(const std::string& id) const {
    return {exchange_->request().caller->tenant->name(), id};
  }

  HttpResponse Head(const char* content_type) const {
    HttpResponse head;
    head.content_type = content_type;
    head.headers.push_back({"Cache-Control", "no-cache"});
    head.headers.push_back({"x-request-id", reply_->request_id()});
    if (!reply_->session_id().empty()) {
      head.headers.push_back({"x-session-id", reply_->session_id()});
    }
    return head;
  }

  void RespondWhole() {
    HttpResponse response;
    const absl::Status built = OrNoMemory([&] {
      response = Head("application/json");
      response.body = reply_->Whole();
      return absl::OkStatus();
    });
    Respond(built.ok() ? std::move(response) : ErrorResponse(built));
  }

  void EndStream(const absl::Status& status) {
    const std::string last =
        status.ok() ? reply_->LastEvents() : "data: " + ErrorBody(status) + "\n\n";
    exchange_->Write(last, [](bool) {});
    exchange_->EndStream();
  }

  void Respond(HttpResponse response) { exchange_->Respond(std::move(response)); }

  const ServiceContext& service_;
  const Endpoint endpoint_;
  const std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<GenerationCall> call_;  // which has this until its end
  // Set on a worker, before the first message.
  std::optional<Reply> reply_;
  std::string new_session_;  // to be deleted if its first turn is refused
  // Of the thread that began the write in flight.
  std::string events_;  // of a stream; else empty
  bool begun_ = false;  // the stream has
};

}  // namespace

void StartGeneration(const ServiceContext& service, Endpoint endpoint,
                     const std::shared_ptr<HttpExchange>& exchange) {
  std::make_shared<Generation>(service, endpoint, exchange)->Start();
}

}  // namespace rivulet::openai
