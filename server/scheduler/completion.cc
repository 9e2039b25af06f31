// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/completion.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace rivulet {
namespace {

bool Contains(const std::vector<uint32_t>& ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Completion::Completion(const Request& request, const std::vector<uint32_t>& stop_ids,
                       const Tokenizer* tokenizer, bool starts_text, uint32_t index)
    : request_(request),
      stop_ids_(stop_ids),
      index_(index),
      matcher_(request.stop.strings, request.stop.include_stop) {
  if (tokenizer != nullptr) {
    detokenizer_.emplace(*tokenizer, starts_text);
  }
  if (request.grammar != nullptr) grammar_.emplace(request.grammar, starts_text);
}

SampleSpec Completion::Spec(Session& session, uint32_t promised) const {
  SampleSpec spec;
  spec.params = &request_.sampling;
  if (spec.params->NeedsSessionCounts()) spec.session_counts = &session.token_counts();
  if (spec.params->NeedsTurnCounts()) spec.turn_counts = &turn_counts_;
  spec.index = index_;
  spec.position = session.tokens().size() + promised;
  const uint32_t min_tokens = request_.stop.min_tokens;
  spec.forbid_stops = min_tokens - std::min(min_tokens, generated_ + promised);
  spec.stop_ids = &stop_ids_;
  spec.logprobs = request_.logprobs;
  if (grammar_.has_value()) spec.grammar = &*grammar_;
  return spec;
}

bool Completion::EndsAt(uint32_t token) const {
  return generated_ > request_.stop.min_tokens && Contains(stop_ids_, token);
}

// Whether the grammar takes nothing behind this token, which the engine drew from what it takes.
bool Completion::IsComplete(uint32_t token) {
  if (!grammar_.has_value()) return false;
  const absl::Status taken = grammar_->Accept(token);
  RIVULET_CHECK(taken.ok(), "a token was drawn that the grammar does not take");
  return grammar_->is_complete();
}

std::string Completion::TextOf(uint32_t token) {
  if (!detokenizer_.has_value()) return "";
  if (EndsAt(token) && !request_.stop.include_stop) return "";
  const uint32_t tokens[] = {token};
  const bool may_stop = generated_ >= request_.stop.min_tokens;
  return matcher_.Append(detokenizer_->Append(tokens), may_stop);
}

StreamMessage Completion::Accept(uint32_t token, Logprobs logprob, bool guessed) {
  session_->Append(token);
  if (request_.sampling.NeedsTurnCounts()) turn_counts_.Add(token);
  ++generated_;
  guessed_ += guessed ? 1 : 0;
  StreamMessage message;
  message.index = index_;
  message.tokens = {token};
  if (guessed) message.guessed = {0};
  if (request_.logprobs > 0) message.logprobs.push_back(std::move(logprob));
  message.text = TextOf(token);
  if (matcher_.matched()) {
    End(FinishReason::kStop, message);
  } else if (EndsAt(token)) {
    End(Contains(request_.stop.token_ids, token) ? FinishReason::kStop : FinishReason::kEos,
        message);
  } else if (IsComplete(token)) {
    End(FinishReason::kStop, message);
  } else if (generated_ == request_.max_tokens) {
    End(FinishReason::kLength, message);
  }
  return message;
}

StreamMessage Completion::Finish(FinishReason reason) {
  StreamMessage message;
  message.index = index_;
  End(reason, message);
  return message;
}

void Completion::End(FinishReason reason, StreamMessage& message) {
  if (detokenizer_.has_value() && !matcher_.matched()) {
    message.text += matcher_.Append(detokenizer_->Finish(), /*may_stop=*/false);
    message.text += matcher_.Finish();
  }
  if (matcher_.matched()) message.matched_stop = matcher_.matched_string();
  finish_reason_ = reason;
  message.finish_reason = reason;
  message.usage.prompt_tokens = static_cast<uint32_t>(request_.prompt.size());
  message.usage.completion_tokens = generated_;
  message.usage.drafted_tokens = drafted_;
  message.usage.accepted_tokens = guessed_;
}

}  // namespace rivulet
