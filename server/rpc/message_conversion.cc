// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/message_conversion.h"

#include <utility>

#include "kernels/recurrence/state.h"
#include "server/metrics/metrics.h"
#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
    case FinishReason::kDeadline:
      return v1::FINISH_REASON_DEADLINE;
    case FinishReason::kError:
      return v1::FINISH_REASON_ERROR;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

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

std::string LossyText(const Tokenizer* tokenizer, uint32_t token) {
  std::string text;
  if (tokenizer == nullptr || token >= tokenizer->vocab_size()) return text;
  Utf8Stream stream;
  stream.Append(tokenizer->TokenBytes(token), text);
  stream.Finish(text);
  return text;
}

v1::GenerateResponse ToProto(StreamMessage message, const Tokenizer* tokenizer) {
  v1::GenerateResponse response;
  response.set_text(std::move(message.text));
  response.mutable_token_ids()->Add(message.tokens.begin(), message.tokens.end());
  for (const Logprobs& logprobs : message.logprobs) {
    Fill(logprobs, tokenizer, *response.add_logprobs());
  }
  for (const Logprobs& logprobs : message.prompt_logprobs) {
    Fill(logprobs, tokenizer, *response.add_prompt_logprobs());
  }
  response.set_index(message.index);
  response.set_finish_reason(ToProto(message.finish_reason));
  if (message.finish_reason == FinishReason::kNone) return response;
  response.set_matched_stop(std::move(message.matched_stop));
  response.mutable_usage()->set_prompt_tokens(message.usage.prompt_tokens);
  response.mutable_usage()->set_cached_tokens(message.usage.cached_tokens);
  response.mutable_usage()->set_completion_tokens(message.usage.completion_tokens);
  return response;
}

v1::ScoreResponse ToScoreResponse(const StreamMessage& message, const Tokenizer* tokenizer) {
  v1::ScoreResponse response;
  for (const Logprobs& logprobs : message.prompt_logprobs) {
    Fill(logprobs, tokenizer, *response.add_tokens());
  }
  return response;
}

v1::Model ToProto(const ServedModel& model) {
  v1::Model proto;
  proto.set_name(model.name);
  proto.set_architecture(model.architecture);
  for (const std::string& mixer : model.layer_mixers) proto.add_layer_mixers(mixer);
  proto.set_parameters(model.parameters);
  proto.set_vocab_size(model.vocab);
  proto.set_weight_dtype(model.weight_dtype);
  proto.set_state_dtype(model.state_dtype);
  proto.set_state_bytes_per_session(model.state_bytes_per_session);
  proto.set_max_context(model.max_context);
  proto.set_state_bytes_per_token(model.state_bytes_per_token);
  proto.set_has_tokenizer(model.tokenizer != nullptr);
  proto.set_has_chat_template(model.has_chat_template);
  proto.set_fold_interval(model.fold_interval);
  return proto;
}

v1::Session ToProto(const SessionInfo& session) {
  v1::Session proto;
  proto.set_id(session.id);
  proto.set_name(session.name);
  proto.set_position(session.tokens);
  if (session.holds_state) {
    proto.set_state_bytes(session.state_bytes);
    proto.set_tier(kStateTier);
  }
  proto.set_created_unix_ms(session.created_unix_ms);
  proto.set_last_used_unix_ms(session.last_used_unix_ms);
  proto.set_busy(session.busy);
  return proto;
}

}  // namespace rivulet
