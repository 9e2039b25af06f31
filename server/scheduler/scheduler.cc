// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

// A client that reaches its deadline cancels the call, by its own clock. The two clocks may differ
// by this much.
constexpr std::chrono::milliseconds kClockSlack{50};

bool CancelledByDeadline(const Request& request, TimePoint now) {
  return request.deadline != kNoDeadline && request.deadline <= now + kClockSlack;
}

absl::Status CancelStatus(const Request& request, TimePoint now) {
  if (!CancelledByDeadline(request, now)) return absl::CancelledError("cancelled by the client");
  return absl::DeadlineExceededError("the client's deadline passed");
}

}  // namespace

Scheduler::Scheduler(Engine& engine, SessionTable& sessions, Dispatcher& dispatcher,
                     Metrics& metrics, SchedulerOptions options)
    : engine_(engine),
      sessions_(sessions),
      dispatcher_(dispatcher),
      metrics_(metrics),
      context_{std::move(options), metrics, engine.capacity(), sessions},
      prefixes_(engine.capacity(), context_.options.prefix_cache, metrics),
      cost_(engine.capacity().fold_interval) {
  sessions_.set_on_reap([this] { Wake(); });
  metrics_.state_slots_total.Set(engine_.capacity().tail_slots);
}

uint64_t Scheduler::NewId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

absl::Status Scheduler::LimitContext(Request& request) const {
  const uint64_t tokens = request.prompt.size() + ContextTokens(request);
  const uint64_t generated = request.max_tokens > 0 ? 1 : 0;  // at least
  if (tokens + generated > context_.options.max_context) {
    metrics_.CountRequest(Outcome::kRejectedSlots);
    return absl::ResourceExhaustedError(
        absl::StrCat("the context would have ", tokens + generated,
                     " tokens and --max-context allows ", context_.options.max_context,
                     "; begin another session, or start the server with a larger --max-context"));
  }
  request.max_tokens = static_cast<uint32_t>(
      std::min<uint64_t>(request.max_tokens, context_.options.max_context - tokens));
  return absl::OkStatus();
}

absl::Status Scheduler::CheckFits(const Request& request) const {
  const StateCapacity& capacity = engine_.capacity();
  const uint64_t context = ContextTokens(request);
  if (context + NewTokens(request) > context_.options.max_session_tokens) {
    metrics_.CountRequest(Outcome::kRejectedSlots);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request and its session hold ", context + NewTokens(request),
        " tokens and --max-session-tokens allows ", context_.options.max_session_tokens,
        " for all together (messages that a session remembers count as one for 4 bytes); send "
        "less, or start the server with a larger --max-session-tokens"));
  }
  if (WholeNeed(capacity, request, context).Within(capacity)) return absl::OkStatus();
  metrics_.CountRequest(Outcome::kRejectedSlots);
  if (request.completions > capacity.tail_slots) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "n = ", request.completions, " completions need as many state slots at once and there are ",
        capacity.tail_slots, "; ask for fewer, or start the server with a larger --state-memory"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      request.completions, " completions of up to ", LongestContext(request, context),
      " tokens need more pages of state than the server has; ask for fewer max_tokens, or start "
      "the server with a larger --state-context or --state-memory"));
}

absl::Status Scheduler::CheckQueue(const Tenant* tenant) const {
  if (!admitting_) {
    metrics_.CountRequest(Outcome::kRejectedDraining);
    return absl::UnavailableError("the server is shutting down; send the request elsewhere");
  }
  const uint32_t most = context_.options.max_queue;
  if (queued_ < most) return absl::OkStatus();
  // One tenant's requests do not keep out another's.
  const auto own = queued_of_.find(tenant);
  const uint32_t waiting = own == queued_of_.end() ? 0 : own->second;
  const bool others_wait = queued_of_.size() > (waiting == 0 ? 0u : 1u);
  if (others_wait && waiting < std::max(most / kTenantPart, 1u) && queued_ < 2 * most) {
    return absl::OkStatus();
  }
  metrics_.CountRequest(Outcome::kRejectedQueue);
  absl::Status full = absl::ResourceExhaustedError(
      absl::StrCat(queued_,
                   " requests wait for their first token already, as many as --max-queue "
                   "allows; try again later"));
  full.SetPayload(kRetryAfterPayload, absl::Cord(absl::StrCat(RetryAfter().count())));
  return full;
}

