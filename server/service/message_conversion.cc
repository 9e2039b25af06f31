// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/message_conversion.h"

#include <utility>

#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

// The values of both are the same numbers.
static_assert(static_cast<int>(FinishReason::kError) == v1::FINISH_REASON_ERROR);
static_assert(static_cast<int>(PrefixMiss::kContinues) == v1::CACHE_MISS_SESSION);
static_assert(static_cast<int>(PrefixMiss::kNotKept) == v1::CACHE_MISS_NOT_KEPT);

void Fill(const TokenLogprob& from, const Tokenizer* tokenizer, v1::TokenLogprob& to) {
  to.set_token_id(from.token);
  to.set_logprob(from.logprob);
  to.set_text(LossyText(tokenizer, from.token));
}

void Fill(const Logprobs& from, const Tokenizer* tokenizer, v1::TokenLogprob& to) {
  Fill(from.chosen, tokenizer, to);
  for (const TokenLogprob& best : from.top) Fill(best, tokenizer, *to.add_top());
}

}  // namespace

const char* FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
    case v1::FINISH_REASON_DEADLINE:
      return "abort";
    case v1::FINISH_REASON_ERROR:
      return "error";
    default:
      return "stop";
  }
}

std::string LossyText(const Tokenizer* tokenizer, uint32_t token) {
  if (tokenizer == nullptr || token >= tokenizer->vocab_size()) return "";
  return ToUtf8(tokenizer->TokenBytes(token));
}

v1::GenerateResponse ToProto(StreamMessage message, const Tokenizer* tokenizer) {
  v1::GenerateResponse response;
  response.set_text(std::move(message.text));
  response.mutable_token_ids()->Add(message.tokens.begin(), message.tokens.end());
  response.mutable_guessed()->Add(message.guessed.begin(), message.guessed.end());
  for (const Logprobs& logprobs : message.logprobs) {
    Fill(logprobs, tokenizer, *response.add_logprobs());
  }
  for (const Logprobs& logprobs : message.prompt_logprobs) {
    Fill(logprobs, tokenizer, *response.add_prompt_logprobs());
  }
  response.set_index(message.index);
  response.set_finish_reason(static_cast<v1::FinishReason>(message.finish_reason));
  if (message.finish_reason == FinishReason::kNone) return response;
  response.set_matched_stop(std::move(message.matched_stop));
  response.set_fork_id(std::move(message.fork_id));
  response.mutable_usage()->set_prompt_tokens(message.usage.prompt_tokens);
  response.mutable_usage()->set_cached_tokens(message.usage.cached_tokens);
  response.mutable_usage()->set_completion_tokens(message.usage.completion_tokens);
  response.mutable_usage()->set_drafted_tokens(message.usage.drafted_tokens);
  response.mutable_usage()->set_accepted_tokens(message.usage.accepted_tokens);
  return response;
}

void AddCacheReport(const Usage& usage, v1::GenerateResponse& response) {
  v1::CacheReport& report = *response.mutable_cache();
  report.set_miss(static_cast<v1::CacheMiss>(usage.prefix_miss));
  report.set_known_tokens(usage.known_tokens);
  if (usage.prefix_miss == PrefixMiss::kNone) report.set_reused_tokens(usage.cached_tokens);
}

v1::ScoreResponse ToScoreResponse(const StreamMessage& message, const Tokenizer* tokenizer) {
  v1::ScoreResponse response;
  for (const Logprobs& logprobs : message.prompt_logprobs) {
    Fill(logprobs, tokenizer, *response.add_tokens());
  }
  return response;
}

}  // namespace rivulet
