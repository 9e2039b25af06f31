// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Our messages → vLLM's. A stream has chunks with what is new, and for each completion a last
// message, `complete`, without the tokens that the chunks had. Without streaming there is only
// `complete`, with all of them.
//
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_VLLM_ENGINE_REPLY_H_
#define RIVULET_SERVER_VLLM_ENGINE_REPLY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "server/vllm/engine_request.h"
#include "vllm/vllm_engine.pb.h"

namespace rivulet::vllm_engine {

class EngineReply {
 public:
  explicit EngineReply(ReplyFormat format) : format_(std::move(format)) {}

  // What to send now: nothing, a chunk, `complete`, or both. RESOURCE_EXHAUSTED when a reply that
  // is not streamed would be too large for one message.
  absl::StatusOr<std::vector<wire::GenerateResponse>> Add(const v1::GenerateResponse& message);

  // That the next `complete` may have.
  size_t kept_logprobs() const {
    return kept_logprobs_ + static_cast<size_t>(prompt_.token_ids_size());
  }

 private:
  absl::Status Keep(const v1::GenerateResponse& message);
  wire::GenerateResponse Chunk(const v1::GenerateResponse& message) const;
  wire::GenerateResponse Complete(const v1::GenerateResponse& last);
  void SetMatchedStop(const v1::GenerateResponse& last, wire::GenerateComplete& complete) const;
  void AddPrompt(const v1::GenerateResponse& message, wire::InputLogProbs& logprobs) const;

  const ReplyFormat format_;
  size_t kept_bytes_ = 0;  // about what all that is kept takes on the wire
  size_t kept_logprobs_ = 0;
  std::map<uint32_t, uint32_t> last_tokens_;         // by index
  std::map<uint32_t, wire::GenerateComplete> kept_;  // by index
  wire::InputLogProbs prompt_;                       // of a reply that is not streamed
};

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_ENGINE_REPLY_H_
