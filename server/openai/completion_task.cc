// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/completion_task.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"
#include "server/openai/messages.h"
#include "server/openai/reply.h"
#include "server/service/new_session.h"
#include "server/service/validation.h"
#include "server/text/detokenizer.h"

namespace rivulet::openai {
namespace {

class CompletionTask final : public GenerationTask {
 public:
  CompletionTask(const ServiceContext& service, Endpoint endpoint)
      : service_(service), endpoint_(endpoint), new_session_(service.sessions) {}

  const char* method() const override {
    return endpoint_ == Endpoint::kChat ? "ChatCompletions" : "Completions";
  }

  absl::StatusOr<std::vector<v1::GenerateRequest>> Read(
      HttpRequest& http, const std::shared_ptr<GenerationCall>&) override {
    const std::string& model = service_.model.info.name();
    RIVULET_ASSIGN_OR_RETURN(ApiRequest request, ReadApiRequest(http, endpoint_, model));
    http.body = {};
    names_ = request.names;
    RIVULET_RETURN_IF_ERROR(CheckPrompts(1 + request.more_prompts.size(), *http.caller->tenant));
    v1::GenerateRequest& proto = request.proto;
    ReplyFormat format = {.endpoint = endpoint_,
                          .stream = request.stream,
                          .include_usage = request.include_usage,
                          .logprobs = request.logprobs,
                          .top_logprobs = request.top_logprobs,
                          .token_ids = request.token_ids,
                          .choices = 1,
                          .prompts = 1 + request.more_prompts.size(),
                          .model = model};
    if (request.parse_tool_calls) format.tools = SchemasOf(proto.messages());
    if (request.echo) {
      RIVULET_ASSIGN_OR_RETURN(format.echoes, EchoesOf(request));
    }
    if (proto.has_n()) format.choices = std::clamp(proto.n(), 1u, kMaxCompletions);
    reply_.emplace(std::move(format), service_.model.tokenizer);
    RIVULET_RETURN_IF_ERROR(new_session_.MakeFor(proto, http.caller->tenant->name(), "HTTP"));
    std::vector<v1::GenerateRequest> requests(1 + request.more_prompts.size(), proto);
    for (size_t i = 0; i < request.more_prompts.size(); ++i) {
      SetPrompt(std::move(request.more_prompts[i]), requests[i + 1]);
    }
    return requests;
  }

  absl::StatusOr<std::string> Add(size_t prompt, v1::GenerateResponse message) override {
    return reply_->Add(std::move(message), prompt);
  }
  std::string LastEvents() override { return reply_->LastEvents(); }
  std::string Whole() override { return reply_->Whole(); }
  // A stream's last events are short.
  bool large() const override { return reply_->kept_logprobs() >= kManyLogprobs; }

  absl::Status Explain(const absl::Status& status) const override {
    return InFieldsOf(names_, status);
  }
  void Fail() override {
    const bool told = reply_.has_value() && !reply_->request_id().empty();
    if (!told) new_session_.Drop();
  }
  std::string ErrorEvent(const absl::Status& status) override {
    return absl::StrCat("data: ", ErrorBody(status), "\n\n");
  }

  std::string request_id() const override { return reply_->request_id(); }
  std::string session_id() const override { return reply_->session_id(); }

 private:
  // Each is a request: more of them than the tenant may ever have would be refused again.
  static absl::Status CheckPrompts(size_t prompts, Tenant& tenant) {
    const auto limit = tenant.RefuseTogether(prompts);
    if (!limit.has_value()) return absl::OkStatus();
    absl::Status status = absl::ResourceExhaustedError(
        absl::StrCat("prompt: each of these ", prompts, " prompts counts as a request, and ",
                     *limit, ": send fewer at once"));
    status.SetPayload(kParamPayload, absl::Cord("prompt"));
    return status;
  }

  // Of all prompts. With log-probabilities, texts among these become tokens.
  absl::StatusOr<std::vector<Echo>> EchoesOf(ApiRequest& request) const {
    Prompt first;
    if (request.proto.has_prompt()) first.text = request.proto.prompt();
    first.tokens = request.proto.token_ids();
    RIVULET_ASSIGN_OR_RETURN(Echo echo, EchoOf(request, first));
    SetPrompt(std::move(first), request.proto);
    std::vector<Echo> echoes = {std::move(echo)};
    for (Prompt& prompt : request.more_prompts) {
      RIVULET_ASSIGN_OR_RETURN(Echo next, EchoOf(request, prompt));
      echoes.push_back(std::move(next));
    }
    return echoes;
  }

  absl::StatusOr<Echo> EchoOf(const ApiRequest& request, Prompt& prompt) const {
    Echo echo;
    if (prompt.text.has_value()) {
      echo.text = *prompt.text;
      if (!request.logprobs) return echo;
      RIVULET_ASSIGN_OR_RETURN(
          echo.tokens, TokenizeFirstPrompt(*prompt.text, service_.model, service_.max_prompt,
                                           request.proto.special_tokens()));
      prompt.text.reset();
      prompt.tokens.mutable_ids()->Assign(echo.tokens.begin(), echo.tokens.end());
      return echo;
    }
    const std::vector<uint32_t> ids(prompt.tokens.ids().begin(), prompt.tokens.ids().end());
    const Tokenizer* const tokenizer = service_.model.tokenizer;
    if (tokenizer != nullptr) echo.text = Detokenize(*tokenizer, ids, /*starts_text=*/true);
    if (request.logprobs) echo.tokens = ids;
    return echo;
  }

  static void SetPrompt(Prompt prompt, v1::GenerateRequest& proto) {
    if (prompt.text.has_value()) return proto.set_prompt(*std::move(prompt.text));
    *proto.mutable_token_ids() = std::move(prompt.tokens);
  }

  const ServiceContext& service_;
  const Endpoint endpoint_;
  FieldNames names_;            // once the body is read
  std::optional<Reply> reply_;  // once the body is read
  NewSession new_session_;
};

}  // namespace

std::unique_ptr<GenerationTask> MakeCompletionTask(const ServiceContext& service,
                                                   Endpoint endpoint) {
  return std::make_unique<CompletionTask>(service, endpoint);
}

}  // namespace rivulet::openai
