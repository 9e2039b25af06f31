// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SERVICE_TENANT_REQUEST_H_
#define RIVULET_SERVER_SERVICE_TENANT_REQUEST_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "server/scheduler/scheduler.h"
#include "server/security/tenant.h"
#include "server/service/service_context.h"

namespace rivulet {

// A request of a tenant, which counts against its limits while this exists. Threading: any thread.
class TenantRequest {
 public:
  // RESOURCE_EXHAUSTED, with the time to wait, when the tenant is over a limit.
  static absl::StatusOr<std::shared_ptr<TenantRequest>> Begin(const ServiceContext& service,
                                                              std::shared_ptr<Tenant> tenant) {
    const auto refusal = tenant->BeginRequest(Clock::now());
    if (!refusal.has_value()) {
      return std::shared_ptr<TenantRequest>(new TenantRequest(std::move(tenant)));
    }
    service.metrics.CountRequest(Outcome::kRejectedLimit);
    absl::Status status = absl::ResourceExhaustedError(refusal->text);
    status.SetPayload(Scheduler::kRetryAfterPayload,
                      absl::Cord(std::to_string(refusal->retry_after.count())));
    return status;
  }
  ~TenantRequest() { tenant_->EndRequest(); }
  TenantRequest(const TenantRequest&) = delete;
  TenantRequest& operator=(const TenantRequest&) = delete;

 private:
  explicit TenantRequest(std::shared_ptr<Tenant> tenant) : tenant_(std::move(tenant)) {}

  const std::shared_ptr<Tenant> tenant_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_TENANT_REQUEST_H_
