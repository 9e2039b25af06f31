// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the server says of itself to a gateway. Threading: any thread.
#ifndef RIVULET_SERVER_VLLM_ENGINE_INFO_H_
#define RIVULET_SERVER_VLLM_ENGINE_INFO_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "server/service/service_context.h"
#include "vllm/vllm_engine.pb.h"

namespace rivulet::vllm_engine {

namespace wire = ::vllm::grpc::engine;

class EngineInfo {
 public:
  // `folder`: of the model, absolute. The context outlives it.
  EngineInfo(const ServiceContext& service, std::string folder)
      : service_(service), folder_(std::move(folder)) {}

  void SetServing(bool serving) { serving_ = serving; }
  // A request to generate has come.
  void NoteRequest() { last_request_ = std::chrono::system_clock::now(); }

  void DescribeHealth(wire::HealthCheckResponse& response) const;
  void DescribeModel(wire::GetModelInfoResponse& response) const;
  void DescribeServer(wire::GetServerInfoResponse& response) const;
  // INVALID_ARGUMENT for a rank other than 0.
  absl::Status DescribeLoads(const wire::GetLoadsRequest& request,
                             wire::GetLoadsResponse& response) const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  double TokensPerSecond() const;

  const ServiceContext& service_;
  const std::string folder_;
  const Time start_ = std::chrono::steady_clock::now();
  std::atomic<bool> serving_{true};
  std::atomic<std::chrono::system_clock::time_point> last_request_{};
  mutable Mutex mutex_;
  mutable Time counted_at_ ABSL_GUARDED_BY(mutex_) = start_;
  mutable uint64_t counted_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable double tokens_per_second_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_ENGINE_INFO_H_
