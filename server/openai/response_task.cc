// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/response_task.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/status.h"
#include "server/log/log.h"
#include "server/openai/errors.h"
#include "server/openai/generation.h"
#include "server/openai/input_items.h"
#include "server/openai/json_call.h"
#include "server/openai/messages.h"
#include "server/openai/response_reply.h"
#include "server/openai/response_request.h"
#include "server/openai/stored_response.h"

namespace rivulet::openai {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;

class ResponseTask final : public GenerationTask {
 public:
  explicit ResponseTask(const ServiceContext& service) : service_(service) {}

  const char* method() const override { return "Responses"; }

  absl::StatusOr<std::vector<v1::GenerateRequest>> Read(
      HttpRequest& http, const std::shared_ptr<GenerationCall>& call) override {
    const std::string& model = service_.model.info.name();
    RIVULET_ASSIGN_OR_RETURN(ResponseRequest request, ReadResponseRequest(http, model));
    http.body = {};
    names_ = request.names;
    key_ = {http.caller->tenant->name(), MakeResponseId()};
    store_ = request.store;
    if (store_) input_ = std::make_shared<const InputItems>(MakeInputItems(request.input));
    ResponseFormat format = {.id = key_.id,
                             .model = model,
                             .stream = request.stream,
                             .logprobs = request.logprobs,
                             .top_logprobs = request.top_logprobs};
    if (request.parse_tool_calls) format.tools = SchemasOf(request.proto.messages());
    RIVULET_ASSIGN_OR_RETURN(format.context_tokens, MakeSession(request.previous_id));
    format.echo = std::move(request.echo);
    AddDefaults(format.echo);
    if (has_session_) request.proto.set_session_id(key_.id);
    reply_.emplace(std::move(format), service_.model.tokenizer);
    RIVULET_RETURN_IF_ERROR(Keep(call));
    return std::vector<v1::GenerateRequest>{std::move(request.proto)};
  }

  absl::StatusOr<std::string> Add(size_t, v1::GenerateResponse message) override {
    return reply_->Add(message);
  }

  std::string LastEvents() override {
    std::string events = reply_->Finish();
    End();
    return events + reply_->LastEvent();
  }
  std::string Whole() override {
    reply_->Finish();
    End();
    return reply_->Object();
  }
  bool large() const override { return reply_->kept_bytes() >= kLarge; }

  absl::Status Explain(const absl::Status& status) const override {
    return InFieldsOf(names_, status);
  }
  void Fail() override {
    if (has_session_) service_.sessions.Delete(key_).IgnoreError();
  }
  std::string ErrorEvent(const absl::Status& status) override {
    return reply_->FailedEvent(status);
  }

  std::string request_id() const override { return reply_->request_id(); }
  std::string session_id() const override { return ""; }

 private:
  // From this many bytes on, building the end of a response is work for the pool.
  static constexpr size_t kLarge = size_t{64} << 10;

  // How many tokens of context the response begins with.
  absl::StatusOr<uint64_t> MakeSession(const std::string& previous) {
    if (previous.empty() && !store_) return 0;
    const auto session = previous.empty()
                             ? service_.sessions.Create(key_, "")
                             : ForkResponse(service_.sessions, {key_.tenant, previous}, key_.id);
    RIVULET_RETURN_IF_ERROR(session.status());
    has_session_ = true;
    LogInfo("session_created",
            {{"tenant", key_.tenant}, {"session_id", key_.id}, {"method", method()}});
    return session->tokens;
  }

  void AddDefaults(Json& echo) const {
    const GenerationDefaults& defaults = service_.model.defaults;
    if (!echo.contains("temperature")) echo["temperature"] = defaults.temperature.value_or(1.f);
    if (!echo.contains("top_p")) echo["top_p"] = defaults.top_p.value_or(1.f);
  }

  // `call`: runs it; null at its end.
  absl::Status Keep(const std::shared_ptr<GenerationCall>& call) {
    if (!store_) return absl::OkStatus();
    auto response = std::make_shared<StoredResponse>();
    response->json = reply_->Object();
    response->input = input_;
    response->call = call;
    if (call == nullptr) response->tokens = reply_->tokens();
    return service_.sessions.Attach(key_, std::move(response));
  }

  // Before the client knows, which may continue it at once. A session that has left the table
  // meanwhile, evicted or deleted, says so to that client.
  void End() {
    if (!store_) return Fail();
    Keep(nullptr).IgnoreError();
  }

  const ServiceContext& service_;
  SessionKey key_ = "";  // of the response, and of its session
  bool store_ = true;
  std::shared_ptr<const InputItems> input_;
  bool has_session_ = false;
  FieldNames names_;
  std::optional<ResponseReply> reply_;  // once the body is read
};

// The part of the path behind the fixed one.
std::string IdOf(const HttpRequest& http) {
  const std::string rest = http.path.substr(std::string_view("/v1/responses/").size());
  return PercentDecoded(rest.substr(0, rest.find('/')));
}

absl::StatusOr<std::string> Get(const CallerContext& context, const HttpRequest& http) {
  if (QueryValue(http.query, "stream") == "true") {
    return FieldError("stream", "a response is streamed while it is made", "unsupported_parameter");
  }
  RIVULET_ASSIGN_OR_RETURN(const auto response,
                           FindResponse(context.service.sessions, context.Key(IdOf(http))));
  return response->json;
}

absl::StatusOr<std::string> GetInput(const CallerContext& context, const HttpRequest& http) {
  RIVULET_ASSIGN_OR_RETURN(const auto response,
                           FindResponse(context.service.sessions, context.Key(IdOf(http))));
  return ListInputItems(*response->input, http.query);
}

absl::StatusOr<std::string> Delete(const CallerContext& context, const HttpRequest& http) {
  const std::string id = IdOf(http);
  RIVULET_RETURN_IF_ERROR(DeleteResponse(context.service.sessions, context.Key(id)));
  return Dump({{"id", id}, {"object", "response"}, {"deleted", true}});
}

// The end of a response that runs comes later; this one says what it will be.
absl::StatusOr<std::string> Cancel(const CallerContext& context, const HttpRequest& http) {
  RIVULET_ASSIGN_OR_RETURN(const auto response,
                           FindResponse(context.service.sessions, context.Key(IdOf(http))));
  const std::shared_ptr<GenerationCall> call = response->call.lock();
  if (call == nullptr) return response->json;
  call->Stop();
  RIVULET_ASSIGN_OR_RETURN(Json json, ParseJson(response->json));
  json["status"] = "cancelled";
  return Dump(json);
}

}  // namespace

void AddResponseRoutes(const ServiceContext& service, size_t most_body_bytes,
                       std::vector<HttpRoute>& routes) {
  routes.push_back({"POST", "/v1/responses", most_body_bytes, [&service](const Exchange& exchange) {
                      StartGeneration(service, std::make_unique<ResponseTask>(service), exchange);
                    }});
  const auto add = [&](const char* method, const char* path, JsonMethod answer) {
    routes.push_back({method, path, most_body_bytes, [&service, answer](const Exchange& exchange) {
                        StartJsonCall(service, answer, exchange);
                      }});
  };
  add("GET", "/v1/responses/*", &Get);
  add("GET", "/v1/responses/*/input_items", &GetInput);
  add("DELETE", "/v1/responses/*", &Delete);
  add("POST", "/v1/responses/*/cancel", &Cancel);
}

}  // namespace rivulet::openai
