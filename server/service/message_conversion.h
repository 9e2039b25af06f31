// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The scheduler's messages → proto messages.
#ifndef RIVULET_SERVER_SERVICE_MESSAGE_CONVERSION_H_
#define RIVULET_SERVER_SERVICE_MESSAGE_CONVERSION_H_

#include <cstdint>

#include "model_loader/tokenizer.h"
#include "rivulet/v1/inference.pb.h"
#include "server/scheduler/stream_message.h"

namespace rivulet {

// Sets all fields except those of a stream's first message.
v1::GenerateResponse ToProto(StreamMessage message, const Tokenizer* tokenizer);

// The `cache` of a last message.
void AddCacheReport(const Usage& usage, v1::GenerateResponse& response);

// The scores that a request with score_prompt gets.
v1::ScoreResponse ToScoreResponse(const StreamMessage& message, const Tokenizer* tokenizer);

// As vLLM and others name it: "stop", "length", "abort" or "error".
const char* FinishReasonName(v1::FinishReason reason);

// The text of one token; an incomplete character becomes U+FFFD. Empty without a tokenizer.
std::string LossyText(const Tokenizer* tokenizer, uint32_t token);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_MESSAGE_CONVERSION_H_
