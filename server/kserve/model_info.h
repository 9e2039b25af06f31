// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the server says of itself and its model in KServe's protocol: one model, version 1.
// Threading: any thread.
#ifndef RIVULET_SERVER_KSERVE_MODEL_INFO_H_
#define RIVULET_SERVER_KSERVE_MODEL_INFO_H_

#include <atomic>

#include "absl/status/status.h"
#include "kserve/grpc_service.pb.h"
#include "server/service/service_context.h"

namespace rivulet::kserve {

namespace wire = ::inference;

class ModelInfo {
 public:
  // The context outlives it.
  explicit ModelInfo(const ServiceContext& service) : service_(service) {}

  void SetServing(bool serving) { serving_ = serving; }
  bool ready() const { return serving_ && !service_.scheduler.draining(); }

  // Of another model: false.
  absl::Status Ready(const wire::ModelReadyRequest& request,
                     wire::ModelReadyResponse& response) const;
  absl::Status Server(wire::ServerMetadataResponse& response) const;
  // NOT_FOUND for another model.
  absl::Status Metadata(const wire::ModelMetadataRequest& request,
                        wire::ModelMetadataResponse& response) const;
  absl::Status Config(const wire::ModelConfigRequest& request,
                      wire::ModelConfigResponse& response) const;
  absl::Status Statistics(const wire::ModelStatisticsRequest& request,
                          wire::ModelStatisticsResponse& response) const;
  absl::Status Index(const wire::RepositoryIndexRequest& request,
                     wire::RepositoryIndexResponse& response) const;

 private:
  const std::string& name() const { return service_.model.info.name(); }

  const ServiceContext& service_;
  std::atomic<bool> serving_{true};
};

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_MODEL_INFO_H_
