// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/scheduled_call.h"

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/log/log.h"

namespace rivulet {
ScheduledCall::ScheduledCall(const ServiceContext& service, const char* method, TimePoint arrival,
                             TimePoint deadline)
    : service_(service), method_(method), arrival_(arrival), deadline_(deadline) {}

absl::Status ScheduledCall::Submit(std::unique_ptr<Request> request,
                                   std::weak_ptr<StreamSink> sink) {
  outbox_ = std::make_shared<Outbox>(std::move(sink));
  request->id = id_;
  request->outbox = outbox_;
  request->arrival = arrival_;
  request->deadline = deadline_;
  RIVULET_RETURN_IF_ERROR(service_.scheduler.Submit(request));
  LogDebug("request_queued",
           {{"request_id", request_id_}, {"session_id", session_id_}, {"method", method_}});
  // A cancel before Submit named an id that the scheduler did not know.
  if (cancelled_) service_.scheduler.Cancel(id_);
  return absl::OkStatus();
}

void ScheduledCall::CancelRequest() {
  if (!cancelled_.exchange(true)) service_.scheduler.Cancel(id_);
}

absl::Status ScheduledCall::CheckOpen() const {
  if (cancelled_) return absl::CancelledError("cancelled by the client");
  return service_.scheduler.CheckOpen();
}

void ScheduledCall::LogEnd(const absl::Status& status, const Usage& usage) {
  const double seconds = Seconds(Clock::now() - arrival_);
  if (!status.ok()) {
    // INTERNAL is our fault; the others are caused by the client or the load.
    const auto log = status.code() == absl::StatusCode::kInternal ? LogWarning : LogInfo;
    return log("request_failed", {{"request_id", request_id_},
                                  {"session_id", session_id_},
                                  {"method", method_},
                                  {"code", absl::StatusCodeToString(status.code())},
                                  {"error", std::string(status.message())},
                                  {"seconds", seconds}});
  }
  LogInfo("request_finished", {{"request_id", request_id_},
                               {"session_id", session_id_},
                               {"method", method_},
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
