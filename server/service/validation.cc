// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/validation.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/ops/sampling/sampling.h"
#include "server/service/conversation.h"
#include "server/service/structured_output.h"
#include "server/text/stop_matcher.h"

namespace rivulet {
namespace {

// No token is longer, in bytes.
constexpr uint64_t kLongestPiece = 256;

absl::Status CheckAtMost(const char* field, uint64_t value, uint64_t limit) {
  if (value <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " = ", value, ": at most ", limit));
}

absl::Status CheckPromptTokens(size_t tokens, uint32_t max_prompt) {
  if (tokens <= max_prompt) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the prompt has ", tokens, " tokens; at most ", max_prompt,
                   " are allowed: shorten it, or start the server with a larger --max-prompt"));
}

// Before tokenizing: no token is longer than kLongestPiece bytes, so a longer text is over the
// limit regardless of its tokens.
absl::Status CheckPromptBytes(size_t bytes, uint32_t max_prompt) {
  RIVULET_RETURN_IF_ERROR(CheckTextBytes("prompt", bytes));
  if (bytes <= max_prompt * kLongestPiece) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the prompt has ", bytes,
                                                 " bytes, which is more than the ", max_prompt,
                                                 " tokens that --max-prompt allows"));
}

// Whether the prompt goes on after tokens that its session holds already.
bool ContinuesContext(const SessionLease& session) {
  return session.held() && session.tokens() > 0;
}

// A text at the beginning of a context gets a BOS token if the model has one, as in training; token
// ids are used unchanged.
absl::StatusOr<std::vector<uint32_t>> TokenizePrompt(const std::string& text,
                                                     const ServedModel& model, uint32_t max_prompt,
                                                     bool begins_context, bool special_tokens) {
  RIVULET_RETURN_IF_ERROR(CheckPromptBytes(text.size(), max_prompt));
  if (text.empty() && !begins_context) return std::vector<uint32_t>();
  RIVULET_ASSIGN_OR_RETURN(const Tokenizer* const tokenizer, RequireTokenizer(model));
  RIVULET_ASSIGN_OR_RETURN(std::vector<uint32_t> ids, special_tokens
                                                          ? tokenizer->EncodeRendered(text)
                                                          : tokenizer->Encode(text));
  if (begins_context) {
    ids.insert(ids.begin(), model.begin_ids.begin(), model.begin_ids.end());
  }
  return ids;
}

