// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sampling parameters by name: of the input `sampling_parameters`, a JSON object, and of the
// request's own parameters. Numbers may be written as texts, as Triton's clients do.
#ifndef RIVULET_SERVER_KSERVE_SAMPLING_PARAMETERS_H_
#define RIVULET_SERVER_KSERVE_SAMPLING_PARAMETERS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "kserve/grpc_service.pb.h"
#include "rivulet/v1/inference.pb.h"
#include "server/service/client_json.h"

namespace rivulet::kserve {

namespace wire = ::inference;

class SamplingParameters {
 public:
  // INVALID_ARGUMENT: no JSON object, or over kLargestJson.
  absl::Status AddJson(const std::string& text);
  // INVALID_ARGUMENT: the name is there already.
  absl::Status Add(const std::string& name, const wire::InferParameter& value);

  // INVALID_ARGUMENT names what is not served or of another kind; server/service checks ranges.
  absl::Status Apply(v1::GenerateRequest& request) const;

  static constexpr size_t kLargestJson = size_t{4} << 20;

 private:
  std::map<std::string, ClientJson> values_;
};

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_SAMPLING_PARAMETERS_H_
