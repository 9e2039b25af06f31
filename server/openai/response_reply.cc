// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/response_reply.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/service/validation.h"
#include "server/session/session_table.h"

namespace rivulet::openai {
ResponseReply::ResponseReply(ResponseFormat format, const Tokenizer* tokenizer)
    : format_(std::move(format)), tokenizer_(tokenizer), created_(std::time(nullptr)) {
  if (format_.tools != nullptr) parser_.emplace(format_.tools);
}

absl::StatusOr<std::string> ResponseReply::Add(const v1::GenerateResponse& message) {
  if (request_id_.empty()) Begin(message);
  RIVULET_RETURN_IF_ERROR(CountBytes(message));
  for (const v1::TokenLogprob& logprob : message.logprobs()) {
    if (!format_.logprobs) break;
    new_logprobs_.push_back(TokenLogprobJson(logprob, format_.top_logprobs, tokenizer_));
  }
  CountReasoning(message);
  ThinkingSplitter::Parts parts = splitter_.Add(message.text());
  if (parser_.has_value()) parts.answer = parser_->Add(parts.answer);
  AddText(Open::kReasoning, parts.thinking);
  AddText(Open::kMessage, parts.answer);
  if (message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) End(message);
  return TakeEvents();
}

void ResponseReply::Begin(const v1::GenerateResponse& message) {
  request_id_ = message.request_id();
  input_tokens_ = message.rewritten_tokens() > 0 ? 0 : format_.context_tokens;
  splitter_ = ThinkingSplitter(message.starts_thinking());
  token_splitter_ = ThinkingSplitter(message.starts_thinking());
  Emit("response.created", {{"response", Describe()}});
  Emit("response.in_progress", {{"response", Describe()}});
}

absl::Status ResponseReply::CountBytes(const v1::GenerateResponse& message) {
  kept_bytes_ += message.text().size();
  if (format_.logprobs) kept_bytes_ += LogprobBytes(message, format_.top_logprobs);
  if (kept_bytes_ <= kMaxMessageBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the response would have more than ", kMaxMessageBytes, " bytes: ask for less at a time"));
}

// By tokens, since how many come in one message depends on the client's speed.
void ResponseReply::CountReasoning(const v1::GenerateResponse& message) {
  for (const uint32_t token : message.token_ids()) {
    if (answers_) return;
    const bool known = tokenizer_ != nullptr && token < tokenizer_->vocab_size();
    const auto parts = token_splitter_.Add(known ? tokenizer_->TokenBytes(token) : "");
    thought_ = thought_ || !parts.thinking.empty();
    answers_ = !parts.answer.empty();
    if (!answers_) ++before_answer_;
  }
}

void ResponseReply::End(const v1::GenerateResponse& message) {
  input_tokens_ += message.usage().prompt_tokens();
  cached_tokens_ = message.usage().cached_tokens();
  output_tokens_ = message.usage().completion_tokens();
  switch (message.finish_reason()) {
    case v1::FINISH_REASON_LENGTH:
      status_ = "incomplete";
      incomplete_ = {{"reason", "max_output_tokens"}};
      break;
    case v1::FINISH_REASON_CANCELLED:
      status_ = "cancelled";
      break;
    default:
      status_ = "completed";
  }
}

std::string ResponseReply::Finish() {
  completed_ = std::time(nullptr);
  ThinkingSplitter::Parts rest = splitter_.Finish();
  ToolCallParser::Rest calls;
  if (parser_.has_value()) {
    rest.answer = parser_->Add(rest.answer);
    calls = parser_->Finish();
    rest.answer += calls.text;
  }
  AddText(Open::kReasoning, rest.thinking);
  AddText(Open::kMessage, rest.answer);
  const bool silent = open_ != Open::kMessage && calls.calls.empty();
  if (silent && status_ == "completed") OpenItem(Open::kMessage);
  CloseItem(/*last=*/calls.calls.empty());
  for (const ToolCall& call : calls.calls) AddCall(call);
  return TakeEvents();
}

// ---- Items.

void ResponseReply::AddText(Open kind, const std::string& text) {
  if (text.empty()) return;
  OpenItem(kind);
  text_ += text;
  Json delta = {{"delta", text}};
  const bool answer = kind == Open::kMessage;
  if (answer) {
    delta["logprobs"] = new_logprobs_;
    for (Json& logprob : new_logprobs_) logprobs_.push_back(std::move(logprob));
    new_logprobs_ = Json::array();
  }
  EmitPart(answer ? "response.output_text.delta" : "response.reasoning_text.delta",
           std::move(delta));
}

Json ResponseReply::Part(const std::string& text, bool whole) const {
  if (open_ == Open::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", whole ? logprobs_ : Json::array()}};
}

void ResponseReply::OpenItem(Open kind) {
  if (open_ == kind) return;
  CloseItem(/*last=*/false);
  open_ = kind;
  Json item;
  if (kind == Open::kReasoning) {
    item_id_ = "rs_" + MakeRandomId();
    item = {{"id", item_id_}, {"type", "reasoning"}, {"summary", Json::array()}};
  } else {
    item_id_ = "msg_" + MakeRandomId();
    item = {{"id", item_id_}, {"type", "message"}, {"role", "assistant"}};
  }
  item["status"] = "in_progress";
  item["content"] = Json::array();
  Emit("response.output_item.added", {{"output_index", output_.size()}, {"item", std::move(item)}});
  EmitPart("response.content_part.added", {{"part", Part("", false)}});
}

// `last`: of the whole output, which may have been cut.
void ResponseReply::CloseItem(bool last) {
  if (open_ == Open::kNothing) return;
  const bool answer = open_ == Open::kMessage;
  if (answer) {
    for (Json& logprob : new_logprobs_) logprobs_.push_back(std::move(logprob));
    new_logprobs_ = Json::array();
  }
  Json done = {{"text", text_}};
  if (answer) done["logprobs"] = logprobs_;
  EmitPart(answer ? "response.output_text.done" : "response.reasoning_text.done", std::move(done));
  EmitPart("response.content_part.done", {{"part", Part(text_, true)}});
  Json item = {{"id", item_id_}, {"type", answer ? "message" : "reasoning"}};
  if (answer) item["role"] = "assistant";
  if (!answer) item["summary"] = Json::array();
  item["status"] = last && status_ != "completed" ? "incomplete" : "completed";
  item["content"] = Json::array({Part(text_, true)});
  Emit("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
  output_.push_back(std::move(item));
  text_.clear();
  open_ = Open::kNothing;
}

// The call's id has 9 letters and digits, as Mistral's templates want it.
void ResponseReply::AddCall(const ToolCall& call) {
  item_id_ = "fc_" + MakeRandomId();
  Json item = {{"id", item_id_},          {"type", "function_call"},
               {"status", "in_progress"}, {"call_id", MakeRandomId().substr(0, 9)},
               {"name", call.name},       {"arguments", ""}};
  const size_t index = output_.size();
  Emit("response.output_item.added", {{"output_index", index}, {"item", item}});
  const Json place = {{"item_id", item_id_}, {"output_index", index}};
  Json delta = place, done = place;
  delta["delta"] = call.arguments;
  done["name"] = call.name;
  done["arguments"] = call.arguments;
  Emit("response.function_call_arguments.delta", std::move(delta));
  Emit("response.function_call_arguments.done", std::move(done));
  item["status"] = "completed";
  item["arguments"] = call.arguments;
  Emit("response.output_item.done", {{"output_index", index}, {"item", item}});
  output_.push_back(std::move(item));
}

// ---- Events.

void ResponseReply::Emit(const char* type, Json fields) {
  if (!format_.stream) return;
  Json event = {{"type", type}, {"sequence_number", sequence_++}};
  event.update(std::move(fields));
  absl::StrAppend(&events_, "event: ", type, "\ndata: ", Dump(event), "\n\n");
}

void ResponseReply::EmitPart(const char* type, Json fields) {
  if (!format_.stream) return;
  Json place = {{"item_id", item_id_}, {"output_index", output_.size()}, {"content_index", 0}};
  place.update(std::move(fields));
  Emit(type, std::move(place));
}

std::string ResponseReply::TakeEvents() { return std::exchange(events_, {}); }

std::string ResponseReply::LastEvent() {
  const bool whole = status_ == "completed";
  Emit(whole ? "response.completed" : "response.incomplete", {{"response", Describe()}});
  return TakeEvents();
}

std::string ResponseReply::FailedEvent(const absl::Status& status) {
  status_ = "failed";
  const bool load = status.code() == absl::StatusCode::kResourceExhausted;
  error_ = {{"code", load ? "rate_limit_exceeded" : "server_error"},
            {"message", std::string(status.message())}};
  Emit("response.failed", {{"response", Describe()}});
  return TakeEvents();
}

std::string ResponseReply::Object() const { return Dump(Describe()); }

Json ResponseReply::Describe() const {
  Json object = {{"id", format_.id},
                 {"object", "response"},
                 {"created_at", created_},
                 {"status", status_},
                 {"completed_at", status_ == "completed" ? Json(completed_) : Json(nullptr)},
                 {"background", false},
                 {"error", error_},
                 {"incomplete_details", incomplete_},
                 {"model", format_.model},
                 {"output", output_},
                 {"service_tier", "default"},
                 {"truncation", "disabled"}};
  object.update(format_.echo);
  object["usage"] = status_ == "in_progress" ? Json(nullptr) : UsageJson();
  return object;
}

Json ResponseReply::UsageJson() const {
  return {{"input_tokens", input_tokens_},
          {"input_tokens_details", {{"cached_tokens", cached_tokens_}, {"cache_write_tokens", 0}}},
          {"output_tokens", output_tokens_},
          {"output_tokens_details", {{"reasoning_tokens", thought_ ? before_answer_ : 0}}},
          {"total_tokens", input_tokens_ + output_tokens_}};
}

}  // namespace rivulet::openai