// Of GenerateRequest or ScoreRequest; empty if the request has no input.
template <typename Proto>
absl::Status ReadText(const Proto& proto, const ServedModel& model, uint32_t max_prompt,
                      Request& request) {
  if (proto.has_prompt()) {
    const bool begins_context = !ContinuesContext(request.session);
    RIVULET_ASSIGN_OR_RETURN(
        request.prompt,
        TokenizePrompt(proto.prompt(), model, max_prompt, begins_context, proto.special_tokens()));
    return absl::OkStatus();
  }
  const auto& ids = proto.token_ids().ids();
  RIVULET_RETURN_IF_ERROR(CheckTokenIds(ids, model, "token_ids"));
  request.prompt.assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status ReadInput(const v1::ScoreRequest& proto, const ServedModel& model, uint32_t max_prompt,
                       Request& request) {
  return ReadText(proto, model, max_prompt, request);
}

absl::Status ReadInput(const v1::GenerateRequest& proto, const ServedModel& model,
                       uint32_t max_prompt, Request& request) {
  if (!proto.has_messages()) return ReadText(proto, model, max_prompt, request);
  if (model.chat_template != nullptr) RIVULET_RETURN_IF_ERROR(RequireTokenizer(model).status());
  const uint64_t most_bytes = std::min<uint64_t>(kMaxTextBytes, max_prompt * kLongestPiece);
  return ReadConversation(proto.messages(), model, most_bytes, request);
}

// An empty prompt is allowed if the request only continues what its session holds.
absl::Status CheckNotEmpty(const Request& request) {
  if (!request.prompt.empty()) return absl::OkStatus();
  if (request.kind == RequestKind::kScore || !ContinuesContext(request.session)) {
    return absl::InvalidArgumentError(
        "the prompt is empty: set prompt or token_ids, at least one token; only Generate on a "
        "session that holds tokens may leave it out");
  }
  if (request.max_tokens > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the prompt is empty and max_tokens = 0: there is nothing to do; set one of them");
}

// The prompt's log-probabilities are one message; if it would be too large to send, the request is
// refused before they are computed.
absl::Status CheckScoresFit(const char* field, uint64_t tokens, uint32_t top) {
  constexpr uint64_t kBytesEach = 32;  // tag, lengths, id, float and a piece of common length
  const uint64_t bytes = tokens * (1 + top) * kBytesEach;
  if (bytes <= kMaxMessageBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": log-probabilities of ", tokens, " tokens with the ", top,
                   " best make a response of about ", bytes >> 20, " MiB; at most ",
                   kMaxMessageBytes >> 20, " are allowed: ask for fewer"));
}

std::string BeyondContext(const ServedModel& model, uint64_t tokens) {
  const std::string name = model.info.name();
  const std::string reach = absl::StrCat(model.info.max_context());
  const std::string context = absl::StrCat("the context would have ", tokens, " tokens; ");
  if (model.has_levels) {
    return absl::StrCat(
        context, "the levels of ", name, " reach ", reach,
        ": shorten it, begin another session, or start the server with --level-overflow clamp");
  }
  return absl::StrCat(context, "the positions of ", name, " reach ", reach,
                      ": shorten it, or begin another session");
}

// A prompt beyond the model's levels or positions is refused, and generation ends with LENGTH at
// their end. The last sampled token is not read by the model, so it may be one beyond.
absl::Status LimitContext(const ServedModel& model, Request& request) {
  if (model.info.max_context() == 0) return absl::OkStatus();
  const uint64_t tokens = ContextTokens(request) + request.prompt.size();
  if (tokens > model.info.max_context()) {
    return absl::InvalidArgumentError(BeyondContext(model, tokens));
  }
  request.max_tokens = static_cast<uint32_t>(
      std::min<uint64_t>(request.max_tokens, model.info.max_context() + 1 - tokens));
  return absl::OkStatus();
}

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

absl::StatusOr<SamplingParams> ReadSampling(const v1::SamplingParams& proto,
                                            const ServedModel& model) {
  const GenerationDefaults& defaults = model.defaults;
  SamplingParams params;
  params.temperature = proto.has_temperature() ? proto.temperature()
                                               : defaults.temperature.value_or(params.temperature);
  params.top_k = proto.has_top_k() ? proto.top_k() : defaults.top_k.value_or(params.top_k);
  params.top_p = proto.has_top_p() ? proto.top_p() : defaults.top_p.value_or(params.top_p);
  params.min_p = proto.has_min_p() ? proto.min_p() : defaults.min_p.value_or(params.min_p);
  params.repetition_penalty = proto.has_repetition_penalty()
                                  ? proto.repetition_penalty()
                                  : defaults.repetition_penalty.value_or(params.repetition_penalty);
  params.frequency_penalty = proto.frequency_penalty();
  params.presence_penalty = proto.presence_penalty();
  params.seed = proto.has_seed() ? proto.seed() : DrawSeed();
  for (const auto& [token, bias] : proto.logit_bias()) params.logit_bias.push_back({token, bias});
  RIVULET_RETURN_IF_ERROR(CheckSamplingParams(params, model.info.vocab_size()));
  return params;
}

absl::StatusOr<StopRules> ReadStop(const v1::StopParams& proto, const ServedModel& model) {
  StopRules stop;
  stop.strings.assign(proto.strings().begin(), proto.strings().end());
  RIVULET_RETURN_IF_ERROR(StopMatcher::Validate(stop.strings));
  if (!stop.strings.empty() && model.tokenizer == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stop.strings: ", model.info.name(), " has no tokenizer, so no text; use stop.token_ids"));
  }
  RIVULET_RETURN_IF_ERROR(
      CheckAtMost("number of stop.token_ids", proto.token_ids_size(), kMaxStopIds));
  RIVULET_RETURN_IF_ERROR(CheckTokenIds(proto.token_ids(), model, "stop.token_ids"));
  stop.token_ids.assign(proto.token_ids().begin(), proto.token_ids().end());
  stop.ignore_eos = proto.ignore_eos();
  stop.include_stop = proto.include_stop();
  stop.min_tokens = proto.min_tokens();
  return stop;
}

absl::Status ReadCounts(const v1::GenerateRequest& proto, const ServedModel& model,
                        Request& request) {
  request.completions = proto.has_n() ? proto.n() : 1;
  if (request.completions == 0) return absl::InvalidArgumentError("n = 0: at least 1");
  RIVULET_RETURN_IF_ERROR(CheckAtMost("n", request.completions, kMaxCompletions));
  RIVULET_RETURN_IF_ERROR(CheckAtMost("logprobs", proto.logprobs(), kMaxTopLogprobs));
  RIVULET_RETURN_IF_ERROR(CheckAtMost("prompt_logprobs", proto.prompt_logprobs(), kMaxTopLogprobs));
  request.logprobs = proto.logprobs();
  request.score_prompt = proto.prompt_logprobs() > 0;
  request.score_top = proto.prompt_logprobs();
  request.max_tokens = proto.has_max_tokens()
                           ? proto.max_tokens()
                           : model.defaults.max_tokens.value_or(kDefaultMaxTokens);
  return absl::OkStatus();
}

absl::Status TakeLease(const SessionKey& key, SessionTable& sessions, Request& request) {
  if (key.id.empty()) return absl::OkStatus();
  RIVULET_RETURN_IF_ERROR(
      CheckAtMost("bytes of session_id", key.id.size(), SessionTable::kMaxIdBytes));
  const bool turn = request.kind == RequestKind::kGenerate;
  RIVULET_ASSIGN_OR_RETURN(request.session,
                           turn ? sessions.LeaseForTurn(key) : sessions.LeaseForReading(key));
  return absl::OkStatus();
}

// The session and the prompt, once all else is read. `scores`: the field that asked for the
// prompt's log-probabilities.
template <typename Proto>
absl::Status ReadContext(const Proto& proto, const ServedModel& model, uint32_t max_prompt,
                         SessionTable& sessions, const std::string& tenant, const char* scores,
                         Request& request) {
  RIVULET_RETURN_IF_ERROR(TakeLease({tenant, proto.session_id()}, sessions, request));
  RIVULET_RETURN_IF_ERROR(ReadInput(proto, model, max_prompt, request));
  RIVULET_RETURN_IF_ERROR(CheckNotEmpty(request));
  RIVULET_RETURN_IF_ERROR(CheckPromptTokens(request.prompt.size(), max_prompt));
  RIVULET_RETURN_IF_ERROR(LimitContext(model, request));
  if (!request.score_prompt) return absl::OkStatus();
  return CheckScoresFit(scores, request.prompt.size(), request.score_top);
}

absl::Status CheckMinTokens(const Request& request) {
  if (request.stop.min_tokens <= request.max_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("stop.min_tokens = ", request.stop.min_tokens,
                                                 " is over max_tokens = ", request.max_tokens));
}

}  // namespace

