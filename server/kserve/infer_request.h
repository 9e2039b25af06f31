// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A ModelInferRequest → ours. What is not served is refused by its name; server/service checks the
// values of the rest.
#ifndef RIVULET_SERVER_KSERVE_INFER_REQUEST_H_
#define RIVULET_SERVER_KSERVE_INFER_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kserve/grpc_service.pb.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet::kserve {

namespace wire = ::inference;

// The one version that there is of the model.
inline constexpr char kVersion[] = "1";

// What of a request its responses depend on.
struct InferFormat {
  std::string id = {};
  std::string model = {};
  bool stream = false;      // a response for each piece of text
  std::string prompt = {};  // what is put before each text
  uint32_t completions = 1;
  bool output_ids = false, finish_reason = false, input_tokens = false, output_tokens = false;
};

// The sequence of requests that one belongs to, which is a session.
struct Sequence {
  std::string session = {};  // its id; empty: none
  bool start = false;        // which the request begins
  bool end = false;          // and which ends with it
};

struct InferRequest {
  v1::GenerateRequest proto;  // without a session
  InferFormat format;
  Sequence sequence;
  std::chrono::microseconds timeout{0};  // 0: none
};

// Of a model's name and version: NOT_FOUND for any other than ours. An empty version is any.
absl::Status CheckModel(const std::string& name, const std::string& version,
                        const std::string& served);

// NOT_FOUND as CheckModel; INVALID_ARGUMENT.
absl::StatusOr<InferRequest> ReadInferRequest(const wire::ModelInferRequest& request,
                                              const std::string& served);

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_INFER_REQUEST_H_
