// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What Score and the calls that generate have in common: each becomes a request of the scheduler.
//
//   the door       makes the call and hands its work to the worker pool
//   worker         parses, checks, tokenizes, submits
//   dispatcher     OnReady: sends what the scheduler has produced
//   the door       the client is gone: cancels the row
//
// A cancel may come at any point, even before Submit; the request is then cancelled as soon as the
// scheduler knows it.
#ifndef RIVULET_SERVER_SERVICE_SCHEDULED_CALL_H_
#define RIVULET_SERVER_SERVICE_SCHEDULED_CALL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/scheduler/outbox.h"
#include "server/scheduler/request.h"
#include "server/service/service_context.h"
#include "server/service/tenant_request.h"

namespace rivulet {

// From this many on, turning log-probabilities into a message, or a reply, is work for the pool.
inline constexpr size_t kManyLogprobs = 512;

// Where a call comes from.
struct CallOrigin {
  const char* method;  // a constant, for the log
  TimePoint arrival;   // of the client's message
  TimePoint deadline = kNoDeadline;
  CallerPtr caller;      // null: of a call that will be refused, because it is not known
  std::string trace_id;  // of the client's trace, for the log; may be empty
};

class ScheduledCall : public StreamSink {
 public:
  // The request says an earlier time than the protocol. Before it is submitted.
  void LimitDeadline(TimePoint deadline) {
    origin_.deadline = std::min(origin_.deadline, deadline);
  }

 protected:
  // The context outlives the request.
  ScheduledCall(const ServiceContext& service, CallOrigin origin);

  // Hands the request to the scheduler; messages for it then come to `sink` (this, shared). On
  // failure nothing will come.
  absl::Status Submit(std::unique_ptr<Request> request, std::weak_ptr<StreamSink> sink);
  Outbox& outbox() { return *outbox_; }

  // The client is gone or has cancelled; `stalled`: or has not read for too long, which its
  // connection may notice before the outbox has been full for so long. Any thread, any number of
  // times; the first counts.
  void CancelRequest(bool stalled = false);

  // Not OK when the request is cancelled already, its tenant is over a limit, or the scheduler
  // would refuse any. To be called once, before the request is read: under overload most are
  // refused here.
  absl::Status Open();

  // Tokens were generated for it.
  void CountGenerated(size_t tokens);

  // Logs the end and settles with the tenant, once.
  void LogEnd(const absl::Status& status, const Usage& usage);

  const std::string& tenant() const { return origin_.caller->tenant->name(); }
  SessionKey Key(const std::string& session_id) const { return {tenant(), session_id}; }

  const ServiceContext& service_;
  // For the log and the client. Set before Submit.
  std::string request_id_;
  std::string session_id_;

 private:
  void ChargePrompt(const Request& request);
  void TakeChargeBack();
  void Settle(const Usage& usage);

  CallOrigin origin_;
  std::shared_ptr<TenantRequest> tenant_request_;  // from Open to the end
  uint64_t charged_prompt_ = 0;                    // tokens; set before the request is submitted
  // Of these, those that may turn out to be cached: none of a turn that continues what its session
  // holds, whose cached tokens are the session's.
  uint64_t cachable_prompt_ = 0;
  const uint64_t id_ = Scheduler::NewId();
  std::shared_ptr<Outbox> outbox_;
  std::atomic<bool> cancelled_{false};
};

// Counts a call that never became a request.
void CountRefusal(Metrics& metrics, const absl::Status& status);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_SCHEDULED_CALL_H_
