// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Long random schedules against a model, with engines of depth 1 and 2. Each completion must get
// exactly the tokens that its context determines, end for the right reason, leave its session with
// the tokens that the model expects, and leave no slot behind. Time is virtual: each step advances
// it by a cost, so prompts are split as in a real run. RIVULET_TEST_SEED replays a run.
#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/engine/fake_run_ahead.h"
#include "server/log/log.h"
#include "server/scheduler/random_schedule_fixture.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr uint32_t kSlots = 6;
constexpr uint32_t kMaxQueue = 9;
constexpr size_t kSessionIds = 9;
constexpr size_t kMaxSessions = 8;
constexpr seconds kTimeToLive{60};
constexpr seconds kStallLimit{40};

// A schedule of one seed.
struct Variant {
  size_t fold_interval;
  size_t depth;         // steps that may be launched and not committed
  bool rewrites_pages;  // has pages whose folds cannot run ahead
  uint32_t eos_ids;     // of a hundred tokens
  bool drafts;
};

std::vector<PageKind> Kinds(const Variant& variant) {
  std::vector<PageKind> kinds = {{PageRule::kFenwick, 7, 0}};
  if (variant.rewrites_pages) kinds.push_back({PageRule::kRewrittenFenwick, 7, 0});
  kinds.push_back({PageRule::kAppended, 0, 0});
  kinds.push_back({PageRule::kAppended, 0, 400});
  return kinds;
}

struct Launched {
  StepTicket ticket;
  Clock::duration cost;
};

