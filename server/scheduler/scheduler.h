// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which requests hold slots, what runs in each step, and what becomes of its results.
//
//   front threads                      engine thread (engine_loop.h)
//   Submit, Cancel  →  inbox  →  Plan(now) → the engine → Commit(result, now)  →  outboxes
//
// Plan empties the inbox, ends requests that were cancelled or are late, gives slots to waiting
// requests in the order of their arrival, and asks PlanStep (plan.h) which rows run. Commit
// advances the sessions, applies the stop rules and fills the outboxes. With an engine of depth 2 a
// step is planned while the one before runs (docs/architecture.md#running-ahead).
//
// Slots: a request is admitted only with everything that it can come to need (state_need.h), so a
// running request never waits for slots. A waiting request that does not fit holds back those
// behind it, so that small requests cannot starve a large one; docs/architecture.md#sessions has
// the other rules: which idle sessions are dropped, who may pass, and who is refused.
//
// It reads no clock, starts no thread and runs no step: all of it can be driven by a test.
#ifndef RIVULET_SERVER_SCHEDULER_SCHEDULER_H_
#define RIVULET_SERVER_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "model_loader/tokenizer.h"
#include "server/engine/engine.h"
#include "server/metrics/metrics.h"
#include "server/scheduler/active_request.h"
#include "server/scheduler/draft_choice.h"
#include "server/scheduler/end_pace.h"
#include "server/scheduler/head_policy.h"
#include "server/scheduler/outbox.h"
#include "server/scheduler/plan.h"
#include "server/scheduler/prefix_reuse.h"
#include "server/scheduler/request.h"
#include "server/scheduler/state_need.h"
#include "server/scheduler/step_cost.h"
#include "server/session/session_table.h"

namespace rivulet {

class Scheduler {
 public:
  // Key of the status payload that says after how many milliseconds a refused request may be sent
  // again, in decimal.
  static constexpr const char* kRetryAfterPayload = "rivulet.retry_after_ms";
  // Bounds of that time. It is what the requests in the queue will take, estimated from those that
  // ended last.
  static constexpr std::chrono::milliseconds kShortestRetry{100};
  static constexpr std::chrono::milliseconds kLongestRetry{60000};

