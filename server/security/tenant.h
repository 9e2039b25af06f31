// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A party that shares the server with others: its limits, what it uses of them, and its counters.
// Sessions and kept states belong to a tenant; the scheduler shares the machine among tenants by
// their weights. A server without --tokens has one tenant, without a name and without limits.
//
// It does not authenticate (authenticator.h) and does not schedule.
//
// Threading: any thread. A tenant lives as long as something refers to it, also after it has left
// the file; its use is not forgotten when the file is read again.
#ifndef RIVULET_SERVER_SECURITY_TENANT_H_
#define RIVULET_SERVER_SECURITY_TENANT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"
#include "server/metrics/metrics.h"

namespace rivulet {

// 0: no limit.
struct TenantLimits {
  uint32_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;  // of prompts, unless cached, and generated ones
  uint32_t max_requests = 0;       // that run or wait at once
  uint32_t weight = 1;             // its share beside that of others; at least 1
  bool operator==(const TenantLimits&) const = default;
};

class Tenant {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  explicit Tenant(std::string name) : name_(std::move(name)) {}
  Tenant(const Tenant&) = delete;
  Tenant& operator=(const Tenant&) = delete;

  const std::string& name() const { return name_; }
  uint32_t weight() const;
  void SetLimits(const TenantLimits& limits);

  // Why a request is refused, and when it may come again.
  struct Refusal {
    std::string text;
    std::chrono::milliseconds retry_after;
  };
  // A request begins, unless that would be over a limit. EndRequest follows if it does.
  std::optional<Refusal> BeginRequest(TimePoint now);
  void EndRequest();
  // The limit that so many requests at once are over however long they wait: none of them begins.
  std::optional<std::string> RefuseTogether(size_t requests);
  // Tokens that were computed for it; fewer than 0 are given back. They may exceed the limit: then
  // requests are refused until time has paid for them.
  void ChargeTokens(int64_t tokens, TimePoint now);

  TenantMetrics metrics;

 private:
  // What a limit per minute leaves. It fills up to a minute's worth.
  class Allowance {
   public:
    void SetLimit(double per_minute);
    // Whether there is `amount`, at least.
    bool Has(double amount, TimePoint now);
    void Take(double amount) { left_ -= amount; }
    // When it will be there.
    std::chrono::milliseconds Until(double amount) const;

   private:
    void Refill(TimePoint now);
    double per_minute_ = 0;  // 0: no limit
    double left_ = 0;
    std::optional<TimePoint> filled_;
  };

  std::optional<Refusal> Refuse(std::string text, std::chrono::milliseconds retry_after);

  const std::string name_;
  mutable Mutex mutex_;
  TenantLimits limits_ ABSL_GUARDED_BY(mutex_);
  Allowance requests_left_ ABSL_GUARDED_BY(mutex_);
  Allowance tokens_left_ ABSL_GUARDED_BY(mutex_);
  uint32_t open_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_TENANT_H_