absl::Status CheckTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids,
                           const ServedModel& model, const char* field) {
  for (const uint32_t id : ids) {
    if (id < model.info.vocab_size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ": token id ", id, " is out of range; ",
                                                   model.info.name(), " has ",
                                                   model.info.vocab_size(), " tokens, from 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> TokenizeFirstPrompt(const std::string& text,
                                                          const ServedModel& model,
                                                          uint32_t max_prompt,
                                                          bool special_tokens) {
  return TokenizePrompt(text, model, max_prompt, /*begins_context=*/true, special_tokens);
}

absl::Status CheckTextBytes(const char* field, size_t bytes) {
  if (bytes <= kMaxTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", bytes, " bytes, at most ", kMaxTextBytes,
                   " are tokenized at once: send token_ids, or less"));
}

absl::StatusOr<const Tokenizer*> RequireTokenizer(const ServedModel& model) {
  if (model.tokenizer != nullptr) return model.tokenizer;
  return absl::FailedPreconditionError(
      absl::StrCat(model.info.name(), " has no tokenizer: send token_ids instead of text"));
}

absl::StatusOr<std::unique_ptr<Request>> MakeGenerateRequest(const v1::GenerateRequest& proto,
                                                             const ServedModel& model,
                                                             uint32_t max_prompt,
                                                             SessionTable& sessions,
                                                             const std::string& tenant) {
  RIVULET_RETURN_IF_ERROR(
      CheckAtMost("bytes of request_id", proto.request_id().size(), kMaxRequestIdBytes));
  RIVULET_RETURN_IF_ERROR(
      CheckAtMost("bytes of cache_salt", proto.cache_salt().size(), kMaxCacheSaltBytes));
  if (proto.keep_choices() && proto.session_id().empty()) {
    return absl::InvalidArgumentError(
        "keep_choices: only completions on a session become sessions; set session_id");
  }
  auto request = std::make_unique<Request>();
  request->kind = RequestKind::kGenerate;
  request->cache_salt = proto.cache_salt();
  RIVULET_RETURN_IF_ERROR(ReadCounts(proto, model, *request));
  request->keep_choices = proto.keep_choices() && request->completions > 1;
  RIVULET_ASSIGN_OR_RETURN(request->sampling, ReadSampling(proto.sampling(), model));
  RIVULET_ASSIGN_OR_RETURN(request->stop, ReadStop(proto.stop(), model));
  RIVULET_RETURN_IF_ERROR(CheckMinTokens(*request));
  RIVULET_RETURN_IF_ERROR(
      ReadContext(proto, model, max_prompt, sessions, tenant, "prompt_logprobs", *request));
  RIVULET_ASSIGN_OR_RETURN(request->grammar,
                           ReadStructuredOutput(proto, model, StartsThinking(*request)));
  return request;
}

absl::StatusOr<std::unique_ptr<Request>> MakeScoreRequest(const v1::ScoreRequest& proto,
                                                          const ServedModel& model,
                                                          uint32_t max_prompt,
                                                          SessionTable& sessions,
                                                          const std::string& tenant) {
  RIVULET_RETURN_IF_ERROR(CheckAtMost("top_logprobs", proto.top_logprobs(), kMaxTopLogprobs));
  auto request = std::make_unique<Request>();
  request->kind = RequestKind::kScore;
  request->score_prompt = true;
  request->score_top = proto.top_logprobs();
  RIVULET_RETURN_IF_ERROR(
      ReadContext(proto, model, max_prompt, sessions, tenant, "top_logprobs", *request));
  return request;
}

}  // namespace rivulet
