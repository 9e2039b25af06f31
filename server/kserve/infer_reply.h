// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Our messages → ModelInferResponses: in a stream one for each message, else one with everything.
// The last has the parameter triton_final_response.
//
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_KSERVE_INFER_REPLY_H_
#define RIVULET_SERVER_KSERVE_INFER_REPLY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kserve/grpc_service.pb.h"
#include "rivulet/v1/inference.pb.h"
#include "server/kserve/infer_request.h"

namespace rivulet::kserve {

class InferReply {
 public:
  explicit InferReply(InferFormat format)
      : format_(std::move(format)), completions_(format_.completions) {}

  // What to send now, if anything. RESOURCE_EXHAUSTED when a reply that is not streamed would be
  // too large for one message.
  absl::StatusOr<std::optional<wire::ModelInferResponse>> Add(const v1::GenerateResponse& message);

  // How much the last response will have.
  size_t kept_bytes() const { return kept_bytes_; }

  // All completions have ended as they should.
  bool complete() const { return ended_ == completions_.size(); }

 private:
  struct Completion {
    std::string text;
    std::vector<uint32_t> ids;
    std::string finish_reason;
    uint32_t output_tokens = 0;
  };

  wire::ModelInferResponse Build();

  const InferFormat format_;
  std::vector<Completion> completions_;
  size_t ended_ = 0;
  size_t kept_bytes_ = 0;
  uint32_t input_tokens_ = 0;
};

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_INFER_REPLY_H_
