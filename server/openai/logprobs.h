// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-probabilities in the JSON of chat completions and responses.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_OPENAI_LOGPROBS_H_
#define RIVULET_SERVER_OPENAI_LOGPROBS_H_

#include <cstddef>
#include <cstdint>

#include "model_loader/tokenizer.h"
#include "rivulet/v1/inference.pb.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {

// JSON has no infinity: minus infinity is -9999.
double LogprobNumber(const v1::TokenLogprob& token);

// {"token", "logprob", "bytes", "top_logprobs"} with at most `top` alternatives. The tokenizer may
// be null.
Json TokenLogprobJson(const v1::TokenLogprob& token, uint32_t top, const Tokenizer* tokenizer);

// About how many bytes of JSON the log-probabilities of a message take.
size_t LogprobBytes(const v1::GenerateResponse& message, uint32_t top);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_LOGPROBS_H_
