// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/reply.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/logprobs.h"
#include "server/service/message_conversion.h"
#include "server/service/validation.h"
#include "server/session/session_table.h"
#include "server/text/detokenizer.h"

namespace rivulet::openai {
namespace {

// Null while the choice goes on. A choice that failed has none: the error follows.
const char* FinishName(v1::FinishReason reason, bool calls) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
    case v1::FINISH_REASON_EOS:
      return calls ? "tool_calls" : "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
    case v1::FINISH_REASON_DEADLINE:
      return "abort";
    default:
      return nullptr;
  }
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

size_t Characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Event(const std::string& data) { return absl::StrCat("data: ", data, "\n\n"); }

}  // namespace

Reply::Reply(ReplyFormat format, const Tokenizer* tokenizer)
    : format_(std::move(format)), tokenizer_(tokenizer), created_(std::time(nullptr)) {}

void Reply::Begin(const v1::GenerateResponse& message) {
  if (!choices_.empty()) return;
  request_id_ = message.request_id();
  session_id_ = message.session_id();
  prompts_.resize(format_.prompts);
  choices_.assign(format_.prompts * format_.choices,
                  Choice(message.starts_thinking(), format_.tools));
}

absl::StatusOr<std::string> Reply::Add(v1::GenerateResponse message, size_t prompt) {
  Begin(message);
  message.set_index(static_cast<uint32_t>(prompt * format_.choices + message.index()));
  Choice& choice = choices_[std::min<size_t>(message.index(), choices_.size() - 1)];
  if (message.has_usage()) {
    PromptUsage& usage = prompts_[prompt];
    usage.tokens = message.usage().prompt_tokens();
    usage.cached = std::max<uint64_t>(usage.cached, message.usage().cached_tokens());
    completion_tokens_ += message.usage().completion_tokens();
    drafted_tokens_ += message.usage().drafted_tokens();
    accepted_tokens_ += message.usage().accepted_tokens();
  }
  const bool failed = message.finish_reason() == v1::FINISH_REASON_ERROR;
  if (failed && message.token_ids().empty()) return std::string();
  if (format_.stream) return Event(Dump(Chunk(message, choice)));
  RIVULET_RETURN_IF_ERROR(Keep(message, choice));
  return std::string();
}

// Of the prompt that a message answers; null: none.
const Echo* Reply::EchoOf(const v1::GenerateResponse& message) const {
  const size_t prompt = message.index() / format_.choices;
  return prompt < format_.echoes.size() ? &format_.echoes[prompt] : nullptr;
}

ThinkingSplitter::Parts Reply::Split(const v1::GenerateResponse& message, Choice& choice) const {
  if (format_.endpoint == Endpoint::kCompletions) {
    const Echo* const echo = std::exchange(choice.echoed, true) ? nullptr : EchoOf(message);
    return {"", echo == nullptr ? message.text() : echo->text + message.text()};
  }
  const bool ends = message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  ThinkingSplitter::Parts parts = choice.splitter.Add(message.text());
  if (ends) {
    const ThinkingSplitter::Parts rest = choice.splitter.Finish();
    parts = {parts.thinking + rest.thinking, parts.answer + rest.answer};
  }
  if (!choice.parser.has_value()) return parts;
  parts.answer = choice.parser->Add(parts.answer);
  if (!ends) return parts;
  ToolCallParser::Rest rest = choice.parser->Finish();
  parts.answer += rest.text;
  choice.calls = std::move(rest.calls);
  return parts;
}

// The id has 9 letters and digits, as Mistral's templates want it.
Json Reply::CallsJson(const Choice& choice, bool with_index) {
  Json calls = Json::array();
  for (const ToolCall& call : choice.calls) {
    Json json = Json::object();
    if (with_index) json["index"] = calls.size();
    json["id"] = MakeRandomId().substr(0, 9);
    json["type"] = "function";
    json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    calls.push_back(std::move(json));
  }
  return calls;
}

Json Reply::Frame(const char* object) const {
  const char* const prefix = format_.endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
  return {{"id", prefix + request_id_},
          {"object", object},
          {"created", created_},
          {"model", format_.model},
          {"system_fingerprint", nullptr}};
}

// ---- Streams.

