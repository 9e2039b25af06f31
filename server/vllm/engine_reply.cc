// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/engine_reply.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/service/message_conversion.h"
#include "server/service/validation.h"

namespace rivulet::vllm_engine {
namespace {

constexpr size_t kTokenBytes = 5;    // at most, of a varint
constexpr size_t kLogprobBytes = 9;  // with its token

void AddTop(const v1::TokenLogprob& from, uint32_t count, wire::TopLogProbs& to) {
  const int top = std::min(from.top_size(), static_cast<int>(count));
  for (int i = 0; i < top; ++i) {
    to.add_values(from.top(i).logprob());
    to.add_token_ids(from.top(i).token_id());
  }
}

void AddLogprobs(const v1::GenerateResponse& message, uint32_t top, wire::OutputLogProbs& to) {
  for (const v1::TokenLogprob& token : message.logprobs()) {
    to.add_token_logprobs(token.logprob());
    to.add_token_ids(token.token_id());
    if (top > 0) AddTop(token, top, *to.add_top_logprobs());
  }
}

}  // namespace

absl::StatusOr<std::vector<wire::GenerateResponse>> EngineReply::Add(
    const v1::GenerateResponse& message) {
  std::vector<wire::GenerateResponse> out;
  if (!message.token_ids().empty()) last_tokens_[message.index()] = *message.token_ids().rbegin();
  if (format_.stream) {
    const bool news = message.token_ids_size() > 0 || message.prompt_logprobs_size() > 0;
    if (news) out.push_back(Chunk(message));
  } else {
    RIVULET_RETURN_IF_ERROR(Keep(message));
  }
  if (message.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return out;
  out.push_back(Complete(message));
  return out;
}

// The first token of a context has no log-probability, and no place in ours.
void EngineReply::AddPrompt(const v1::GenerateResponse& message,
                            wire::InputLogProbs& logprobs) const {
  const uint32_t top = format_.prompt_logprobs.value_or(0);
  if (static_cast<uint32_t>(message.prompt_logprobs_size()) < format_.prompt_tokens) {
    logprobs.add_token_logprobs();
    logprobs.add_token_ids(format_.first_token);
    if (top > 0) logprobs.add_top_logprobs();
  }
  for (const v1::TokenLogprob& token : message.prompt_logprobs()) {
    logprobs.add_token_logprobs()->set_value(token.logprob());
    logprobs.add_token_ids(token.token_id());
    if (top > 0) AddTop(token, top, *logprobs.add_top_logprobs());
  }
}

wire::GenerateResponse EngineReply::Chunk(const v1::GenerateResponse& message) const {
  wire::GenerateResponse response;
  wire::GenerateStreamChunk& chunk = *response.mutable_chunk();
  *chunk.mutable_token_ids() = message.token_ids();
  chunk.set_prompt_tokens(format_.prompt_tokens);
  chunk.set_completion_tokens(static_cast<uint32_t>(message.token_ids_size()));
  chunk.set_cached_tokens(message.usage().cached_tokens());
  chunk.set_index(message.index());
  if (format_.logprobs.has_value() && message.logprobs_size() > 0) {
    AddLogprobs(message, *format_.logprobs, *chunk.mutable_output_logprobs());
  }
  if (message.prompt_logprobs_size() > 0) AddPrompt(message, *chunk.mutable_input_logprobs());
  return response;
}

absl::Status EngineReply::Keep(const v1::GenerateResponse& message) {
  const size_t logprobs = static_cast<size_t>(message.logprobs_size());
  const size_t tokens = static_cast<size_t>(message.token_ids_size());
  kept_logprobs_ += logprobs;
  kept_bytes_ += kTokenBytes * tokens;
  kept_bytes_ += kLogprobBytes * logprobs * (1 + format_.logprobs.value_or(0));
  if (kept_bytes_ > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the reply would have more than ", kMaxMessageBytes,
                     " bytes in one message: set stream, or ask for less"));
  }
  if (message.prompt_logprobs_size() > 0) AddPrompt(message, prompt_);
  wire::GenerateComplete& complete = kept_[message.index()];
  complete.mutable_output_ids()->MergeFrom(message.token_ids());
  if (!format_.logprobs.has_value() || logprobs == 0) return absl::OkStatus();
  AddLogprobs(message, *format_.logprobs, *complete.mutable_output_logprobs());
  return absl::OkStatus();
}

// vLLM names a stop string or a stop token of the request, and nothing for EOS.
void EngineReply::SetMatchedStop(const v1::GenerateResponse& last,
                                 wire::GenerateComplete& complete) const {
  if (last.finish_reason() != v1::FINISH_REASON_STOP) return;
  if (!last.matched_stop().empty()) return complete.set_matched_stop_str(last.matched_stop());
  const auto token = last_tokens_.find(last.index());
  if (token == last_tokens_.end()) return;
  const std::vector<uint32_t>& ids = format_.stop_token_ids;
  if (std::find(ids.begin(), ids.end(), token->second) == ids.end()) return;
  complete.set_matched_token_id(token->second);
}

wire::GenerateResponse EngineReply::Complete(const v1::GenerateResponse& last) {
  wire::GenerateResponse response;
  wire::GenerateComplete& complete = *response.mutable_complete();
  if (const auto kept = kept_.find(last.index()); kept != kept_.end()) {
    kept_logprobs_ -= static_cast<size_t>(kept->second.output_logprobs().token_ids_size());
    complete = std::move(kept->second);
    kept_.erase(kept);
  }
  complete.set_finish_reason(FinishReasonName(last.finish_reason()));
  complete.set_prompt_tokens(last.usage().prompt_tokens());
  complete.set_completion_tokens(last.usage().completion_tokens());
  complete.set_cached_tokens(last.usage().cached_tokens());
  complete.set_index(last.index());
  if (prompt_.token_ids_size() > 0) *complete.mutable_input_logprobs() = prompt_;
  SetMatchedStop(last, complete);
  return response;
}

}  // namespace rivulet::vllm_engine