class RandomSchedule {
 public:
  RandomSchedule(uint64_t seed, const Variant& variant)
      : random_(seed),
        oracle_(seed),
        eos_ids_(variant.eos_ids),
        interval_(variant.fold_interval),
        fake_(kSlots, Kinds(variant), 100000, interval_, ordered_.Make()),
        engine_(variant.depth == 1 ? static_cast<Engine&>(fake_) : ahead_) {
    ordered_.set_before([this] { ahead_.RunLaunched(); });
    fake_.checks_folds = &engine_ == &fake_;
    SchedulerOptions options;
    options.max_queue = kMaxQueue;
    options.stall_limit = kStallLimit;
    for (uint32_t i = 0; i < variant.eos_ids; ++i) options.eos_ids.push_back(kEos + i);
    options.limits.max_prompt_tokens = static_cast<uint32_t>(1 + Below(80));
    if (variant.drafts) options.drafts.source = &oracle_;
    options.drafts.always = Below(2) == 0;
    one_completion_each_ = Below(2) == 0;
    rows_fail_ = Below(2) == 0;
    fake_.fail_row = [this](const StepRow&) {
      const bool fails = rows_fail_ && Below(400) == 0;
      return fails ? absl::InternalError("injected") : absl::OkStatus();
    };
    scheduler_ = std::make_unique<Scheduler>(engine_, sessions_, dispatcher_, metrics_, options);
  }

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      Operate();
      now_ += microseconds(1);
    }
    if (!testing::Test::HasFatalFailure()) Drain();
  }

  const RunAheadEngine& ahead() const { return ahead_; }
  uint64_t accepted_drafts() const {
    return metrics_.accepted_draft_tokens[static_cast<size_t>(DraftSource::kModel)].value();
  }
  uint64_t ended(SessionEnd why) const {
    return metrics_.session_ends[static_cast<size_t>(why)].value();
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  Modelled& Any() { return requests_[Below(requests_.size())]; }
  std::string AnyId() { return std::string(1, static_cast<char>('a' + Below(kSessionIds))); }

  void Operate() {
    const uint64_t what = Below(40);
    if (what < 3) return SubmitAlone();
    if (what < 7) return SubmitTurn();
    if (what == 7) return SubmitScore();
    if (what < 10) return Create();
    if (what == 10 && Below(3) == 0) return Delete(AnyId());
    if (what == 11) return HoldLease();
    if (what == 12) return ReleaseLease();
    if (requests_.empty()) return;
    if (what == 13) return Cancel(Any());
    if (what == 14) return void(now_ += seconds(Below(20)));
    if (what == 15) return void(Any().reads = Below(2) == 0);
    if (what < 22) {
      Modelled& request = Any();
      if (request.reads) Read(request);
      return;
    }
    Step();
  }

  // ---- Sessions.

  void Create() {
    const std::string id = AnyId();
    const bool full = model_.size() >= kMaxSessions;
    const size_t unused = CountUnused();
    const absl::Status status = sessions_.Create(id, "name").status();
    if (model_.contains(id)) {
      ASSERT_TRUE(absl::IsAlreadyExists(status)) << status;
    } else if (full && unused == 0) {
      ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    } else {
      ASSERT_TRUE(status.ok()) << status;
      const size_t gone = std::erase_if(
          model_, [&](const auto& entry) { return !sessions_.Get(entry.first).ok(); });
      ASSERT_EQ(gone, full ? 1u : 0u);
      ASSERT_EQ(CountUnused(), unused + 1 - gone) << "one that was never used makes room";
      model_[id].last_used = now_;
    }
  }

  // Sessions that are idle and hold nothing.
  size_t CountUnused() const {
    size_t unused = 0;
    for (const SessionInfo& session : sessions_.List("", kMaxSessions)) {
      unused += !session.busy && !session.holds_state;
    }
    return unused;
  }

  void Delete(const std::string& id) {
    const absl::Status status = sessions_.Delete(id);
    const auto found = model_.find(id);
    if (found == model_.end()) {
      ASSERT_TRUE(absl::IsNotFound(status)) << status;
    } else if (found->second.busy()) {
      ASSERT_TRUE(absl::IsAborted(status)) << status;
    } else {
      ASSERT_TRUE(status.ok()) << status;
      idle_.remove(id);
      model_.erase(found);
    }
  }

  // A lease as the model says, or none.
  SessionLease Lease(const std::string& id, bool exclusive) {
    auto lease = exclusive ? sessions_.LeaseForTurn(id) : sessions_.LeaseForReading(id);
    const auto found = model_.find(id);
    absl::StatusCode expected = absl::StatusCode::kOk;
    if (found == model_.end()) {
      expected = absl::StatusCode::kNotFound;
    } else if (found->second.in_turn && !(lease.ok() && EndedUnstarted(id, found->second))) {
      expected = absl::StatusCode::kAborted;
    }
    EXPECT_EQ(lease.status().code(), expected) << lease.status();
    if (!lease.ok()) return SessionLease();
    EXPECT_EQ(lease->tokens(), found->second.tokens.size());
    (exclusive ? found->second.in_turn : found->second.reading) = true;
    idle_.remove(id);
    return *std::move(lease);
  }

  // A turn that waits for readers may end before it begins, which shows only when the next lease of
  // its session is granted.
  bool EndedUnstarted(const std::string& id, ModelSession& session) {
    if (!session.reading) return false;
    for (const auto& [held, lease] : held_) {
      if (lease.exclusive() && held == id) return false;
    }
    for (Modelled& request : requests_) {
      if (!request.is_turn || request.session != id || request.left) continue;
      if (!request.cancelled && request.deadline > now_) return false;
      request.left = -1;
    }
    session.in_turn = false;
    return true;
  }

  // As a front thread does that checks its message for a long time and then refuses it.
  void HoldLease() {
    const bool exclusive = Below(2) == 0;
    const std::string id = AnyId();
    SessionLease lease = Lease(id, exclusive);
    if (lease.held()) held_.emplace_back(id, std::move(lease));
  }

  void ReleaseLease() {
    if (held_.empty()) return;
    const size_t which = Below(held_.size());
    const std::string id = held_[which].first;
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(which));
    NoteReturns();
    ASSERT_TRUE(model_.contains(id));
  }

  // Sessions that are no longer busy become idle in the model.
  void NoteReturns() {
    for (auto& [id, session] : model_) {
      if (!session.busy()) continue;
      const auto info = sessions_.Get(id);
      if (info.ok() && !info->busy) BecomeIdle(id, session);
    }
  }

  void BecomeIdle(const std::string& id, ModelSession& session) {
    for (Modelled& request : requests_) {
      if (session.in_turn && request.is_turn && request.session == id && !request.left) {
        LookAtWhatTheTurnLeft(request, session);
      }
    }
    session.in_turn = session.reading = false;
    session.last_used = now_;
    // Several may have come back in one step: this reading puts them into the model's order.
    sessions_.LeaseForReading(id)->Release();
    if (session.holds_state) idle_.push_back(id);
  }

  void LookAtWhatTheTurnLeft(Modelled& request, ModelSession& session) {
    const auto lease = sessions_.LeaseForReading(request.session);
    ASSERT_TRUE(lease.ok()) << lease.status();
    if (lease->state() == nullptr) {
      ASSERT_FALSE(session.holds_state);
      request.left = -1;
      return;
    }
    const std::vector<uint32_t> tokens = lease->state()->tokens().Copy();
    ASSERT_EQ(lease->tokens(), tokens.size());
    if (session.holds_state && tokens == request.context) {
      request.left = -1;
    } else {
      std::vector<uint32_t> whole = request.Whole();
      ASSERT_GE(tokens.size(), whole.size());
      request.left = static_cast<int>(tokens.size() - whole.size());
      const std::vector<uint32_t> full = request.Full(0);
      ASSERT_LE(static_cast<size_t>(*request.left), full.size());
      whole.insert(whole.end(), full.begin(), full.begin() + *request.left);
      ASSERT_EQ(tokens, whole);
    }
    ASSERT_GT(lease->state()->pending(), 0u) << "a turn without prompt could not begin";
    session.tokens = tokens;
    session.holds_state = true;
    session.cached_least = session.cached_most = lease->state()->position();
    if (*request.left > 0) {
      ASSERT_EQ(session.cached_most, tokens.size() - 1);
    }
  }

  // After each Plan and Commit: what left the table, and whether it was right to leave.
  void FollowSessions(bool planned) {
    std::set<std::string> evicted;
    const std::vector<std::string> idle(idle_.begin(), idle_.end());
    std::vector<std::string> candidates;
    for (const std::string& id : idle) {
      if (!planned || model_[id].last_used + kTimeToLive > now_) candidates.push_back(id);
    }
    for (auto next = model_.begin(); next != model_.end();) {
      const auto info = sessions_.Get(next->first);
      if (info.ok()) {
        const ModelSession& session = next->second;
        const bool expired = planned && !session.busy() && session.last_used + kTimeToLive <= now_;
        ASSERT_FALSE(expired) << "idle for too long";
        ++next;
      } else {
        CheckGone(next->first, next->second, info.status().message(), planned, evicted);
        idle_.remove(next->first);
        next = model_.erase(next);
      }
    }
    CheckEvicted(evicted, candidates);
    NoteReturns();
    ASSERT_EQ(metrics_.sessions.value(), static_cast<int64_t>(model_.size()));
    ASSERT_EQ(sessions_.List("", SIZE_MAX).size(), model_.size());
    ASSERT_EQ(sessions_.idle_states(), idle_.size());
  }

  void CheckGone(const std::string& id, const ModelSession& session, absl::string_view why,
                 bool planned, std::set<std::string>& evicted) {
    const std::string reason(why);
    if (reason.find("--session-ttl") != std::string::npos) {
      ASSERT_TRUE(planned && !session.busy() && session.last_used + kTimeToLive <= now_) << why;
    } else if (reason.find("--state-memory") != std::string::npos) {
      ASSERT_TRUE(planned);
      evicted.insert(id);
    } else {
      ASSERT_THAT(reason, HasSubstr("failed step"));
      ASSERT_TRUE(session.in_turn && !planned);
    }
    for (Modelled& request : requests_) {
      if (request.is_turn && request.session == id && !request.left) request.left = -2;
    }
  }

  // The least recently used went first, and only if a request was admitted in its place.
  void CheckEvicted(const std::set<std::string>& evicted, const std::vector<std::string>& idle) {
    if (evicted.empty()) return;
    size_t first = 0;
    while (first < idle.size() && evicted.contains(idle[first])) ++first;
    for (size_t i = first; i < idle.size(); ++i) ASSERT_FALSE(evicted.contains(idle[i]));
    // The others became idle in this very plan, so all before them went.
    if (evicted.size() > first) {
      ASSERT_EQ(first, idle.size());
    }
    ASSERT_GT(Admitted(), admitted_before_) << "evicted, and no request was admitted";
  }

  uint64_t Admitted() const {
    uint64_t count = 0;
    const Histogram& histogram = metrics_.request_queue_time;
    for (size_t i = 0; i <= histogram.upper_bounds().size(); ++i) count += histogram.count(i);
    return count;
  }

  uint32_t TailsUsed() const { return fake_.states().tails().used(); }
  uint32_t BasesUsed() const { return fake_.states().bases().used(); }
  // Requests that hold slots, and those that have not come to their first token.
  size_t Running() const { return static_cast<size_t>(metrics_.requests_running.value()); }
  size_t Queued() const { return static_cast<size_t>(metrics_.requests_waiting.value()); }

  // ---- Requests.

  std::vector<uint32_t> RandomPrompt(size_t least, size_t most) {
    std::vector<uint32_t> prompt(least + Below(most - least + 1));
    for (uint32_t& token : prompt) token = static_cast<uint32_t>(Below(FakeEngine::kVocab));
    return prompt;
  }

  void SubmitAlone() {
    const uint64_t more = one_completion_each_ ? 0 : (Below(3) == 0) * Below(kSlots + 1);
    Modelled& model = requests_.emplace_back(static_cast<uint32_t>(1 + more));
    model.prompt = RandomPrompt(1, Below(8) == 0 ? 1 : 120);
    Submit(model, SessionLease());
  }

  void SubmitTurn() {
    const std::string id = AnyId();
    SessionLease lease = Lease(id, true);
    if (!lease.held()) return;
    Modelled& model = NewOnSession(id);
    model.is_turn = true;
    model.prompt = RandomPrompt(model.context.empty() ? 1 : 0, Below(3) == 0 ? 2 : 60);
    Submit(model, std::move(lease));
  }

  void SubmitScore() {
    const std::string id = AnyId();
    SessionLease lease = Lease(id, false);
    if (!lease.held()) return;
    Modelled& model = NewOnSession(id);
    model.prompt = RandomPrompt(1, 60);
    model.scored = true;
    Submit(model, std::move(lease));
  }

  Modelled& NewOnSession(const std::string& id) {
    Modelled& model = requests_.emplace_back(1);
    model.session = id;
    const ModelSession& session = model_.at(id);
    model.context = session.tokens;
    model.cached_least = session.cached_least;
    model.cached_most = session.cached_most;
    return model;
  }

  void Submit(Modelled& model, SessionLease lease) {
    const bool scores_only = lease.held() && !lease.exclusive();
    model.eos_ids = eos_ids_;
    model.max_tokens = scores_only || Below(6) == 0 ? 0 : static_cast<uint32_t>(Below(60));
    model.min_tokens = static_cast<uint32_t>(Below(2) * Below(10));
    model.scored = scores_only || Below(4) == 0;
    if (Below(5) == 0) model.deadline = now_ + seconds(Below(100));
    auto request = MakeRequest(model.client, model.prompt, model.max_tokens);
    model.id = request->id;
    request->session = std::move(lease);
    request->stop.min_tokens = model.min_tokens;
    request->score_prompt = model.scored;
    request->deadline = model.deadline;
    request->arrival = now_;
    const bool fits = model.client.received.size() <= kSlots;
    const absl::Status status = scheduler_->Submit(request);
    ASSERT_EQ(status.ok(), fits && queued_ < kMaxQueue) << status;
    ASSERT_EQ(request == nullptr, status.ok()) << "the caller keeps what was refused";
    if (status.ok()) {
      ++queued_;
      return;
    }
    request.reset();
    requests_.pop_back();
    NoteReturns();
  }

  void Cancel(Modelled& model) {
    scheduler_->Cancel(model.id);
    model.cancelled = true;
  }

  // ---- Steps.

  // However far the engine runs ahead, no more tokens wait than the outbox holds and a step adds.
  void Read(Modelled& request) {
    const auto count = [&] {
      size_t tokens = 0;
      for (const Received& received : request.client.received) tokens += received.tokens.size();
      return tokens;
    };
    const size_t before = count();
    request.client.Read();
    ASSERT_LE(count() - before, kCapacity + request.client.received.size() - 1);
  }

  void Step() {
    admitted_before_ = Admitted();
    const StepPlan& plan = scheduler_->Plan(now_);
    queued_ = Queued();
    CheckPlan(plan);
    FollowSessions(/*planned=*/true);
    CheckSlots();
    if (plan.empty() && launched_.empty()) return CheckNoneHangs();
    if (!plan.empty()) {
      launched_.push_back({engine_.Launch(plan), Cost(plan)});
      if (Below(2) == 0) scheduler_->FollowDrafts();
      if (launched_.size() < engine_.depth() && Below(5) > 0) return;
    }
    CommitOldest();
  }

  void CommitOldest() {
    StepResult result = engine_.Await(launched_.front().ticket);
    const Clock::duration cost = launched_.front().cost;
    launched_.pop_front();
    result.device_seconds = std::chrono::duration<double>(cost).count();
    now_ += cost;
    scheduler_->Commit(std::move(result), now_);
    queued_ = Queued();
    FollowSessions(/*planned=*/false);
    CheckSlots();
    if (Below(2) == 0) scheduler_->FollowDrafts();
    // Without a planned fold, no session holds two bases.
    if (launched_.empty()) {
      ASSERT_LE(BasesUsed(), TailsUsed());
    }
  }

  // 5 ms, 0.2 ms a token, some noise, and a preemption now and then.
  Clock::duration Cost(const StepPlan& plan) {
    const double noise = 0.9 + 0.2 * static_cast<double>(Below(1000)) / 1000;
    const double outlier = Below(200) == 0 ? 20 : 1;
    const double ms = (5 + 0.2 * static_cast<double>(plan.tokens.size())) * noise * outlier;
    return duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  }

  // Every row must belong to another tail, and no base may be written by two.
  void CheckPlan(const StepPlan& plan) {
    std::set<uint32_t> tails, written;
    for (const StepRow& row : plan.rows) {
      ASSERT_TRUE(tails.insert(row.segment.tail).second);
      if (Folds(row.segment.position, row.segment.tokens, interval_)) {
        ASSERT_TRUE(written.insert(row.segment.base_out).second);
      }
    }
    ASSERT_LE(Queued(), kMaxQueue);
  }

  // Only sessions in the table and rows of requests hold slots.
  void CheckSlots() {
    ASSERT_LE(TailsUsed(), kSlots);
    ASSERT_EQ(metrics_.state_slots_used.value(), TailsUsed());
    const size_t rows = TailsUsed() - sessions_.states();
    ASSERT_GE(rows, Running());
    if (one_completion_each_) {
      ASSERT_EQ(rows, Running());
    }
  }

  // Nothing runs: then every request that holds slots waits for its reader, and a request waits for
  // slots only if there is such a request or a lease that will be released.
  void CheckNoneHangs() {
    size_t parked = 0;
    for (const Modelled& request : requests_) parked += request.client.outbox->full();
    ASSERT_GE(parked, Running());
    if (Running() == 0 && held_.empty()) {
      ASSERT_EQ(Queued(), 0u);
    }
  }

  // All clients read; every request that was taken must end, and then nothing is left.
  void Drain() {
    held_.clear();
    NoteReturns();
    for (Modelled& request : requests_) request.reads = true;
    for (int i = 0; i < 100000 && !scheduler_->WaitUntilIdle(TimePoint()); ++i) {
      Step();
      if (testing::Test::HasFatalFailure()) return;
      for (Modelled& request : requests_) request.client.Read();
    }
    uint64_t lost = 0;
    for (Modelled& request : requests_) {
      request.client.Read();
      CheckEnded(request);
      if (testing::Test::HasFatalFailure()) return;
      lost += request.is_turn && absl::IsInternal(*request.client.end);
    }
    ASSERT_EQ(ended(SessionEnd::kFailed), lost);
    while (!launched_.empty()) CommitOldest();  // rows that were planned ahead and cancelled
    while (!model_.empty()) Delete(std::string(model_.begin()->first));
    ASSERT_TRUE(scheduler_->Plan(now_).empty());
    ExpectNothingIsLeft();
  }

  void ExpectNothingIsLeft() {
    ASSERT_EQ(TailsUsed(), 0u);
    ASSERT_EQ(BasesUsed(), 0u);
    ASSERT_EQ(sessions_.List("", SIZE_MAX).size(), 0u);
    ASSERT_EQ(sessions_.states(), 0u);
    ASSERT_EQ(sessions_.idle_states(), 0u);
    ASSERT_EQ(sessions_.NextExpiry(), TimePoint::max());
    ASSERT_EQ(metrics_.requests_running.value(), 0);
    ASSERT_EQ(metrics_.requests_waiting.value(), 0);
    ASSERT_EQ(metrics_.state_slots_used.value(), 0);
    ASSERT_EQ(metrics_.state_bytes.value(), 0);
    ASSERT_EQ(metrics_.sessions.value(), 0);
  }

  void CheckEnded(const Modelled& model) {
    ASSERT_TRUE(model.client.end.has_value()) << "every stream ends";
    const absl::Status& end = *model.client.end;
    const bool began = model.client.received[0].reason != FinishReason::kNone;
    switch (end.code()) {
      case absl::StatusCode::kOk:
        break;
      case absl::StatusCode::kCancelled:
        ASSERT_TRUE(model.cancelled || end.message().find("--stalled") != absl::string_view::npos);
        break;
      case absl::StatusCode::kDeadlineExceeded:
        ASSERT_LE(model.deadline, now_);
        break;
      case absl::StatusCode::kResourceExhausted:
        ASSERT_THAT(std::string(end.message()), HasSubstr("--state-memory"));
        ASSERT_FALSE(began);
        break;
      default:
        ASSERT_TRUE(rows_fail_ && absl::IsInternal(end)) << end;
    }
    for (uint32_t i = 0; i < model.client.received.size(); ++i) {
      CheckCompletion(model, i, end.ok());
    }
    CheckScores(model, end.ok());
    if (model.is_turn) CheckTurn(model, end, began);
  }

  void CheckTurn(const Modelled& model, const absl::Status& end, bool began) {
    ASSERT_TRUE(model.left.has_value()) << "its session is still busy";
    // Who was evicted or expired since then shows no longer what it held.
    if (absl::IsInternal(end)) {
      ASSERT_EQ(*model.left, -2);
    } else if (*model.left != -2) {
      const int generated = static_cast<int>(model.client.received[0].usage.completion_tokens);
      const bool as_before = !began || (model.prompt.empty() && generated == 0);
      ASSERT_EQ(*model.left, as_before ? -1 : generated) << end;
    }
    if (!began) return;
    ASSERT_GE(model.client.received[0].usage.cached_tokens, model.cached_least);
    ASSERT_LE(model.client.received[0].usage.cached_tokens, model.cached_most);
  }

  void CheckScores(const Modelled& model, bool complete) {
    const std::vector<Logprobs>& given = model.client.received[0].prompt_logprobs;
    if (!model.scored) {
      ASSERT_TRUE(given.empty());
    } else if (complete) {
      std::vector<float> scores;
      for (const Logprobs& logprob : given) scores.push_back(logprob.chosen.logprob);
      ASSERT_EQ(scores, model.Scores());
    }
  }

  void CheckCompletion(const Modelled& model, uint32_t index, bool complete) {
    const Received& received = model.client.received[index];
    const std::vector<uint32_t> full = model.Full(index);
    ASSERT_LE(received.tokens.size(), full.size());
    ASSERT_TRUE(std::equal(received.tokens.begin(), received.tokens.end(), full.begin()))
        << "request " << model.id << " completion " << index;
    if (!complete) return;
    ASSERT_EQ(received.tokens.size(), full.size());
    ASSERT_EQ(received.usage.completion_tokens, full.size());
    ASSERT_EQ(received.usage.prompt_tokens, model.prompt.size());
    const bool eos = full.size() > model.min_tokens && model.IsEos(full.back());
    ASSERT_EQ(received.reason, eos ? FinishReason::kEos : FinishReason::kLength);
  }

  std::mt19937_64 random_;
  FakeOracleSource oracle_;
  TimePoint now_ = TimePoint(seconds(1000));
  const uint32_t eos_ids_;
  const size_t interval_;
  // Pages enough for any of the contexts here, so that only slots run out.
  OrderedMemory ordered_;
  FakeEngine fake_;
  RunAheadEngine ahead_{fake_, /*lazy=*/true};
  Engine& engine_;
  std::deque<Launched> launched_;
  Dispatcher dispatcher_;
  Metrics metrics_;
  SessionTable sessions_{
      {.time_to_live = kTimeToLive, .max_sessions = kMaxSessions, .now = [this] { return now_; }},
      metrics_};
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Modelled> requests_;
  std::map<std::string, ModelSession> model_;
  std::list<std::string> idle_;  // that hold state, the least recently used first
  std::vector<std::pair<std::string, SessionLease>> held_;
  size_t queued_ = 0;
  uint64_t admitted_before_ = 0;
  bool one_completion_each_ = false;
  bool rows_fail_ = false;
};

