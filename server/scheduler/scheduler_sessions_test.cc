// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Ten thousand turns over a thousand sessions leave nothing behind, whether all of them fit or most
// must make room for others.
#include <deque>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/engine/fake_run_ahead.h"
#include "server/log/log.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

constexpr size_t kSessions = 1000;
constexpr size_t kTurns = 10000;
constexpr size_t kAtOnce = 32;
constexpr uint32_t kEos = 3;

// A turn that runs.
struct Turn {
  Client client{1};
  std::string id;
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 0;
};

class ManySessions {
 public:
  // `depth`: steps that may be launched and not committed. `pages`: kinds of which there are enough
  // for as many sessions of 40 tokens.
  ManySessions(uint32_t slots, uint64_t seed, size_t depth, const std::vector<PageKind>& pages = {},
               size_t fold_interval = 16)
      : random_(seed),
        fake_(slots, pages, 40, fold_interval, ordered_.Make()),
        engine_(depth == 1 ? static_cast<Engine&>(fake_) : ahead_) {
    ordered_.set_before([this] { ahead_.RunLaunched(); });
    fake_.checks_folds = &engine_ == &fake_;
    SchedulerOptions options;
    options.eos_ids = {kEos};
    scheduler_ = std::make_unique<Scheduler>(engine_, sessions_, dispatcher_, metrics_, options);
  }

  void Run() {
    for (size_t started = 0; started < kTurns || !turns_.empty();) {
      while (turns_.size() < kAtOnce && started < kTurns) started += Start() ? 1 : 0;
      Step();
      std::erase_if(turns_, [this](const auto& turn) { return HasEnded(*turn); });
      if (testing::Test::HasFatalFailure()) return;
      most_slots_ = std::max(most_slots_, engine_.states().tails().used());
    }
    while (!launched_.empty()) Step();  // rows that were planned ahead and cancelled
  }

  void Step() {
    const StepPlan& plan = scheduler_->Plan(now_);
    if (!plan.empty()) launched_.push_back(engine_.Launch(plan));
    if (launched_.empty() || (!plan.empty() && launched_.size() < engine_.depth())) return;
    now_ += std::chrono::milliseconds(3);
    StepResult result = engine_.Await(launched_.front());
    launched_.pop_front();
    result.device_seconds = 0.003;
    scheduler_->Commit(std::move(result), now_);
  }

  // What is there is what the model says, and goes away with its sessions.
  void Finish() {
    ASSERT_EQ(engine_.states().tails().used(), sessions_.states());
    ASSERT_EQ(engine_.states().bases().used(), sessions_.states());
    for (size_t kind = 0; kind < engine_.capacity().pages.size(); ++kind) {
      ASSERT_EQ(engine_.states().pages(kind).used(), sessions_.idle_slots().pages[kind]);
    }
    for (const SessionInfo& info : sessions_.List("", kSessions + 1)) {
      ASSERT_EQ(info.tokens, contexts_.at(info.id).size());
      ASSERT_FALSE(info.busy);
      ASSERT_TRUE(sessions_.Delete(info.id).ok());
    }
    ASSERT_TRUE(scheduler_->Plan(now_).empty());
    ASSERT_EQ(engine_.states().tails().used(), 0u);
    ASSERT_EQ(engine_.states().bases().used(), 0u);
    for (size_t kind = 0; kind < engine_.capacity().pages.size(); ++kind) {
      ASSERT_EQ(engine_.states().pages(kind).used(), 0u);
    }
    ASSERT_EQ(sessions_.List("", SIZE_MAX).size(), 0u);
    ASSERT_EQ(metrics_.sessions.value(), 0);
    ASSERT_EQ(metrics_.state_slots_used.value(), 0);
    ASSERT_EQ(metrics_.requests_running.value(), 0);
    ASSERT_TRUE(scheduler_->WaitUntilIdle(TimePoint()));
  }

