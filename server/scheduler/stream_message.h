// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the engine thread sends to a client about one completion, in native types; server/service
// converts them to proto messages.
#ifndef RIVULET_SERVER_SCHEDULER_STREAM_MESSAGE_H_
#define RIVULET_SERVER_SCHEDULER_STREAM_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/engine/step_plan.h"
#include "server/metrics/metrics.h"

namespace rivulet {

enum class FinishReason : uint8_t {
  kNone,  // not finished
  kStop,
  kEos,
  kLength,
  kCancelled,
  kDeadline,
  kError,  // this completion failed; the stream's status says why
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t drafted_tokens = 0;   // guessed and checked
  uint32_t accepted_tokens = 0;  // of completion_tokens, guessed before
  // Of what the prefix cache knew of the prompt: tokens, and why no state was found.
  uint64_t known_tokens = 0;
  PrefixMiss prefix_miss = PrefixMiss::kOff;
};

// Everything about completion `index` since the message before it.
struct StreamMessage {
  uint32_t index = 0;
  FinishReason finish_reason = FinishReason::kNone;
  // Of a few steps, in the message itself: a thousand streams get one for each token.
  absl::InlinedVector<uint32_t, 14> tokens;
  std::string text;                       // whole characters
  std::vector<uint32_t> guessed;          // indices of those of `tokens` that a draft had guessed
  std::vector<Logprobs> logprobs;         // one for each of `tokens`, if requested
  std::vector<Logprobs> prompt_logprobs;  // in the first message with index 0, if requested
  std::string matched_stop;
  std::string fork_id;  // once finished: the session that this completion has become
  Usage usage;          // once finished

  // Adds what came after. REQUIRES: the same index; not finished.
  void Merge(StreamMessage&& later);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_STREAM_MESSAGE_H_