class SchedulerRandomTest : public testing::TestWithParam<size_t> {};

TEST_P(SchedulerRandomTest, EveryScheduleGivesWhatItsModelSays) {
  SetLogLevel("warning");
  const uint64_t seed = TestSeed();
  std::array<uint64_t, kSessionEnds> ended = {};
  uint64_t promised_rows = 0, accepted_drafts = 0;
  for (uint64_t run = 0; run < 200 && !testing::Test::HasFatalFailure(); ++run) {
    SCOPED_TRACE(run);
    const bool rewrites_pages = GetParam() == 1 || run % 4 < 2;
    // Many stops, so that many steps that were planned ahead are cancelled.
    const uint32_t eos_ids = GetParam() == 2 && run % 3 > 0 ? 12 : 1;
    RandomSchedule schedule(seed + run,
                            {run % 2 == 0 ? 16u : 32u, GetParam(), rewrites_pages, eos_ids,
                             /*drafts=*/run % 5 < 2});
    schedule.Run(2000);
    promised_rows += schedule.ahead().promised_rows;
    accepted_drafts += schedule.accepted_drafts();
    for (size_t why = 0; why < kSessionEnds; ++why) {
      ended[why] += schedule.ended(static_cast<SessionEnd>(why));
    }
  }
  // The schedules have one tenant, which stays; session_table_test has some that leave.
  uint64_t& left = ended[static_cast<size_t>(SessionEnd::kTenantLeft)];
  EXPECT_EQ(std::exchange(left, UINT64_MAX), 0u);
  for (const uint64_t count : ended) EXPECT_GT(count, 10u) << "the schedules have become too tame";
  EXPECT_GT(accepted_drafts, 10000u);
  EXPECT_EQ(promised_rows > 10000, GetParam() == 2) << promised_rows << " rows ran ahead";
}

INSTANTIATE_TEST_SUITE_P(Depths, SchedulerRandomTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace rivulet