Json Reply::Chunk(const v1::GenerateResponse& message, Choice& choice) {
  const bool chat = format_.endpoint == Endpoint::kChat;
  const ThinkingSplitter::Parts parts = Split(message, choice);
  Json entry = {{"index", message.index()}};
  if (chat) {
    entry["delta"] = Delta(parts, choice);
  } else {
    entry["text"] = parts.answer;
  }
  Json logprobs = NoLogprobs();
  AddLogprobs(message, choice, logprobs);
  entry["logprobs"] = std::move(logprobs);
  const char* const finish = FinishName(message.finish_reason(), !choice.calls.empty());
  entry["finish_reason"] = finish == nullptr ? Json(nullptr) : Json(finish);
  if (finish != nullptr) entry["stop_reason"] = TextOrNull(message.matched_stop());
  if (format_.token_ids) {
    entry["token_ids"] = message.token_ids();
    entry["guessed_tokens"] = message.guessed();
    if (message.position() > 0) entry["position"] = message.position();
  }
  Json chunk = Frame(chat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array({std::move(entry)});
  if (format_.include_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json Reply::Delta(const ThinkingSplitter::Parts& parts, Choice& choice) const {
  Json delta = Json::object();
  if (!std::exchange(choice.begun, true)) delta = {{"role", "assistant"}, {"content", ""}};
  if (!parts.thinking.empty()) delta["reasoning_content"] = parts.thinking;
  if (!parts.answer.empty()) delta["content"] = parts.answer;
  if (!choice.calls.empty()) delta["tool_calls"] = CallsJson(choice, /*with_index=*/true);
  return delta;
}

std::string Reply::LastEvents() const {
  std::string events;
  if (format_.include_usage) {
    const bool chat = format_.endpoint == Endpoint::kChat;
    Json chunk = Frame(chat ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = Json::array();
    chunk["usage"] = UsageJson();
    events = Event(Dump(chunk));
  }
  return events + Event("[DONE]");
}

// ---- Whole replies.

absl::Status Reply::Keep(const v1::GenerateResponse& message, Choice& choice) {
  kept_logprobs_ += static_cast<size_t>(message.logprobs_size() + message.prompt_logprobs_size());
  const Echo* const echo = choice.echoed ? nullptr : EchoOf(message);
  kept_bytes_ += (echo == nullptr ? 0 : echo->text.size()) + message.text().size() +
                 8 * static_cast<size_t>(message.token_ids_size()) +
                 LogprobBytes(message, format_.top_logprobs);
  if (kept_bytes_ > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the response would have more than ", kMaxMessageBytes,
                     " bytes: stream it, or ask for less at a time"));
  }
  const ThinkingSplitter::Parts parts = Split(message, choice);
  choice.thinking += parts.thinking;
  choice.answer += parts.answer;
  if (choice.logprobs.is_null()) choice.logprobs = NoLogprobs();
  AddLogprobs(message, choice, choice.logprobs);
  for (const uint32_t place : message.guessed()) {
    choice.guessed.push_back(choice.tokens.size() + place);
  }
  choice.tokens.insert(choice.tokens.end(), message.token_ids().begin(), message.token_ids().end());
  const char* const finish = FinishName(message.finish_reason(), !choice.calls.empty());
  if (finish != nullptr) choice.finish = finish;
  choice.matched_stop = message.matched_stop();
  return absl::OkStatus();
}

Json Reply::WholeChoice(uint32_t index, Choice& choice) const {
  Json entry = {{"index", index}};
  if (format_.endpoint == Endpoint::kChat) {
    Json message = {{"role", "assistant"}, {"content", choice.answer}, {"refusal", nullptr}};
    if (!choice.calls.empty()) {
      if (choice.answer.empty()) message["content"] = nullptr;
      message["tool_calls"] = CallsJson(choice, /*with_index=*/false);
    }
    if (!choice.thinking.empty()) message["reasoning_content"] = choice.thinking;
    entry["message"] = std::move(message);
  } else {
    entry["text"] = choice.answer;
  }
  entry["logprobs"] = std::move(choice.logprobs);
  entry["finish_reason"] = choice.finish;
  entry["stop_reason"] = TextOrNull(choice.matched_stop);
  if (format_.token_ids) {
    entry["token_ids"] = choice.tokens;
    entry["guessed_tokens"] = choice.guessed;
  }
  return entry;
}

std::string Reply::Whole() {
  const bool chat = format_.endpoint == Endpoint::kChat;
  Json whole = Frame(chat ? "chat.completion" : "text_completion");
  Json choices = Json::array();
  for (uint32_t i = 0; i < choices_.size(); ++i) choices.push_back(WholeChoice(i, choices_[i]));
  whole["choices"] = std::move(choices);
  whole["usage"] = UsageJson();
  return Dump(whole) + "\n";
}

Json Reply::UsageJson() const {
  PromptUsage prompts;
  for (const PromptUsage& prompt : prompts_) {
    prompts.tokens += prompt.tokens;
    prompts.cached += prompt.cached;
  }
  return {{"prompt_tokens", prompts.tokens},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", prompts.tokens + completion_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", prompts.cached}}},
          {"completion_tokens_details",
           {{"accepted_prediction_tokens", accepted_tokens_},
            {"rejected_prediction_tokens",
             drafted_tokens_ - std::min(accepted_tokens_, drafted_tokens_)}}}};
}

