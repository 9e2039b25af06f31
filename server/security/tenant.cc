// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/tenant.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;

// A request ends in about this time, or some other does.
constexpr milliseconds kUntilOneEnds{1000};
constexpr double kMillisecondsInMinute = 60000;

}  // namespace

void Tenant::Allowance::SetLimit(double per_minute) {
  if (per_minute == per_minute_) return;
  // What was used of the old limit stays used; without one nothing was.
  left_ = per_minute_ == 0 ? per_minute : left_ + per_minute - per_minute_;
  per_minute_ = per_minute;
}

void Tenant::Allowance::Refill(TimePoint now) {
  const TimePoint last = filled_.value_or(now);
  filled_ = std::max(now, last);
  const double minutes = std::chrono::duration<double, std::ratio<60>>(*filled_ - last).count();
  left_ = std::min(per_minute_, left_ + minutes * per_minute_);
}

bool Tenant::Allowance::Has(double amount, TimePoint now) {
  Refill(now);
  return per_minute_ == 0 || left_ >= amount;
}

milliseconds Tenant::Allowance::Until(double amount) const {
  const double minutes = (amount - left_) / per_minute_;
  return milliseconds(std::max<int64_t>(1, std::llround(minutes * kMillisecondsInMinute)));
}

uint32_t Tenant::weight() const {
  MutexLock lock(&mutex_);
  return limits_.weight;
}

void Tenant::SetLimits(const TenantLimits& limits) {
  MutexLock lock(&mutex_);
  limits_ = limits;
  requests_left_.SetLimit(limits.requests_per_minute);
  tokens_left_.SetLimit(static_cast<double>(limits.tokens_per_minute));
}

std::optional<Tenant::Refusal> Tenant::Refuse(std::string text, milliseconds retry_after) {
  metrics.requests_refused.Add();
  return Refusal{absl::StrCat(text, "; try again later"), retry_after};
}

std::optional<Tenant::Refusal> Tenant::BeginRequest(TimePoint now) {
  MutexLock lock(&mutex_);
  if (limits_.max_requests > 0 && open_ >= limits_.max_requests) {
    return Refuse(absl::StrCat(open_, " requests of yours have not ended, as many as you may have"),
                  kUntilOneEnds);
  }
  if (!requests_left_.Has(1, now)) {
    return Refuse(absl::StrCat("over ", limits_.requests_per_minute, " requests in a minute"),
                  requests_left_.Until(1));
  }
  if (!tokens_left_.Has(1, now)) {
    return Refuse(absl::StrCat("over ", limits_.tokens_per_minute, " tokens in a minute"),
                  tokens_left_.Until(1));
  }
  requests_left_.Take(1);
  ++open_;
  metrics.requests.Add();
  metrics.requests_open.Add(1);
  return std::nullopt;
}

std::optional<std::string> Tenant::RefuseTogether(size_t requests) {
  MutexLock lock(&mutex_);
  const auto over = [requests](uint32_t limit) { return limit > 0 && requests > limit; };
  if (!over(limits_.max_requests) && !over(limits_.requests_per_minute)) return std::nullopt;
  metrics.requests_refused.Add();
  if (over(limits_.max_requests)) {
    return absl::StrCat("you may have ", limits_.max_requests, " that run or wait (max_requests)");
  }
  return absl::StrCat("you may begin ", limits_.requests_per_minute,
                      " in a minute (requests_per_minute)");
}

void Tenant::EndRequest() {
  MutexLock lock(&mutex_);
  --open_;
  metrics.requests_open.Add(-1);
}

void Tenant::ChargeTokens(int64_t tokens, TimePoint now) {
  MutexLock lock(&mutex_);
  (void)tokens_left_.Has(0, now);
  tokens_left_.Take(static_cast<double>(tokens));
}

}  // namespace rivulet
