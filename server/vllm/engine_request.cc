// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/engine_request.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace rivulet::vllm_engine {
namespace {

absl::Status NotServed(const char* field, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is not served: ", why, "; leave it out"));
}

absl::Status CheckServed(const wire::GenerateRequest& request) {
  if (request.has_mm_inputs() || request.extra_mm_inputs_size() > 0 || request.has_media_refs()) {
    return NotServed(request.has_media_refs()  ? "media_refs"
                     : request.has_mm_inputs() ? "mm_inputs"
                                               : "extra_mm_inputs",
                     "the model reads text alone");
  }
  if (request.has_kv_transfer_params() || !request.kv_transfer_params_json().empty()) {
    return NotServed(
        request.has_kv_transfer_params() ? "kv_transfer_params" : "kv_transfer_params_json",
        "prompts and tokens are computed by one server");
  }
  if (request.data_parallel_rank() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_parallel_rank = ", request.data_parallel_rank(), ": there is one, rank 0"));
  }
  if (request.sampling_params().has_truncate_prompt_tokens()) {
    return NotServed("sampling_params.truncate_prompt_tokens", "prompts are used whole");
  }
  return absl::OkStatus();
}

absl::Status ReadInput(const wire::GenerateRequest& request, EngineRequest& read) {
  switch (request.input_case()) {
    case wire::GenerateRequest::kTokenized: {
      const auto& ids = request.tokenized().input_ids();
      *read.proto.mutable_token_ids()->mutable_ids() = ids;
      read.format.prompt_tokens = static_cast<uint32_t>(ids.size());
      if (!ids.empty()) read.format.first_token = ids[0];
      return absl::OkStatus();
    }
    case wire::GenerateRequest::kText:
      read.proto.set_prompt(request.text());
      read.proto.set_special_tokens(true);
      if (!read.format.prompt_logprobs.has_value()) return absl::OkStatus();
      return absl::InvalidArgumentError(
          "sampling_params.prompt_logprobs: they name the prompt's tokens, so that it must be sent "
          "as such, in tokenized");
    default:
      return absl::InvalidArgumentError("the request has no input: set tokenized or text");
  }
}

// Zero is vLLM's way to leave out a number that means nothing as zero.
float OneIfZero(float value) { return value == 0 ? 1 : value; }

absl::Status ReadSampling(const wire::SamplingParams& params, v1::SamplingParams& sampling) {
  sampling.set_temperature(params.has_temperature() ? params.temperature() : 1);
  sampling.set_top_p(OneIfZero(params.top_p()));
  sampling.set_top_k(params.top_k());
  sampling.set_min_p(params.min_p());
  sampling.set_repetition_penalty(OneIfZero(params.repetition_penalty()));
  sampling.set_frequency_penalty(params.frequency_penalty());
  sampling.set_presence_penalty(params.presence_penalty());
  if (params.seed() < -1) {
    return absl::InvalidArgumentError(absl::StrCat("sampling_params.seed = ", params.seed(),
                                                   ": at least 0; -1 or none draws one"));
  }
  if (params.has_seed() && params.seed() >= 0) {
    sampling.set_seed(static_cast<uint64_t>(params.seed()));
  }
  for (const auto& [token, bias] : params.logit_bias()) {
    if (token < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("sampling_params.logit_bias: ", token, " is not a token id"));
    }
    (*sampling.mutable_logit_bias())[static_cast<uint32_t>(token)] = bias;
  }
  return absl::OkStatus();
}

// vLLM's count leaves the chosen token out, so 0 lists that alone; ours of 0 is none.
absl::Status ReadLogprobs(const char* field, int32_t count, std::optional<uint32_t>& format,
                          uint32_t& ours) {
  if (count < 0) {
    return absl::InvalidArgumentError(absl::StrCat(field, " = ", count, ": from 0 to 20"));
  }
  format = static_cast<uint32_t>(count);
  ours = std::max<uint32_t>(*format, 1);
  return absl::OkStatus();
}

absl::Status ReadCounts(const wire::SamplingParams& params, EngineRequest& read) {
  v1::GenerateRequest& proto = read.proto;
  uint32_t logprobs = 0, prompt_logprobs = 0;
  if (params.has_logprobs()) {
    RIVULET_RETURN_IF_ERROR(ReadLogprobs("sampling_params.logprobs", params.logprobs(),
                                         read.format.logprobs, logprobs));
  }
  if (params.has_prompt_logprobs()) {
    RIVULET_RETURN_IF_ERROR(ReadLogprobs("sampling_params.prompt_logprobs",
                                         params.prompt_logprobs(), read.format.prompt_logprobs,
                                         prompt_logprobs));
  }
  proto.set_logprobs(logprobs);
  proto.set_prompt_logprobs(prompt_logprobs);
  if (params.has_max_tokens()) proto.set_max_tokens(params.max_tokens());
  if (params.n() > 0) proto.set_n(params.n());
  return absl::OkStatus();
}

void ReadStop(const wire::SamplingParams& params, EngineRequest& read) {
  v1::StopParams& stop = *read.proto.mutable_stop();
  *stop.mutable_strings() = params.stop();
  *stop.mutable_token_ids() = params.stop_token_ids();
  stop.set_ignore_eos(params.ignore_eos());
  stop.set_include_stop(params.include_stop_str_in_output());
  stop.set_min_tokens(params.min_tokens());
  read.format.stop_token_ids.assign(params.stop_token_ids().begin(), params.stop_token_ids().end());
}

// It holds from the first token on: what precedes a prompt of token ids is not looked at. That is
// what grammar_from_first_token asks for, and what an engine may do without it.
absl::Status ReadConstraint(const wire::SamplingParams& params, v1::GenerateRequest& proto) {
  using Params = wire::SamplingParams;
  switch (params.constraint_case()) {
    case Params::CONSTRAINT_NOT_SET:
      return absl::OkStatus();
    case Params::kJsonSchema:
      proto.mutable_structured_output()->set_json_schema(params.json_schema());
      return absl::OkStatus();
    case Params::kRegex:
      proto.mutable_structured_output()->set_regex(params.regex());
      return absl::OkStatus();
    case Params::kGrammar:
      proto.mutable_structured_output()->set_grammar(params.grammar());
      return absl::OkStatus();
    case Params::kJsonObject:
      proto.mutable_structured_output()->set_json_object(params.json_object());
      return absl::OkStatus();
    case Params::kChoice:
      *proto.mutable_structured_output()->mutable_choices()->mutable_strings() =
          params.choice().choices();
      return absl::OkStatus();
    case Params::kStructuralTag:
      return absl::UnimplementedError(
          "sampling_params.structural_tag is not served: send json_schema, regex, grammar, "
          "json_object or choice");
  }
  return absl::InvalidArgumentError("sampling_params.constraint is unknown");
}

}  // namespace

absl::StatusOr<EngineRequest> ReadRequest(const wire::GenerateRequest& request) {
  EngineRequest read;
  const wire::SamplingParams& params = request.sampling_params();
  RIVULET_RETURN_IF_ERROR(CheckServed(request));
  read.proto.set_request_id(request.request_id());
  read.format.stream = request.stream();
  RIVULET_RETURN_IF_ERROR(ReadSampling(params, *read.proto.mutable_sampling()));
  RIVULET_RETURN_IF_ERROR(ReadCounts(params, read));
  ReadStop(params, read);
  RIVULET_RETURN_IF_ERROR(ReadConstraint(params, read.proto));
  RIVULET_RETURN_IF_ERROR(ReadInput(request, read));
  return read;
}

}  // namespace rivulet::vllm_engine
