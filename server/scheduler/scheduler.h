// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which requests hold slots, what runs in each step, and what becomes of its results.
//
//   front threads                      engine thread (engine_loop.h)
//   Submit, Cancel  →  inbox  →  Plan(now) → the engine → Commit(result, now)  →  outboxes
//
// Plan takes the inbox, ends what was cancelled or is late, gives slots to waiting requests in the
// order of their arrival, and asks PlanStep (plan.h) which rows run. Commit moves the sessions,
// applies the stop rules and fills the outboxes.
//
// Slots: a request is let in with all that it can come to need (state_need.h), so that none waits
// in its middle. An idle session of the table keeps its slots and pages, and is dropped, least
// recently used first, when a waiting request needs them. A waiting request that needs more than
// can be had holds back those behind it, so that a large one is never starved by small ones; a turn
// that needs nothing new passes it. If nothing runs and nothing can be dropped, the first waiting
// request is refused: nothing else would ever let it in.
//
// It reads no clock, starts no thread and runs no step: all of it can be driven by a test.
#ifndef RIVULET_SERVER_SCHEDULER_SCHEDULER_H_
#define RIVULET_SERVER_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "model_loader/tokenizer.h"
#include "server/engine/engine.h"
#include "server/metrics/metrics.h"
#include "server/scheduler/active_request.h"
#include "server/scheduler/dispatcher.h"
#include "server/scheduler/plan.h"
#include "server/scheduler/request.h"
#include "server/scheduler/state_need.h"
#include "server/scheduler/step_cost.h"
#include "server/session/session_table.h"

namespace rivulet {

struct SchedulerOptions {
  PlanLimits limits;
  // Requests that may wait for slots or for the end of their prompt; --max-queue. Prompts count
  // since slots may be plenty: a queue that moved into them would have no bound.
  uint32_t max_queue = 256;
  // Tokens that a session, or a completion with its prompt, may hold; --max-context. A session
  // keeps its token ids, 4 bytes each, and where states have a fixed size nothing else bounds them.
  // Completions end there with LENGTH; a request that starts beyond is refused.
  uint64_t max_context = uint64_t{1} << 22;
  // How long a stream whose client does not read keeps its slots once its outbox is full.
  Clock::duration stall_limit = std::chrono::minutes(5);
  const Tokenizer* tokenizer = nullptr;  // null: the model has none
  std::vector<uint32_t> eos_ids;
};

class Scheduler {
 public:
  // Key of the status payload with the milliseconds after which a refused request may be sent
  // again, as decimal text.
  static constexpr const char* kRetryAfterPayload = "rivulet.retry_after_ms";
  // What a client is told to wait when the queue is full: as long as the requests before it take to
  // get through, going by those that ended last. Between these.
  static constexpr std::chrono::milliseconds kShortestRetry{100};
  static constexpr std::chrono::milliseconds kLongestRetry{60000};