absl::Status Scheduler::CheckOpen(const Tenant* tenant) const {
  MutexLock lock(&mutex_);
  return CheckQueue(tenant);
}

std::chrono::milliseconds Scheduler::RetryAfter() const {
  const std::chrono::duration<double> wait(pace_.seconds() * queued_);
  return std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(wait), kShortestRetry,
                    kLongestRetry);
}

void Scheduler::NoteEnds(uint64_t ended, TimePoint now) {
  live_ -= ended;
  pace_.Note(ended, now, queued_ > 0);
}

absl::Status Scheduler::Submit(std::unique_ptr<Request>& request) {
  RIVULET_CHECK(request->completions > 0, "a request without rows");
  RIVULET_CHECK(!request->prompt.empty() || request->session.held(), "nothing to continue");
  RIVULET_CHECK(request->completions == 1 || request->kind == RequestKind::kGenerate,
                "scores several completions");
  MutexLock lock(&mutex_);
  RIVULET_RETURN_IF_ERROR(LimitContext(*request));
  RIVULET_RETURN_IF_ERROR(CheckFits(*request));
  RIVULET_RETURN_IF_ERROR(CheckQueue(request->tenant.get()));
  ++queued_of_[request->tenant.get()];
  request->outbox->set_on_room([this] { Wake(); });
  inbox_.requests.push_back(std::move(request));
  ++live_;
  ++queued_;
  Signal();
  return absl::OkStatus();
}

void Scheduler::Cancel(uint64_t id, bool stalled) {
  MutexLock lock(&mutex_);
  inbox_.cancels.push_back({id, stalled});
  Signal();
}

void Scheduler::ForgetPrefixesOf(std::string tenant) {
  MutexLock lock(&mutex_);
  inbox_.forgotten.push_back(std::move(tenant));
  Signal();
}

void Scheduler::StopAdmission() {
  MutexLock lock(&mutex_);
  admitting_ = false;
}

void Scheduler::AbortAll(absl::Status status) {
  MutexLock lock(&mutex_);
  inbox_.abort = std::move(status);
  Signal();
}

bool Scheduler::WaitUntilIdle(TimePoint deadline) {
  MutexLock lock(&mutex_);
  while (live_ > 0) {
    if (idle_.WaitUntil(&mutex_, deadline)) return live_ == 0;
  }
  return true;
}

void Scheduler::Wake() {
  MutexLock lock(&mutex_);
  Signal();
}

void Scheduler::Signal() {
  woken_ = true;
  changed_.NotifyOne();
}

void Scheduler::WaitForWork() {
  const TimePoint deadline = NextDeadline();
  MutexLock lock(&mutex_);
  while (!woken_) {
    if (deadline == kNoDeadline) {
      changed_.Wait(&mutex_);
    } else if (changed_.WaitUntil(&mutex_, deadline)) {
      return;
    }
  }
}

TimePoint Scheduler::NextDeadline() const {
  TimePoint next = sessions_.NextExpiry();
  for (const auto& request : waiting_) next = std::min(next, request->deadline);
  for (const auto& active : active_) next = std::min(next, active->deadline());
  return next;
}

Scheduler::Inbox Scheduler::TakeInbox() {
  MutexLock lock(&mutex_);
  // Before Plan looks at the outboxes: room that appears later then ends the next WaitForWork.
  woken_ = false;
  return std::exchange(inbox_, Inbox());
}

void Scheduler::ApplyInbox(Inbox inbox, TimePoint now) {
  for (const std::string& tenant : inbox.forgotten) prefixes_.Forget(tenant);
  for (const auto& request : inbox.requests) {
    named_tenants_ = named_tenants_ || !NameOfTenant(*request).empty();
  }
  waiting_.splice(waiting_.end(), inbox.requests);
  for (const Cancelled& cancelled : inbox.cancels) CancelNow(cancelled, now);
  if (inbox.abort.has_value()) AbortNow(*inbox.abort, now);
}

