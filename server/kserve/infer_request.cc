// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/infer_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/kserve/infer_tensors.h"
#include "server/kserve/sampling_parameters.h"
#include "server/service/validation.h"

namespace rivulet::kserve {
namespace {

using Parameter = wire::InferParameter;

// Sequences are sessions with names of their own, so that no number of a client's can meet a
// session of another protocol.
constexpr char kSessionPrefix[] = "sequence:";
constexpr std::chrono::microseconds kLongestTimeout = std::chrono::hours(24 * 365);

absl::Status Bad(const std::string& name, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("parameter '", name.substr(0, 100), "': ", why));
}

absl::StatusOr<bool> BoolOf(const std::string& name, const Parameter& value) {
  if (value.has_bool_param()) return value.bool_param();
  return Bad(name, "it must be a bool_param");
}

absl::StatusOr<uint64_t> NumberOf(const std::string& name, const Parameter& value) {
  if (value.has_uint64_param()) return value.uint64_param();
  if (value.has_int64_param() && value.int64_param() >= 0) {
    return static_cast<uint64_t>(value.int64_param());
  }
  return Bad(name, "it must be an int64_param or uint64_param of at least 0");
}

absl::Status ReadSequenceId(const std::string& name, const Parameter& value, Sequence& sequence) {
  if (value.has_string_param()) {
    if (!value.string_param().empty()) {
      sequence.session = absl::StrCat(kSessionPrefix, value.string_param());
    }
    return absl::OkStatus();
  }
  RIVULET_ASSIGN_OR_RETURN(const uint64_t number, NumberOf(name, value));
  if (number != 0) sequence.session = absl::StrCat(kSessionPrefix, number);
  return absl::OkStatus();
}

absl::Status ReadTimeout(const std::string& name, const Parameter& value, InferRequest& read) {
  RIVULET_ASSIGN_OR_RETURN(const uint64_t number, NumberOf(name, value));
  const auto most = static_cast<uint64_t>(kLongestTimeout.count());
  read.timeout = std::chrono::microseconds(std::min(number, most));
  return absl::OkStatus();
}

absl::Status ReadPriority(const std::string& name, const Parameter& value) {
  RIVULET_ASSIGN_OR_RETURN(const uint64_t number, NumberOf(name, value));
  if (number == 0) return absl::OkStatus();
  return Bad(name, "it is not served: requests run in the order in which they come; leave it out");
}

absl::Status ReadParameter(const std::string& name, const Parameter& value, InferRequest& read,
                           SamplingParameters& sampling) {
  if (name == "sequence_id") return ReadSequenceId(name, value, read.sequence);
  if (name == "timeout") return ReadTimeout(name, value, read);
  if (name == "priority") return ReadPriority(name, value);
  const bool empty_final = name == "triton_enable_empty_final_response";
  if (name == "sequence_start" || name == "sequence_end" || empty_final) {
    RIVULET_ASSIGN_OR_RETURN(const bool truth, BoolOf(name, value));
    // The last response has the flag and is never left out.
    if (!empty_final) (name == "sequence_start" ? read.sequence.start : read.sequence.end) = truth;
    return absl::OkStatus();
  }
  return sampling.Add(name, value);
}

absl::Status ReadPrompt(InputTensors& inputs, InferRequest& read) {
  if (inputs.Has("text_input") == inputs.Has("input_ids")) {
    return absl::InvalidArgumentError(
        "the prompt: send either the input 'text_input' (BYTES) or 'input_ids' (INT32)");
  }
  if (inputs.Has("text_input")) {
    RIVULET_ASSIGN_OR_RETURN(*read.proto.mutable_prompt(), inputs.Text("text_input"));
    return absl::OkStatus();
  }
  RIVULET_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, inputs.TokenIds("input_ids"));
  read.proto.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status RefuseFlag(InputTensors& inputs, const char* name) {
  RIVULET_ASSIGN_OR_RETURN(const bool asked, inputs.Bool(name, false));
  if (!asked) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input '", name, "' is not served; leave it out"));
}

// As Triton's backend for vLLM: the prompt comes before the text unless that is streamed or it is
// said otherwise.
absl::Status ReadFlags(InputTensors& inputs, InferRequest& read) {
  InferFormat& format = read.format;
  RIVULET_ASSIGN_OR_RETURN(format.stream, inputs.Bool("stream", false));
  RIVULET_ASSIGN_OR_RETURN(const bool exclude,
                           inputs.Bool("exclude_input_in_output", format.stream));
  if (!exclude && format.stream) {
    return absl::InvalidArgumentError(
        "input 'exclude_input_in_output': false is not served in a stream; leave it out");
  }
  if (!exclude) format.prompt = read.proto.prompt();
  RIVULET_ASSIGN_OR_RETURN(format.finish_reason, inputs.Bool("return_finish_reason", false));
  RIVULET_ASSIGN_OR_RETURN(format.input_tokens, inputs.Bool("return_num_input_tokens", false));
  RIVULET_ASSIGN_OR_RETURN(format.output_tokens, inputs.Bool("return_num_output_tokens", false));
  RIVULET_RETURN_IF_ERROR(RefuseFlag(inputs, "return_logprobs"));
  return RefuseFlag(inputs, "return_cumulative_logprob");
}

absl::Status ReadOutputs(const wire::ModelInferRequest& request, InferFormat& format) {
  for (const auto& output : request.outputs()) {
    for (const auto& [key, value] : output.parameters()) {
      return absl::InvalidArgumentError(absl::StrCat("output '", output.name().substr(0, 100),
                                                     "': the parameter '", key.substr(0, 100),
                                                     "' is not served; leave it out"));
    }
    if (output.name() == "text_output") continue;
    bool* const flag = output.name() == "output_ids"          ? &format.output_ids
                       : output.name() == "finish_reason"     ? &format.finish_reason
                       : output.name() == "num_input_tokens"  ? &format.input_tokens
                       : output.name() == "num_output_tokens" ? &format.output_tokens
                                                              : nullptr;
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("output '", output.name().substr(0, 100),
                                                     "' is not served; ModelMetadata lists those "
                                                     "that are"));
    }
    *flag = true;
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const InferRequest& read) {
  const Sequence& sequence = read.sequence;
  if (sequence.session.empty() && (sequence.start || sequence.end)) {
    return absl::InvalidArgumentError(
        "sequence_start and sequence_end need a sequence_id other than 0 and the empty text");
  }
  if (read.format.stream && read.format.completions > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "n = ", read.format.completions, ": a reply that is streamed has one completion"));
  }
  // Their tensors have one element for each completion, and ids would need one row for each.
  if (read.format.output_ids && read.format.completions > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("n = ", read.format.completions, ": output_ids are those of one completion"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModel(const std::string& name, const std::string& version,
                        const std::string& served) {
  if (name != served) {
    return absl::NotFoundError(absl::StrCat("the model '", name.substr(0, 100),
                                            "' is not served here; this is '", served, "'"));
  }
  if (version.empty() || version == kVersion) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("the model's version '", version.substr(0, 100),
                                          "' is not served; there is version ", kVersion));
}

absl::StatusOr<InferRequest> ReadInferRequest(const wire::ModelInferRequest& request,
                                              const std::string& served) {
  RIVULET_RETURN_IF_ERROR(CheckModel(request.model_name(), request.model_version(), served));
  InferRequest read;
  read.format.id = request.id();
  read.format.model = served;
  read.proto.set_request_id(request.id());
  RIVULET_ASSIGN_OR_RETURN(InputTensors inputs, InputTensors::Open(request));
  SamplingParameters sampling;
  if (inputs.Has("sampling_parameters")) {
    RIVULET_ASSIGN_OR_RETURN(const std::string json, inputs.Text("sampling_parameters"));
    RIVULET_RETURN_IF_ERROR(sampling.AddJson(json));
  }
  for (const auto& [name, value] : request.parameters()) {
    RIVULET_RETURN_IF_ERROR(ReadParameter(name, value, read, sampling));
  }
  RIVULET_RETURN_IF_ERROR(sampling.Apply(read.proto));
  RIVULET_RETURN_IF_ERROR(ReadPrompt(inputs, read));
  RIVULET_RETURN_IF_ERROR(ReadFlags(inputs, read));
  RIVULET_RETURN_IF_ERROR(inputs.Finish());
  RIVULET_RETURN_IF_ERROR(ReadOutputs(request, read.format));
  if (read.proto.has_n()) {
    read.format.completions = std::clamp<uint32_t>(read.proto.n(), 1, kMaxCompletions);
  }
  RIVULET_RETURN_IF_ERROR(CheckSequence(read));
  return read;
}

}  // namespace rivulet::kserve
