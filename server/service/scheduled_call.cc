// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/scheduled_call.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/log/log.h"
#include "server/session/tenant_shares.h"

namespace rivulet {

ScheduledCall::ScheduledCall(const ServiceContext& service, CallOrigin origin)
    : service_(service), origin_(std::move(origin)) {}

absl::Status ScheduledCall::Submit(std::unique_ptr<Request> request,
                                   std::weak_ptr<StreamSink> sink) {
  outbox_ = std::make_shared<Outbox>(std::move(sink));
  request->id = id_;
  request->outbox = outbox_;
  request->arrival = origin_.arrival;
  request->deadline = origin_.deadline;
  request->tenant = origin_.caller->tenant;
  // Tenants share no kept states: whether a prompt is fast would tell what others have sent.
  request->cache_salt = SaltOf(tenant(), request->cache_salt);
  // Before: once it is submitted it may end on another thread at any time.
  ChargePrompt(*request);
  const absl::Status submitted = service_.scheduler.Submit(request);
  if (!submitted.ok()) {
    TakeChargeBack();
    return submitted;
  }
  LogDebug("request_queued",
           {{"request_id", request_id_}, {"session_id", session_id_}, {"method", origin_.method}});
  // A cancel before Submit named an id that the scheduler did not know.
  if (cancelled_) service_.scheduler.Cancel(id_);
  return absl::OkStatus();
}

void ScheduledCall::ChargePrompt(const Request& request) {
  charged_prompt_ = request.prompt.size();
  cachable_prompt_ = ContextTokens(request) == 0 ? charged_prompt_ : 0;
  origin_.caller->tenant->ChargeTokens(static_cast<int64_t>(charged_prompt_), Clock::now());
}

void ScheduledCall::TakeChargeBack() {
  origin_.caller->tenant->ChargeTokens(-static_cast<int64_t>(charged_prompt_), Clock::now());
  charged_prompt_ = cachable_prompt_ = 0;
}

void ScheduledCall::CancelRequest(bool stalled) {
  if (!cancelled_.exchange(true)) service_.scheduler.Cancel(id_, stalled);
}

absl::Status ScheduledCall::Open() {
  if (cancelled_) return absl::CancelledError("cancelled by the client");
  RIVULET_RETURN_IF_ERROR(service_.scheduler.CheckOpen(origin_.caller->tenant.get()));
  RIVULET_ASSIGN_OR_RETURN(tenant_request_, TenantRequest::Begin(service_, origin_.caller->tenant));
  return absl::OkStatus();
}

void ScheduledCall::CountGenerated(size_t tokens) {
  Tenant& tenant = *origin_.caller->tenant;
  tenant.metrics.generation_tokens.Add(tokens);
  tenant.ChargeTokens(static_cast<int64_t>(tokens), Clock::now());
}

// Prompt tokens that were cached cost nothing, which is known only now.
void ScheduledCall::Settle(const Usage& usage) {
  if (tenant_request_ == nullptr) return;
  Tenant& tenant = *origin_.caller->tenant;
  tenant.metrics.prompt_tokens.Add(charged_prompt_);
  const auto cached =
      static_cast<int64_t>(std::min<uint64_t>(usage.cached_tokens, cachable_prompt_));
  tenant.ChargeTokens(-cached, Clock::now());
  tenant_request_ = nullptr;
}

void ScheduledCall::LogEnd(const absl::Status& status, const Usage& usage) {
  Settle(usage);
  const double seconds = Seconds(Clock::now() - origin_.arrival);
  const LogField who[] = {{"tenant", origin_.caller == nullptr ? "" : tenant()},
                          {"trace_id", origin_.trace_id}};
  if (!status.ok()) {
    // INTERNAL is our fault; the others are caused by the client or the load.
    const auto log = status.code() == absl::StatusCode::kInternal ? LogWarning : LogInfo;
    return log("request_failed", {{"request_id", request_id_},
                                  {"session_id", session_id_},
                                  {"method", origin_.method},
                                  who[0],
                                  who[1],
                                  {"code", absl::StatusCodeToString(status.code())},
                                  {"error", std::string(status.message())},
                                  {"seconds", seconds}});
  }
  LogInfo("request_finished", {{"request_id", request_id_},
                               {"session_id", session_id_},
                               {"method", origin_.method},
                               who[0],
                               who[1],
                               {"prompt_tokens", usage.prompt_tokens},
                               {"cached_tokens", usage.cached_tokens},
                               {"completion_tokens", usage.completion_tokens},
                               {"seconds", seconds}});
}

void CountRefusal(Metrics& metrics, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:  // counted where it was refused
    case absl::StatusCode::kUnavailable:
      return;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return metrics.CountRequest(Outcome::kRejectedCaller);
    case absl::StatusCode::kCancelled:
      return metrics.CountRequest(Outcome::kCancelled);
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:
      return metrics.CountRequest(Outcome::kRejectedSession);
    default:
      return metrics.CountRequest(Outcome::kRejectedInvalid);
  }
}

}  // namespace rivulet