// ---- Log-probabilities.

Json Reply::NoLogprobs() const {
  if (!format_.logprobs) return nullptr;
  if (format_.endpoint == Endpoint::kChat) return {{"content", Json::array()}};
  const Json top = format_.top_logprobs > 0 ? Json::array() : Json(nullptr);
  return {{"tokens", Json::array()},
          {"token_logprobs", Json::array()},
          {"top_logprobs", top},
          {"text_offset", Json::array()}};
}

void Reply::AddLogprobs(const v1::GenerateResponse& message, Choice& choice, Json& to) const {
  if (!format_.logprobs) return;
  AddEchoLogprobs(message, choice, to);
  for (const v1::TokenLogprob& logprob : message.logprobs()) {
    if (format_.endpoint == Endpoint::kChat) {
      to["content"].push_back(TokenLogprobJson(logprob, format_.top_logprobs, tokenizer_));
    } else {
      AddCompletionLogprob(logprob.text(), &logprob, choice, to);
    }
  }
}

// The first token of a context has no value.
void Reply::AddEchoLogprobs(const v1::GenerateResponse& message, Choice& choice, Json& to) const {
  const Echo* const echo = std::exchange(choice.echoed_logprobs, true) ? nullptr : EchoOf(message);
  if (echo == nullptr) return;
  const size_t count = echo->tokens.size();
  const size_t unscored = count - std::min<size_t>(count, message.prompt_logprobs_size());
  bool starts_text = true;
  for (size_t i = 0; i < count; ++i) {
    const std::string text =
        starts_text ? FirstText(echo->tokens[i]) : LossyText(tokenizer_, echo->tokens[i]);
    starts_text = starts_text && text.empty();
    const auto scored = static_cast<int>(i - unscored);
    AddCompletionLogprob(text, i < unscored ? nullptr : &message.prompt_logprobs(scored), choice,
                         to);
  }
}

// Of a token at the beginning of a text.
std::string Reply::FirstText(uint32_t token) const {
  if (tokenizer_ == nullptr || token >= tokenizer_->vocab_size()) return "";
  return ToUtf8(tokenizer_->FirstTokenBytes(token));
}

// `logprob`: null where there is none.
void Reply::AddCompletionLogprob(const std::string& text, const v1::TokenLogprob* logprob,
                                 Choice& choice, Json& to) const {
  to["tokens"].push_back(text);
  to["token_logprobs"].push_back(logprob == nullptr ? Json(nullptr)
                                                    : Json(LogprobNumber(*logprob)));
  to["text_offset"].push_back(choice.text_offset);
  choice.text_offset += Characters(text);
  if (format_.top_logprobs == 0) return;
  if (logprob == nullptr) return to["top_logprobs"].push_back(nullptr);
  Json top = Json::object();
  for (int i = 0; i < logprob->top_size() && i < static_cast<int>(format_.top_logprobs); ++i) {
    top[logprob->top(i).text()] = LogprobNumber(logprob->top(i));
  }
  to["top_logprobs"].push_back(std::move(top));
}

}  // namespace rivulet::openai
