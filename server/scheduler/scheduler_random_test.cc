// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Long random schedules against a model: whatever comes in, in whatever order, each completion must
// get exactly the tokens that its prompt alone determines, end for the right reason, and leave no
// slot behind. RIVULET_TEST_SEED replays a run.
#include <deque>
#include <random>
#include <set>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

using std::chrono::seconds;

constexpr uint32_t kEos = 3;  // one token in a hundred
constexpr uint32_t kSlots = 6;
constexpr uint32_t kMaxQueue = 5;
constexpr size_t kCapacity = 8;

// What the test knows of a request.
struct Modelled {
  Modelled(uint32_t completions) : client(completions, kCapacity) {}
  Client client;
  uint64_t id = 0;
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 0;
  uint32_t min_tokens = 0;
  bool scored = false;
  bool cancelled = false;
  TimePoint deadline = kNoDeadline;
  bool reads = true;

  // The whole completion if nothing ends it early, by the rules of the API.
  std::vector<uint32_t> Full(uint32_t index) const {
    std::vector<uint32_t> tokens = ExpectedTokens(prompt, index, max_tokens);
    for (size_t i = min_tokens; i < tokens.size(); ++i) {
      if (tokens[i] == kEos) tokens.resize(i + 1);
    }
    return tokens;
  }
};

class RandomSchedule {
 public:
  explicit RandomSchedule(uint64_t seed) : random_(seed) {
    SchedulerOptions options;
    options.max_queue = kMaxQueue;
    options.stall_limit = std::chrono::hours(1000);
    options.eos_ids = {kEos};
    options.limits.max_prompt_tokens = static_cast<uint32_t>(1 + Below(80));
    scheduler_ = std::make_unique<Scheduler>(engine_, sessions_, dispatcher_, metrics_, options);
  }

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) Operate();
    Drain();
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  Modelled& Any() { return requests_[Below(requests_.size())]; }

  void Operate() {
    const uint64_t what = Below(20);
    if (what < 3 || requests_.empty()) return Submit();
    if (what == 3) return Cancel(Any());
    if (what == 4) return void(now_ += seconds(Below(20)));
    if (what == 5) return void(Any().reads = Below(2) == 0);
    if (what < 9) {
      Modelled& request = Any();
      if (request.reads) request.client.Read();
      return;
    }
    Step();
  }

  void Submit() {
    Modelled& model =
        requests_.emplace_back(static_cast<uint32_t>(1 + (Below(3) == 0) * Below(kSlots + 1)));
    for (uint64_t i = 1 + Below(120); i > 0; --i) {
      model.prompt.push_back(static_cast<uint32_t>(Below(FakeEngine::kVocab)));
    }
    if (Below(8) == 0) model.prompt.resize(1);
    model.max_tokens = static_cast<uint32_t>(Below(6) == 0 ? 0 : Below(60));
    model.min_tokens = static_cast<uint32_t>(Below(2) * Below(10));
    model.scored = Below(4) == 0;
    if (Below(5) == 0) model.deadline = now_ + seconds(Below(100));
    auto request = MakeRequest(model.client, model.prompt, model.max_tokens);
    model.id = request->id;
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
    } else {
      requests_.pop_back();
    }
  }

  void Cancel(Modelled& model) {
    scheduler_->Cancel(model.id);
    model.cancelled = true;
  }

  void Step() {
    const StepPlan& plan = scheduler_->Plan(now_);
    queued_ = scheduler_->waiting();
    CheckPlan(plan);
    if (plan.empty()) return;
    scheduler_->Commit(engine_.Step(plan), now_);
  }

  // Every row must belong to another tail, and no checkpoint may be written by two.
  void CheckPlan(const StepPlan& plan) {
    std::set<uint32_t> tails, written;
    for (const StepRow& row : plan.rows) {
      ASSERT_TRUE(tails.insert(row.segment.tail).second);
      if (Folds(row.segment.position, row.segment.tokens)) {
        ASSERT_TRUE(written.insert(row.segment.checkpoint_out).second);
      }
    }
    ASSERT_LE(scheduler_->waiting(), kMaxQueue);
  }

  // Everybody reads; whatever was taken must end.
  void Drain() {
    for (Modelled& request : requests_) request.reads = true;
    for (int i = 0; i < 100000 && !scheduler_->WaitUntilIdle(TimePoint()); ++i) {
      Step();
      for (Modelled& request : requests_) request.client.Read();
    }
    for (Modelled& request : requests_) {
      request.client.Read();
      CheckEnded(request);
    }
    ASSERT_EQ(engine_.tails_used(), 0u);
    ASSERT_EQ(engine_.checkpoints_used(), 0u);
    ASSERT_EQ(metrics_.requests_running.value(), 0);
  }

  void CheckEnded(const Modelled& model) {
    ASSERT_TRUE(model.client.end.has_value()) << "every stream ends";
    const absl::StatusCode code = model.client.end->code();
    if (code == absl::StatusCode::kCancelled) {
      ASSERT_TRUE(model.cancelled);
    } else if (code == absl::StatusCode::kDeadlineExceeded) {
      ASSERT_LE(model.deadline, now_);
    } else {
      ASSERT_EQ(code, absl::StatusCode::kOk);
    }
    for (uint32_t i = 0; i < model.client.received.size(); ++i) {
      CheckCompletion(model, i, code == absl::StatusCode::kOk);
    }
    const bool all_scores = model.client.received[0].prompt_logprobs == model.prompt.size() - 1;
    if (code == absl::StatusCode::kOk) {
      ASSERT_EQ(all_scores || !model.scored, true);
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
    const bool eos = full.size() > model.min_tokens && full.back() == kEos;
    ASSERT_EQ(received.reason, eos ? FinishReason::kEos : FinishReason::kLength);
  }

  std::mt19937_64 random_;
  TimePoint now_ = TimePoint(seconds(1000));
  FakeEngine engine_{kSlots};
  Dispatcher dispatcher_;
  Metrics metrics_;
  SessionTable sessions_{{.now = [this] { return now_; }}, metrics_};
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Modelled> requests_;
  size_t queued_ = 0;
};

TEST(SchedulerRandomTest, EveryScheduleGivesTheSameTokens) {
  const uint64_t seed = RandomTestSeed();
  for (uint64_t run = 0; run < 40 && !testing::Test::HasFatalFailure(); ++run) {
    SCOPED_TRACE(run);
    RandomSchedule(seed + run).Run(1500);
  }
}

}  // namespace
}  // namespace rivulet