void Scheduler::CancelNow(const Cancelled& cancelled, TimePoint now) {
  const uint64_t id = cancelled.id;
  for (const auto& active : active_) {
    const Request& request = active->request();
    if (request.id != id) continue;
    if (cancelled.stalled) return active->End(FinishReason::kCancelled, StalledError(), now);
    const FinishReason reason =
        CancelledByDeadline(request, now) ? FinishReason::kDeadline : FinishReason::kCancelled;
    return active->End(reason, CancelStatus(request, now), now);
  }
  EndWaiting(now, [&](const Request& request) {
    return request.id == id ? CancelStatus(request, now) : absl::OkStatus();
  });
}

void Scheduler::AbortNow(const absl::Status& status, TimePoint now) {
  for (const auto& active : active_) {
    if (!active->ended()) active->End(FinishReason::kCancelled, status, now);
  }
  EndWaiting(now, [&](const Request&) { return status; });
}

void Scheduler::EndLateWaiting(TimePoint now) {
  EndWaiting(now, [now](const Request& request) {
    if (request.session.held() && request.session.lost()) {
      return absl::NotFoundError(
          "the session's state was lost in a failed step; create one and send the whole context");
    }
    if (request.deadline > now) return absl::OkStatus();
    return absl::DeadlineExceededError("the deadline passed while the request waited");
  });
}

void Scheduler::EndWaiting(TimePoint now, const std::function<absl::Status(const Request&)>& why) {
  for (auto request = waiting_.begin(); request != waiting_.end();) {
    absl::Status status = why(**request);
    if (status.ok()) {
      ++request;
      continue;
    }
    EndUnstarted(context_, **request, std::move(status), now);
    ++ended_;
    request = waiting_.erase(request);
  }
}

// All slots or pages belong to sessions whose turns wait behind the request that cannot be
// admitted.
void Scheduler::Refuse(const Request& refused, TimePoint now) {
  EndWaiting(now, [&](const Request& request) {
    if (&request != &refused) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "all ", engine_.capacity().tail_slots,
        " state slots, or the pages this needs, are held by sessions that wait for their turn "
        "(Score on a session takes a slot beside the session's own), or they hold as many tokens "
        "as "
        "--max-session-tokens allows; try again later, or start the server with a larger "
        "--state-memory"));
  });
}

void Scheduler::CollectRows(TimePoint now) {
  rows_.clear();
  views_.clear();
  for (const auto& active : active_) {
    if (!active->ended()) active->AppendRows(now, rows_, views_);
  }
}

std::vector<PlannedRow> Scheduler::Choose(TimePoint now) {
  draft_seconds_ = 0;
  for (;;) {
    Admit(now);
    CollectRows(now);
    StepChoice choice = PlanStep(now, views_, cost_, context_.options.limits);
    if (choice.expired.empty()) {
      ChooseDrafts(choice.run);
      return std::move(choice.run);
    }
    // Their slots must go to waiting requests in this step: there may be no other row left whose
    // end would start the next step.
    for (const size_t row : choice.expired) {
      ActiveRequest& request = *rows_[row].request;
      if (!request.ended()) request.EndLate(now);
    }
  }
}

// None beside prompts: those may take what time the step has, and the measurement of either would
// disturb the other's.
void Scheduler::ChooseDrafts(std::vector<PlannedRow>& chosen) {
  if (context_.options.drafts.source == nullptr || chosen.empty()) return;
  if (rows_[chosen.back().row].row == ActiveRequest::kPromptRow) return;
  const bool always = context_.options.drafts.always;
  const std::vector<DraftStanding> standings = Standings(chosen);
  if (!always && draft_choice_.Hopeless(standings)) return;
  std::vector<DraftProspect> prospects(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) {
    const RowInFlight& row = rows_[chosen[i].row];
    prospects[i] = row.request->Outlook(row.row);
    prospects[i].standing = standings[i];
  }
  const auto counts = always ? std::vector<uint32_t>() : draft_choice_.Choose(prospects);
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i].drafts = always ? static_cast<uint32_t>(prospects[i].count) : counts[i];
  }
  PrepareDrafts(chosen);
}

std::vector<DraftStanding> Scheduler::Standings(const std::vector<PlannedRow>& chosen) const {
  std::vector<DraftStanding> standings;
  standings.reserve(chosen.size());
  for (const PlannedRow& planned : chosen) {
    const RowInFlight& row = rows_[planned.row];
    standings.push_back(row.request->Standing(row.row));
  }
  return standings;
}