  // All outlive it.
  Scheduler(Engine& engine, SessionTable& sessions, Dispatcher& dispatcher, Metrics& metrics,
            SchedulerOptions options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- Any thread.

  static uint64_t NewId();

  // Whether Submit would refuse any request of this tenant now, and why. To be called before other
  // work is done for a request; a refusal is counted.
  absl::Status CheckOpen(const Tenant* tenant = nullptr) const;

  // Takes the request, or leaves it with the caller and returns why:
  //   RESOURCE_EXHAUSTED  the queue is full (--max-queue; an eighth of that many more may wait for
  //                       each tenant that has fewer there), or it can never fit (--state-memory,
  //                       --max-context); its session is unchanged
  //   UNAVAILABLE         the server takes no more work
  // Once the request is taken, all answers go through its outbox, which is closed exactly once.
  absl::Status Submit(std::unique_ptr<Request>& request);

  // The request gets no further row, and its stream ends with CANCELLED; `stalled`: since its
  // client does not read. Unknown ids are ignored: the request may have ended.
  void Cancel(uint64_t id, bool stalled = false);

  // Forgets what the prefix cache keeps of a tenant's prompts: a request that is submitted from now
  // on finds nothing of before. Requests that run may leave states of theirs again.
  void ForgetPrefixesOf(std::string tenant);

  // Submit refuses from now on; requests that were taken go on.
  void StopAdmission();
  // Whether StopAdmission was called.
  bool draining() const {
    MutexLock lock(&mutex_);
    return !admitting_;
  }
  // Ends all requests that were taken with `status`, after the steps in flight.
  void AbortAll(absl::Status status);
  // True when all requests that were taken have ended, false at `deadline`.
  bool WaitUntilIdle(TimePoint deadline);

  // ---- The engine thread.

  // The next step; empty when nothing can run. Valid until the next Plan. REQUIRES: fewer than
  // Engine::depth() plans that were not empty have not been committed.
  const StepPlan& Plan(TimePoint now);
  // Whether to plan before the step in flight is committed. Not if a row of it would sit out the
  // next step for that, but for a full outbox, and not while a request has come in, waits for slots
  // or is in its prompt: then the next Plan needs what the step in flight brings. REQUIRES: one
  // step is in flight.
  bool MayPlanAhead() const;
  // Whether something has come in since the last Plan.
  bool HasNews() const;
  // Lets drafters take in the last tokens, so that the next Plan takes less time. Optional, and
  // meant for the time after a launch, in which a device runs the step.
  void FollowDrafts();
  // The results of the oldest plan that has not been committed.
  void Commit(StepResult result, TimePoint now);

  // Plan or Commit, or the engine, has thrown std::bad_alloc. Ends every request that was taken
  // with RESOURCE_EXHAUSTED; the sessions whose turns ran are dropped, and all others remain. Steps
  // that were planned and not committed are forgotten. If this throws it too, call it again.
  // REQUIRES: every launched step has been awaited.
  void OutOfMemory(TimePoint now);

  // The device has failed: what all states held is lost. Ends every request that runs with
  // `status`, and drops every session that has a state; what waits and needs none of them goes on.
  // Steps that were planned and not committed are forgotten. REQUIRES: as OutOfMemory.
  void DeviceLost(absl::Status status, TimePoint now);

  // After an empty plan with no step in flight: sleeps until something has come in since that Plan,
  // an outbox has room again, a deadline passes, or Wake.
  void WaitForWork();
  void Wake();  // any thread

  const PrefixCache& prefix_cache() const { return prefixes_.cache(); }
  // Forgets the states of the prefix cache, and those on the way into it.
  void ForgetPrefixes();

 private:
  // A list, so that requests change hands without memory.
  using Requests = std::list<std::unique_ptr<Request>>;
  struct Cancelled {
    uint64_t id;
    bool stalled;
  };
  struct Inbox {
    Requests requests;
    std::vector<Cancelled> cancels;
    std::vector<std::string> forgotten;  // tenants
    std::optional<absl::Status> abort;
  };
  // A step that was planned and not committed.
  struct StepInFlight {
    std::vector<RowInFlight> rows;  // request: null if it has ended since
    size_t decode_rows = 0;
    size_t prompt_tokens = 0;
    size_t drafts = 0;
    size_t right_drafts = 0;   // once it is committed
    double draft_seconds = 0;  // before it, to make the drafts
    double draft_loss = 0;     // once it is committed: as DraftLoss, lengthened and read
  };
  static constexpr size_t kMostInFlight = 2;
  // An eighth of the slots and of the queue is for tenants that have less than that.
  static constexpr uint32_t kTenantPart = 8;
  // SessionTable::work of one plan while something runs, which waits for it: some 30 ms.
  static constexpr uint64_t kMostWork = uint64_t{1} << 18;
  using RowsByTenant = std::map<const Tenant*, uint64_t>;

  absl::Status CheckQueue(const Tenant* tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LimitContext(Request& request) const;
  absl::Status CheckFits(const Request& request) const;
  std::chrono::milliseconds RetryAfter() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteEnds(uint64_t ended, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Something has come in.
  void Signal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Inbox TakeInbox();
  void ApplyInbox(Inbox inbox, TimePoint now);
  void CancelNow(const Cancelled& cancelled, TimePoint now);
  void AbortNow(const absl::Status& status, TimePoint now);
  void EndLateWaiting(TimePoint now);
  // Ends the waiting requests for which `why` is not OK.
  void EndWaiting(TimePoint now, const std::function<absl::Status(const Request&)>& why);
  void Admit(TimePoint now);
  void AdmitWaiting(TimePoint now);  // one pass over the waiting requests
  void TakeTurnsByTenant(RowsByTenant claims);
  bool LeavesRoomForOthers(const Request& request, const RowsByTenant& running) const;
  RowsByTenant RunningByTenant() const;
  bool TryAdmit(std::unique_ptr<Request>& request, TimePoint now);
  void Refuse(const Request& refused, TimePoint now);
  bool AnythingRuns() const;
  size_t WaitingLeases() const;
  StateNeed NewNeed(const Request& request) const;
  StateNeed NewState(const Request& request) const;
  StateNeed NewContext(const Request& request) const;
  StateNeed AnewInPlaceOf(const Session& state, const Request& request) const;
  bool MayPass(const Request& request) const;
  bool WaitsForPrefix(Request& request);
  void AwaitPrefix(Request& request);
  void KeepLeftStates();
  StateNeed BorderRoom() const;
  void FindBorderRoom(const std::vector<PlannedRow>& chosen);
  void DropBordersFor(const std::vector<PlannedRow>& chosen, size_t count);
  std::unique_ptr<Session> NewSession(const Request& request,
                                      const PrefixCache::Match& match) const;
  absl::StatusOr<std::unique_ptr<Session>> OpenTurn(Request& request,
                                                    const PrefixCache::Match& match, bool keep);
  // What is in use or reserved for requests that run, and beside it `need`.
  StateNeed Held(StateNeed need) const;
  // Beside that, less `droppable`.
  bool HasRoom(StateNeed need, const StateNeed& droppable = {}) const;
  bool CanMakeRoom(const StateNeed& need) const;
  bool MakeRoom(const Request& request);
  bool MakeRoomByMore(const Request& request);
  // The rest of the work is for the next plan.
  bool WorkedEnough() const;
  bool DropOne(const Request& request);
  // Beside that, for the state at which a turn's session is kept. Drops no session.
  bool MakeRoomToKeep(const Request& request);
  // By the rule of tenant_shares.h: calls `drop` with the tenants that lose first (null: all),
  // until it is true. `request`: which asks for the room; null: none does. `for_tokens`: what they
  // hold of the sessions' tokens counts, not of bytes.
  bool DropByShare(const std::function<bool(const TenantNames*)>& drop,
                   const Request* request = nullptr, bool for_tokens = false);
  TenantAmounts HeldByTenants(const Request* request, bool for_tokens) const;
  // Of the request's tenant, that others than this one do.
  bool RunsForTenantOf(const Request& request) const;
  // Up to `most`, of idle sessions of the tenants, and then of those that run or wait. False if
  // none of them has any.
  bool DropKept(KeptStates what, const TenantNames* tenants, size_t most = 1);
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(Request& request,
                                                       const PrefixCache::Match& match, bool keep);
  void CollectRows(TimePoint now);
  std::vector<PlannedRow> Choose(TimePoint now);
  void ChooseDrafts(std::vector<PlannedRow>& chosen);
  std::vector<DraftStanding> Standings(const std::vector<PlannedRow>& chosen) const;
  void PrepareDrafts(const std::vector<PlannedRow>& chosen);
  void Learn(StepInFlight& step, double seconds);
  void LearnDrafts(StepInFlight& step, double seconds);
  void LearnHead(const StepInFlight& step, const StepResult& result);
  StepInFlight FillPlan(const std::vector<PlannedRow>& chosen);
  // Drops ended requests, notifies the dispatcher, updates the gauges.
  void Settle(TimePoint now);
  void DropEnded();
  void ShowGauges(size_t before_first_token);
  TimePoint NextDeadline() const;

  Engine& engine_;
  SessionTable& sessions_;
  Dispatcher& dispatcher_;
  Metrics& metrics_;
  mutable Mutex mutex_;
  CondVar changed_;  // something came in
  CondVar idle_;
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;  // since the last TakeInbox
  bool admitting_ ABSL_GUARDED_BY(mutex_) = true;
  uint64_t live_ ABSL_GUARDED_BY(mutex_) = 0;    // taken and not ended
  uint32_t queued_ ABSL_GUARDED_BY(mutex_) = 0;  // taken, before the end of their prompts
  std::map<const Tenant*, uint32_t> queued_of_ ABSL_GUARDED_BY(mutex_);
  EndPace pace_ ABSL_GUARDED_BY(mutex_);

  // Made while there is memory: copies need none.
  const absl::Status no_memory_ = absl::ResourceExhaustedError(
      "the server ran out of memory between two steps; try again later, and give the server less "
      "--state-memory");
  // The engine thread's, but for the options in it.
  RequestContext context_;
  PrefixReuse prefixes_;
  Requests waiting_;
  bool lacks_slots_ = false;  // one of them was not admitted for that
  // Room was not made, last, for the sake of other tenants, while others of its own run.
  bool share_is_used_ = false;
  bool named_tenants_ = false;  // there were some: without --tokens there is nothing to share
  std::vector<std::unique_ptr<ActiveRequest>> active_;
  uint64_t ended_ = 0;        // since the last Settle
  uint64_t work_before_ = 0;  // SessionTable::work when this plan began
  uint64_t turn_ = 0;         // counts admissions and planned rows, for RowView::last_turn
  StepCost cost_;
  DraftChoice draft_choice_{cost_};
  HeadPolicy head_policy_;
  double draft_seconds_ = 0;       // that the drafts of this plan took to make
  std::vector<RowInFlight> rows_;  // candidates of this plan
  std::vector<RowView> views_;     // of rows_
  StepPlan plan_;
  std::deque<StepInFlight> in_flight_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_SCHEDULER_H_
