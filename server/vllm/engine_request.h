// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// vLLM's request → ours. What is not served is refused by its name; server/service checks the
// values of the rest.
//
// Numbers that are zero and cannot be absent mean what they mean to vLLM: its own defaults, not the
// checkpoint's, which a gateway learns from GetModelInfo and puts into its requests.
#ifndef RIVULET_SERVER_VLLM_ENGINE_REQUEST_H_
#define RIVULET_SERVER_VLLM_ENGINE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "vllm/vllm_engine.pb.h"

namespace rivulet::vllm_engine {

namespace wire = ::vllm::grpc::engine;

// What of a request its reply depends on.
struct ReplyFormat {
  bool stream = false;
  // How many of the best tokens are listed beside the chosen one; unset: no log-probabilities.
  std::optional<uint32_t> logprobs = {}, prompt_logprobs = {};
  // Of a prompt that is token ids.
  uint32_t prompt_tokens = 0;
  uint32_t first_token = 0;
  std::vector<uint32_t> stop_token_ids = {};
};

struct EngineRequest {
  v1::GenerateRequest proto;  // without a session
  ReplyFormat format;
};

// INVALID_ARGUMENT; UNIMPLEMENTED for a kind of structured output that is not served.
absl::StatusOr<EngineRequest> ReadRequest(const wire::GenerateRequest& request);

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_ENGINE_REQUEST_H_