void Scheduler::FollowDrafts() {
  if (context_.options.drafts.source == nullptr || in_flight_.empty()) return;
  for (const RowInFlight& row : in_flight_.back().rows) {
    if (row.request != nullptr) row.request->FollowDrafts(row.row);
  }
}

void Scheduler::PrepareDrafts(const std::vector<PlannedRow>& chosen) {
  std::vector<DraftAsk> asks;
  for (const PlannedRow& planned : chosen) {
    const RowInFlight& row = rows_[planned.row];
    if (planned.drafts > 0) asks.push_back(row.request->AskFor(row.row, planned.drafts));
  }
  if (!asks.empty()) draft_seconds_ = context_.options.drafts.source->Prepare(asks);
}

Scheduler::StepInFlight Scheduler::FillPlan(const std::vector<PlannedRow>& chosen) {
  StepInFlight step;
  step.draft_seconds = draft_seconds_;
  plan_.tokens.clear();
  plan_.rows.clear();
  plan_.head_follows = context_.options.drafts.always || head_policy_.follows();
  FindBorderRoom(chosen);
  for (const PlannedRow& planned : chosen) {
    RowInFlight row = rows_[planned.row];
    if (!row.request->AddToPlan(row.row, planned, ++turn_, plan_).ok()) continue;
    const Segment& segment = plan_.rows.back().segment;
    row.position = segment.position;
    row.tokens = segment.tokens;
    row.drafts = segment.tokens - planned.tokens;
    step.rows.push_back(row);
    step.drafts += row.drafts;
    const bool is_prompt = row.row == ActiveRequest::kPromptRow;
    (is_prompt ? step.prompt_tokens : step.decode_rows) += planned.tokens;
  }
  if (step.decode_rows > 0) {
    metrics_.decode_batch_size.Observe(static_cast<double>(step.decode_rows));
  }
  return step;
}

const StepPlan& Scheduler::Plan(TimePoint now) {
  RIVULET_CHECK(in_flight_.size() < std::min(engine_.depth(), kMostInFlight), "planned too far");
  ApplyInbox(TakeInbox(), now);
  EndLateWaiting(now);
  sessions_.Reap();
  work_before_ = sessions_.work();
  StepInFlight step = FillPlan(Choose(now));
  if (!plan_.empty()) in_flight_.push_back(std::move(step));
  Settle(now);
  return plan_;
}

bool Scheduler::MayPlanAhead() const {
  const auto in_prompt = [](const auto& active) { return active->in_prompt(); };
  if (!waiting_.empty() || HasNews()) return false;
  if (std::any_of(active_.begin(), active_.end(), in_prompt)) return false;
  uint64_t folds = 0;
  for (const RowInFlight& row : in_flight_.back().rows) {
    if (row.request == nullptr) continue;
    const ActiveRequest::Following following = row.request->FollowingOf(row.row);
    if (following == ActiveRequest::Following::kWaits) return false;
    if (following == ActiveRequest::Following::kFolds) ++folds;
  }
  return engine_.states().bases().used() + folds <= engine_.capacity().base_slots;
}

bool Scheduler::HasNews() const {
  MutexLock lock(&mutex_);
  return !inbox_.requests.empty() || !inbox_.cancels.empty() || inbox_.abort.has_value();
}

void Scheduler::Commit(StepResult result, TimePoint now) {
  RIVULET_CHECK(!in_flight_.empty(), "commits a step that was not planned");
  StepInFlight& step = in_flight_.front();
  RIVULET_CHECK(result.rows.size() == step.rows.size(), "a result for each planned row");
  if (result.device_seconds > 0) metrics_.device_step_time.Observe(result.device_seconds);
  metrics_.graph_replays.Add(result.replays);
  for (size_t i = 0; i < step.rows.size(); ++i) {
    RowInFlight& row = step.rows[i];
    if (row.request == nullptr) continue;
    row.right_drafts = row.request->CommitRow(row, std::move(result.rows[i]), now);
    step.right_drafts += row.right_drafts;
  }
  Learn(step, result.device_seconds);
  LearnHead(step, result);
  in_flight_.pop_front();
  Settle(now);
}

void Scheduler::Learn(StepInFlight& step, double seconds) {
  if (step.prompt_tokens == 0) LearnDrafts(step, seconds);
  if (step.drafts == 0) cost_.Observe(step.decode_rows, step.prompt_tokens, seconds);
}