  uint64_t evicted() const {
    return metrics_.session_ends[static_cast<size_t>(SessionEnd::kEvicted)].value();
  }
  uint64_t computed() const { return metrics_.prompt_tokens_computed.value(); }
  uint32_t most_slots() const { return most_slots_; }
  uint64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  bool Start() {
    auto turn = std::make_unique<Turn>();
    turn->id = absl::StrCat("session-", Below(kSessions));
    auto lease = sessions_.LeaseForTurn(turn->id);
    if (absl::IsNotFound(lease.status())) {
      contexts_[turn->id].clear();
      EXPECT_TRUE(sessions_.Create(turn->id, "").ok());
      lease = sessions_.LeaseForTurn(turn->id);
    }
    if (!lease.ok()) return false;  // busy
    turn->prompt.resize(1 + Below(8));
    for (uint32_t& token : turn->prompt) token = static_cast<uint32_t>(Below(FakeEngine::kVocab));
    turn->max_tokens = static_cast<uint32_t>(Below(5));
    auto request = MakeRequest(turn->client, turn->prompt, turn->max_tokens);
    request->session = *std::move(lease);
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    prompt_tokens_ += turn->prompt.size();
    turns_.push_back(std::move(turn));
    return true;
  }

  bool HasEnded(Turn& turn) {
    turn.client.Read();
    if (!turn.client.end.has_value()) return false;
    EXPECT_EQ(turn.client.end, absl::OkStatus());
    std::vector<uint32_t>& context = contexts_[turn.id];
    const uint32_t cached = turn.client.received[0].usage.cached_tokens;
    EXPECT_EQ(cached, context.empty() ? 0 : context.size() - 1);
    context.insert(context.end(), turn.prompt.begin(), turn.prompt.end());
    std::vector<uint32_t> expected = ExpectedTokens(context, 0, turn.max_tokens);
    const auto eos = std::find(expected.begin(), expected.end(), kEos);
    if (eos != expected.end()) expected.erase(eos + 1, expected.end());
    EXPECT_EQ(turn.client.tokens(), expected);
    context.insert(context.end(), expected.begin(), expected.end());
    return true;
  }

  std::mt19937_64 random_;
  TimePoint now_ = TimePoint(std::chrono::seconds(1000));
  OrderedMemory ordered_;
  FakeEngine fake_;
  RunAheadEngine ahead_{fake_, /*lazy=*/true};
  Engine& engine_;
  std::deque<StepTicket> launched_;
  Dispatcher dispatcher_;
  Metrics metrics_;
  SessionTable sessions_{{.now = [this] { return now_; }}, metrics_};
  std::unique_ptr<Scheduler> scheduler_;
  std::map<std::string, std::vector<uint32_t>> contexts_;
  std::deque<std::unique_ptr<Turn>> turns_;
  uint64_t prompt_tokens_ = 0;
  uint32_t most_slots_ = 0;
};

class SchedulerSessionsTest : public testing::TestWithParam<size_t> {};

TEST_P(SchedulerSessionsTest, TenThousandTurnsOverAThousandSessionsLeakNothing) {
  SetLogLevel("warning");
  ManySessions many(kSessions + 1, TestSeed(), GetParam());
  many.Run();
  EXPECT_EQ(many.evicted(), 0u);
  EXPECT_GT(many.most_slots(), kSessions * 9 / 10);
  // Its own tokens and the one before them: two turns' worth of one token each at the most.
  EXPECT_LE(many.computed(), many.prompt_tokens() + kTurns);
  many.Finish();
}

// Slots for all, but pages for a part of them: sessions are dropped for their pages.
TEST_P(SchedulerSessionsTest, PagesForSomeSessionsLeakNothing) {
  SetLogLevel("warning");
  for (const size_t fold_interval : {16, 32}) {
    ManySessions many(kSessions + 1, TestSeed(), GetParam(),
                      {{PageRule::kFenwick, 6, 0}, {PageRule::kAppended, 0, 0}}, fold_interval);
    many.Run();
    EXPECT_GT(many.evicted(), kTurns / 100);
    many.Finish();
  }
}

TEST_P(SchedulerSessionsTest, SlotsForATenthOfTheSessionsLeakNothing) {
  SetLogLevel("warning");
  ManySessions many(kSessions / 10, TestSeed(), GetParam());
  many.Run();
  EXPECT_GT(many.evicted(), kTurns / 2);
  EXPECT_EQ(many.most_slots(), kSessions / 10);
  many.Finish();
}

INSTANTIATE_TEST_SUITE_P(Depths, SchedulerSessionsTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace rivulet