  // All outlive it.
  Scheduler(Engine& engine, SessionTable& sessions, Dispatcher& dispatcher, Metrics& metrics,
            SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- Any thread.

  static uint64_t NewId();

  // Whether Submit would refuse any request now, and why: before work is done for one. It is
  // counted as refused.
  absl::Status CheckOpen() const;

  // Takes the request, or leaves it with the caller and says why:
  //   RESOURCE_EXHAUSTED  the queue is full (--max-queue), or it can never fit (--state-memory,
  //                       --max-context); its session is as it was
  //   UNAVAILABLE         the server takes no more work
  // Once taken, everything is said through its outbox, which is closed exactly once.
  absl::Status Submit(std::unique_ptr<Request>& request);

  // From the next step on the request has no row; its stream ends with CANCELLED. Unknown ids (it
  // may have ended) are ignored.
  void Cancel(uint64_t id);

  // Submit refuses from now on; what was taken goes on.
  void StopAdmission();
  // Whether StopAdmission was called. Counts nothing: for calls that are no requests.
  bool draining() const {
    MutexLock lock(&mutex_);
    return !admitting_;
  }
  // Ends everything that was taken with `status`, within a step.
  void AbortAll(absl::Status status);
  // True when everything taken has ended, false at `deadline`.
  bool WaitUntilIdle(TimePoint deadline);

  // ---- The engine thread.

  // The next step; empty when nothing can run. Valid until the next Plan.
  const StepPlan& Plan(TimePoint now);
  // The results of the last plan.
  void Commit(StepResult result, TimePoint now);

  // After an empty plan: sleeps until something came in since that Plan, an outbox has room again,
  // a deadline passes, or Wake.
  void WaitForWork();
  void Wake();  // any thread

  // For tests and the engine's loop.
  size_t running() const { return active_.size(); }
  size_t waiting() const { return waiting_.size(); }
  size_t in_prompt() const;

 private:
  struct Inbox {
    std::vector<std::unique_ptr<Request>> requests;
    std::vector<uint64_t> cancels;
    std::optional<absl::Status> abort;
  };
  struct RowRef {
    ActiveRequest* request;
    int row;
  };

  absl::Status CheckQueue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LimitContext(Request& request) const;
  absl::Status CheckFits(const Request& request) const;
  std::chrono::milliseconds RetryAfter() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteEnds(uint64_t ended, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Inbox TakeInbox();
  void ApplyInbox(Inbox inbox, TimePoint now);
  void CancelNow(uint64_t id, TimePoint now);
  void AbortNow(const absl::Status& status, TimePoint now);
  void EndLateWaiting(TimePoint now);
  void Admit(TimePoint now);
  void AdmitWaiting(TimePoint now);  // one pass over the waiting requests
  bool TryAdmit(std::unique_ptr<Request>& request, TimePoint now);
  void Refuse(std::deque<std::unique_ptr<Request>>::iterator request, TimePoint now);
  bool AnythingRuns() const;
  size_t WaitingLeases() const;
  StateNeed NewNeed(const Request& request) const;
  StateNeed HeldState() const;
  bool HasRoom(const StateNeed& need) const;
  bool CanMakeRoom(const StateNeed& need) const;
  bool MakeRoom(const StateNeed& need);
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(Request& request);
  void CollectRows(TimePoint now);
  std::vector<PlannedRow> Choose(TimePoint now);
  void FillPlan(const std::vector<PlannedRow>& chosen);
  void EndExpired(const std::vector<size_t>& expired, TimePoint now);
  // What the planned step took goes into cost_.
  void LearnCost(double seconds);
  // Drops ended requests, tells the dispatcher, shows the gauges.
  void Settle(TimePoint now);
  void ShowGauges();
  TimePoint NextDeadline() const;

  Engine& engine_;
  SessionTable& sessions_;
  Dispatcher& dispatcher_;
  Metrics& metrics_;
  const SchedulerOptions options_;

  mutable Mutex mutex_;
  CondVar changed_;  // something came in
  CondVar idle_;
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;  // since the last TakeInbox
  bool admitting_ ABSL_GUARDED_BY(mutex_) = true;
  uint64_t live_ ABSL_GUARDED_BY(mutex_) = 0;    // taken and not ended
  uint32_t queued_ ABSL_GUARDED_BY(mutex_) = 0;  // taken, before the end of their prompts
  // Seconds between two ends of requests while others waited, a moving mean; 0: not known.
  double seconds_an_end_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint last_end_ ABSL_GUARDED_BY(mutex_);

  // The engine thread's.
  RequestContext context_;
  std::deque<std::unique_ptr<Request>> waiting_;
  std::vector<std::unique_ptr<ActiveRequest>> active_;
  uint64_t ended_ = 0;  // since the last Settle
  uint64_t turn_ = 0;   // numbers admissions and what rows run, for RowView::last_turn
  StepCost cost_;
  std::vector<RowRef> rows_;     // candidates of this plan
  std::vector<RowView> views_;   // of rows_
  std::vector<RowRef> planned_;  // rows of plan_
  StepPlan plan_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_SCHEDULER_H_