void Scheduler::LearnDrafts(StepInFlight& step, double seconds) {
  const std::optional<DraftLoss> loss = draft_choice_.Observe(
      {step.decode_rows, step.drafts, step.right_drafts, seconds, step.draft_seconds});
  if (context_.options.drafts.source == nullptr || !loss.has_value()) return;
  step.draft_loss = loss->lengthened + loss->read;
  for (const RowInFlight& row : step.rows) {
    if (row.request == nullptr) continue;
    row.request->NoteDraftLoss(row.row, *loss, row.right_drafts);
  }
}

void Scheduler::LearnHead(const StepInFlight& step, const StepResult& result) {
  const auto rows = static_cast<double>(std::max<size_t>(step.decode_rows, 1));
  head_policy_.NoteStep({.rows = step.decode_rows,
                         .alone = step.prompt_tokens == 0 && step.drafts == 0,
                         .followed = result.head_followed,
                         .seconds = result.device_seconds,
                         .saved = static_cast<double>(step.right_drafts) / rows - step.draft_loss});
}

// Each loop can be repeated from its beginning.
void Scheduler::OutOfMemory(TimePoint now) {
  in_flight_.clear();
  for (const auto& active : active_) active->Abort(no_memory_, now);
  std::erase(waiting_, nullptr);
  AbortNow(no_memory_, now);
  ForgetPrefixes();
  Settle(now);
}

void Scheduler::DeviceLost(absl::Status status, TimePoint now) {
  status.SetPayload(kDeviceLostPayload, absl::Cord());
  in_flight_.clear();
  for (const auto& active : active_) active->Abort(status, now);
  ForgetPrefixes();
  Settle(now);
  sessions_.LoseStates();
}

void Scheduler::ForgetPrefixes() {
  context_.left.clear();
  prefixes_.Clear();
}

void Scheduler::DropEnded() {
  const auto ended = [](const auto& active) { return active->ended(); };
  if (std::none_of(active_.begin(), active_.end(), ended)) return;
  for (StepInFlight& step : in_flight_) {
    for (RowInFlight& row : step.rows) {
      if (row.request != nullptr && row.request->ended()) row.request = nullptr;
    }
  }
  ended_ += std::erase_if(active_, ended);
}

void Scheduler::Settle(TimePoint now) {
  DropEnded();
  KeepLeftStates();
  std::map<const Tenant*, uint32_t> queued;
  size_t before_first_token = waiting_.size();
  for (const auto& request : waiting_) ++queued[request->tenant.get()];
  for (const auto& active : active_) {
    if (!active->in_prompt()) continue;
    ++before_first_token;
    ++queued[active->request().tenant.get()];
  }
  ShowGauges(before_first_token);
  {
    MutexLock lock(&mutex_);
    queued_ = static_cast<uint32_t>(before_first_token + inbox_.requests.size());
    for (const auto& request : inbox_.requests) ++queued[request->tenant.get()];
    queued_of_.swap(queued);
    NoteEnds(std::exchange(ended_, 0), now);
    if (live_ == 0) idle_.NotifyAll();
  }
  dispatcher_.Announce(context_.ready);
}

void Scheduler::ShowGauges(size_t before_first_token) {
  const StateCapacity& capacity = engine_.capacity();
  metrics_.requests_running.Set(static_cast<int64_t>(active_.size()));
  metrics_.requests_waiting.Set(static_cast<int64_t>(before_first_token));
  metrics_.state_slots_used.Set(engine_.states().tails().used());
  metrics_.state_bases_used.Set(engine_.states().bases().used());
  uint64_t bytes = engine_.states().bases().used() * capacity.base_bytes +
                   engine_.states().tails().used() * capacity.tail_bytes;
  double fullest = -1;
  for (size_t kind = 0; kind < capacity.pages.size(); ++kind) {
    const uint32_t used = engine_.states().pages(kind).used(), slots = capacity.pages[kind].slots;
    bytes += used * capacity.pages[kind].page_bytes;
    if (slots == 0 || static_cast<double>(used) / slots <= fullest) continue;
    fullest = static_cast<double>(used) / slots;
    metrics_.fullest_pages_used.Set(used);
    metrics_.fullest_pages_total.Set(slots);
  }
  metrics_.state_bytes.Set(static_cast<int64_t>(bytes));
}

}  // namespace rivulet
