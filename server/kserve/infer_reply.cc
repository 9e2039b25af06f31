// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/infer_reply.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/kserve/infer_tensors.h"
#include "server/service/message_conversion.h"
#include "server/service/validation.h"

namespace rivulet::kserve {
namespace {

constexpr size_t kTokenBytes = 4;

// A reply that ends otherwise has a status that says why.
bool EndsWell(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_STOP || reason == v1::FINISH_REASON_EOS ||
         reason == v1::FINISH_REASON_LENGTH;
}

}  // namespace

absl::StatusOr<std::optional<wire::ModelInferResponse>> InferReply::Add(
    const v1::GenerateResponse& message) {
  Completion& completion = completions_[message.index()];
  completion.text += message.text();
  if (format_.output_ids) {
    completion.ids.insert(completion.ids.end(), message.token_ids().begin(),
                          message.token_ids().end());
  }
  completion.output_tokens += static_cast<uint32_t>(message.token_ids_size());
  kept_bytes_ += message.text().size();
  if (format_.output_ids)
    kept_bytes_ += kTokenBytes * static_cast<size_t>(message.token_ids_size());
  if (!format_.stream && kept_bytes_ > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the reply would have more than ", kMaxMessageBytes,
                     " bytes in one message: set the input 'stream', or ask for less"));
  }
  if (EndsWell(message.finish_reason())) {
    completion.finish_reason = FinishReasonName(message.finish_reason());
    input_tokens_ = message.usage().prompt_tokens();
    ++ended_;
  }
  const bool news = message.token_ids_size() > 0 || !message.text().empty();
  if (!complete() && !(format_.stream && news)) return std::nullopt;
  return Build();
}

wire::ModelInferResponse InferReply::Build() {
  wire::ModelInferResponse response;
  response.set_model_name(format_.model);
  response.set_model_version(kVersion);
  response.set_id(format_.id);
  (*response.mutable_parameters())["triton_final_response"].set_bool_param(complete());
  std::vector<std::string> texts, reasons;
  std::vector<uint32_t> counts;
  for (Completion& completion : completions_) {
    texts.push_back(format_.prompt + completion.text);
    reasons.push_back(completion.finish_reason);
    counts.push_back(completion.output_tokens);
  }
  AddTexts("text_output", texts, response);
  if (format_.output_ids) AddNumbers("output_ids", "INT32", completions_[0].ids, response);
  if (format_.finish_reason) AddTexts("finish_reason", reasons, response);
  if (format_.input_tokens && complete()) {
    AddNumbers("num_input_tokens", "UINT32", {input_tokens_}, response);
  }
  if (format_.output_tokens) AddNumbers("num_output_tokens", "UINT32", counts, response);
  for (Completion& completion : completions_) completion = {};
  kept_bytes_ = 0;
  return response;
}

}  // namespace rivulet::kserve
