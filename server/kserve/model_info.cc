// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/model_info.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/kserve/infer_request.h"

namespace rivulet::kserve {
namespace {

constexpr char kPlatform[] = "rivulet";

struct TensorInfo {
  const char* name;
  const char* datatype;
  wire::DataType type;
  int64_t elements;  // -1: any number
  bool optional;
};

constexpr TensorInfo kInputs[] = {
    {"text_input", "BYTES", wire::TYPE_STRING, 1, true},
    {"input_ids", "INT32", wire::TYPE_INT32, -1, true},
    {"stream", "BOOL", wire::TYPE_BOOL, 1, true},
    {"sampling_parameters", "BYTES", wire::TYPE_STRING, 1, true},
    {"exclude_input_in_output", "BOOL", wire::TYPE_BOOL, 1, true},
    {"return_finish_reason", "BOOL", wire::TYPE_BOOL, 1, true},
    {"return_num_input_tokens", "BOOL", wire::TYPE_BOOL, 1, true},
    {"return_num_output_tokens", "BOOL", wire::TYPE_BOOL, 1, true},
};
constexpr TensorInfo kOutputs[] = {
    {"text_output", "BYTES", wire::TYPE_STRING, -1, false},
    {"output_ids", "INT32", wire::TYPE_INT32, -1, false},
    {"finish_reason", "BYTES", wire::TYPE_STRING, -1, false},
    {"num_input_tokens", "UINT32", wire::TYPE_UINT32, 1, false},
    {"num_output_tokens", "UINT32", wire::TYPE_UINT32, -1, false},
};

void Describe(const TensorInfo& info, wire::ModelMetadataResponse::TensorMetadata& tensor) {
  tensor.set_name(info.name);
  tensor.set_datatype(info.datatype);
  tensor.add_shape(info.elements);
}

uint64_t Count(const Histogram& histogram) {
  uint64_t count = 0;
  for (size_t i = 0; i <= histogram.upper_bounds().size(); ++i) count += histogram.count(i);
  return count;
}

void Fill(const Histogram& seconds, wire::StatisticDuration& duration) {
  duration.set_count(Count(seconds));
  duration.set_ns(static_cast<uint64_t>(seconds.sum() * 1e9));
}

uint64_t Failures(const Metrics& metrics) {
  uint64_t failures = 0;
  for (const Outcome outcome :
       {Outcome::kCancelled, Outcome::kStalled, Outcome::kDeadline, Outcome::kError,
        Outcome::kRejectedInvalid, Outcome::kRejectedSession, Outcome::kRejectedQueue,
        Outcome::kRejectedSlots, Outcome::kRejectedDraining}) {
    failures += metrics.requests[static_cast<size_t>(outcome)].value();
  }
  return failures;
}

}  // namespace

absl::Status ModelInfo::Ready(const wire::ModelReadyRequest& request,
                              wire::ModelReadyResponse& response) const {
  response.set_ready(ready() && CheckModel(request.name(), request.version(), name()).ok());
  return absl::OkStatus();
}

absl::Status ModelInfo::Server(wire::ServerMetadataResponse& response) const {
  response.set_name(kPlatform);
  response.set_version(service_.metrics.version);
  for (const char* const extension :
       {"sequence", "parameters", "model_configuration", "statistics", "model_repository"}) {
    response.add_extensions(extension);
  }
  return absl::OkStatus();
}

absl::Status ModelInfo::Metadata(const wire::ModelMetadataRequest& request,
                                 wire::ModelMetadataResponse& response) const {
  RIVULET_RETURN_IF_ERROR(CheckModel(request.name(), request.version(), name()));
  response.set_name(name());
  response.add_versions(std::string(kVersion));
  response.set_platform(kPlatform);
  for (const TensorInfo& input : kInputs) Describe(input, *response.add_inputs());
  for (const TensorInfo& output : kOutputs) Describe(output, *response.add_outputs());
  return absl::OkStatus();
}

// "Decoupled" is Triton's word for a model that may give many responses to a request.
absl::Status ModelInfo::Config(const wire::ModelConfigRequest& request,
                               wire::ModelConfigResponse& response) const {
  RIVULET_RETURN_IF_ERROR(CheckModel(request.name(), request.version(), name()));
  wire::ModelConfig& config = *response.mutable_config();
  config.set_name(name());
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  config.mutable_model_transaction_policy()->set_decoupled(true);
  for (const TensorInfo& input : kInputs) {
    wire::ModelInput& described = *config.add_input();
    described.set_name(input.name);
    described.set_data_type(input.type);
    described.add_dims(input.elements);
    described.set_optional(input.optional);
  }
  for (const TensorInfo& output : kOutputs) {
    wire::ModelOutput& described = *config.add_output();
    described.set_name(output.name);
    described.set_data_type(output.type);
    described.add_dims(output.elements);
  }
  return absl::OkStatus();
}

// Of all protocols: the server counts requests once.
absl::Status ModelInfo::Statistics(const wire::ModelStatisticsRequest& request,
                                   wire::ModelStatisticsResponse& response) const {
  if (!request.name().empty()) {
    RIVULET_RETURN_IF_ERROR(CheckModel(request.name(), request.version(), name()));
  }
  const Metrics& metrics = service_.metrics;
  wire::ModelStatistics& statistics = *response.add_model_stats();
  statistics.set_name(name());
  statistics.set_version(kVersion);
  wire::InferStatistics& infer = *statistics.mutable_inference_stats();
  Fill(metrics.e2e_request_latency, *infer.mutable_success());
  Fill(metrics.request_queue_time, *infer.mutable_queue());
  infer.mutable_fail()->set_count(Failures(metrics));
  infer.mutable_cache_hit()->set_count(metrics.prefix_hits.value());
  statistics.set_inference_count(infer.success().count());
  statistics.set_execution_count(Count(metrics.decode_batch_size));
  return absl::OkStatus();
}

absl::Status ModelInfo::Index(const wire::RepositoryIndexRequest& request,
                              wire::RepositoryIndexResponse& response) const {
  if (!request.repository_name().empty()) {
    return absl::NotFoundError(absl::StrCat("there is no repository '",
                                            request.repository_name().substr(0, 100),
                                            "'; leave repository_name out"));
  }
  if (request.ready() && !ready()) return absl::OkStatus();
  auto& model = *response.add_models();
  model.set_name(name());
  model.set_version(kVersion);
  model.set_state(ready() ? "READY" : "UNAVAILABLE");
  return absl::OkStatus();
}

}  // namespace rivulet::kserve
