// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything below rpc with all its threads: submitters, engine, dispatcher, readers. Run it under
// ThreadSanitizer (the tsan preset).
#include "server/scheduler/engine_loop.h"

#include <atomic>
#include <optional>
#include <thread>

#include "gtest/gtest.h"
#include "server/engine/fake_run_ahead.h"
#include "server/log/log.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;

// A stream that takes one message at a time and, as gRPC does, says later that it was written.
class Stream : public StreamSink, public std::enable_shared_from_this<Stream> {
 public:
  void OnReady() override {
    MutexLock lock(&mutex_);
    if (!stalled_) TakeAll();
  }
  void Stall(bool stalled) {
    MutexLock lock(&mutex_);
    stalled_ = stalled;
    if (!stalled_) TakeAll();
  }
  bool WaitForEnd() {
    MutexLock lock(&mutex_);
    const TimePoint limit = Clock::now() + std::chrono::seconds(60);
    while (!client_->end.has_value()) {
      if (changed_.WaitUntil(&mutex_, limit)) return client_->end.has_value();
    }
    return true;
  }
  void WaitForTokens(size_t count) {
    MutexLock lock(&mutex_);
    while (client_->received[0].tokens.size() < count) changed_.Wait(&mutex_);
  }
  std::unique_ptr<Request> Make(std::vector<uint32_t> prompt, uint32_t max_tokens,
                                uint32_t completions = 1) {
    MutexLock lock(&mutex_);
    client_.emplace(completions);
    client_->outbox = std::make_shared<Outbox>(weak_from_this(), 16);
    auto request = MakeRequest(*client_, std::move(prompt), max_tokens);
    request->stop.ignore_eos = true;
    request->arrival = Clock::now();
    return request;
  }
  const Client& client() ABSL_NO_THREAD_SAFETY_ANALYSIS { return *client_; }

 private:
  void TakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    client_->Read();
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::optional<Client> client_ ABSL_GUARDED_BY(mutex_);
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
};

// Each Plan looks at the slots.
class CountingEngine : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;
  StepTicket Launch(const StepPlan& plan) override {
    std::this_thread::sleep_for(pace.load());
    return FakeEngine::Launch(plan);
  }
  StatePool& states() const override {
    ++looks;
    return FakeEngine::states();
  }
  mutable std::atomic<uint64_t> looks{0};
  std::atomic<milliseconds> pace{milliseconds(0)};
};

// The parameter is the engine's depth.
class EngineLoopTest : public testing::TestWithParam<size_t> {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.max_queue = 100;
    return options;
  }
  Metrics metrics_;

  // A turn, a score, a cancelled turn or a Delete, of one of six sessions.
  void UseSessions(uint32_t thread, uint32_t rounds) {
    for (uint32_t i = 0; i < rounds; ++i) {
      const std::string id(1, static_cast<char>('a' + (i * 5 + thread * 3) % 6));
      const uint32_t what = (i + thread) % 7;
      if (what == 0) {
        const absl::Status status = sessions_.Delete(id);
        EXPECT_TRUE(status.ok() || absl::IsNotFound(status) || absl::IsAborted(status)) << status;
        continue;
      }
      const absl::Status created = sessions_.Create(id, "").status();
      EXPECT_TRUE(created.ok() || absl::IsAlreadyExists(created)) << created;
      auto lease = what < 5 ? sessions_.LeaseForTurn(id) : sessions_.LeaseForReading(id);
      sessions_.List("", 3);
      if (what == 1 || !lease.ok()) continue;  // given back unused
      UseLease(*std::move(lease), i, what == 2);
    }
  }

  void UseLease(SessionLease lease, uint32_t i, bool cancels) {
    const bool turn = lease.exclusive();
    auto stream = std::make_shared<Stream>();
    auto request = stream->Make(std::vector<uint32_t>(1 + i % 40, i % 90), turn ? i % 20 : 0);
    request->session = std::move(lease);
    request->score_prompt = !turn;
    const uint64_t id = request->id;
    ASSERT_TRUE(scheduler_.Submit(request).ok());
    if (cancels) scheduler_.Cancel(id);
    ASSERT_TRUE(stream->WaitForEnd());
    const absl::StatusCode code = stream->client().end->code();
    // All slots may be held by leases of other threads.
    EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kResourceExhausted ||
                (cancels && code == absl::StatusCode::kCancelled))
        << *stream->client().end;
  }

  // Until the engine thread has stopped looking at the slots; false if it never does.
  bool WaitUntilAsleep() {
    const TimePoint limit = Clock::now() + std::chrono::seconds(60);
    for (int quiet = 0; quiet < 10; ++quiet) {
      const uint64_t before = counting_.looks;
      std::this_thread::sleep_for(milliseconds(10));
      if (counting_.looks != before) quiet = 0;
      if (Clock::now() > limit) return false;
    }
    return true;
  }

  CountingEngine counting_{4};
  RunAheadEngine ahead_{counting_, /*lazy=*/false};
  Engine& engine_ = GetParam() == 1 ? static_cast<Engine&>(counting_) : ahead_;
  SessionTable sessions_{{}, metrics_};
  Dispatcher dispatcher_;
  Scheduler scheduler_{engine_, sessions_, dispatcher_, metrics_, Options()};
  EngineLoop loop_{engine_, scheduler_};
};

TEST_P(EngineLoopTest, ManySubmittersAndACancelEachNowAndThen) {
  constexpr uint32_t kThreads = 3, kRequests = 40;
  std::atomic<uint32_t> complete{0}, cancelled{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < kRequests; ++i) {
        auto stream = std::make_shared<Stream>();
        const std::vector<uint32_t> prompt(1 + i * 7 % 100, t);
        auto request = stream->Make(prompt, 30, 1 + i % 3);
        const uint64_t id = request->id;
        ASSERT_TRUE(scheduler_.Submit(request).ok());
        if (i % 5 == 0) scheduler_.Cancel(id);
        ASSERT_TRUE(stream->WaitForEnd());
        const Client& client = stream->client();
        if (client.end->ok()) {
          ++complete;
          EXPECT_EQ(client.tokens(0), ExpectedTokens(prompt, 0, 30));
        } else {
          ++cancelled;
          EXPECT_EQ(client.end->code(), absl::StatusCode::kCancelled);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(complete + cancelled, kThreads * kRequests);
  EXPECT_GE(complete, kThreads * kRequests * 4 / 5);
  EXPECT_TRUE(scheduler_.WaitUntilIdle(Clock::now() + std::chrono::seconds(10)));
}

// Everything that any thread may do with sessions, at once, on more sessions than slots.
TEST_P(EngineLoopTest, ManyThreadsWithSessions) {
  constexpr uint32_t kThreads = 4, kRounds = 120;
  SetLogLevel("warning");
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t)
    threads.emplace_back([this, t] { UseSessions(t, kRounds); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(scheduler_.WaitUntilIdle(Clock::now() + std::chrono::seconds(10)));
  for (const SessionInfo& info : sessions_.List("", 100)) {
    EXPECT_FALSE(info.busy);
    EXPECT_TRUE(sessions_.Delete(info.id).ok());
  }
  const TimePoint limit = Clock::now() + std::chrono::seconds(10);
  while (metrics_.state_slots_used.value() > 0 && Clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(metrics_.state_slots_used.value(), 0) << "the engine thread woke and destroyed them";
  EXPECT_EQ(sessions_.List("", SIZE_MAX).size(), 0u);
  EXPECT_EQ(metrics_.sessions.value(), 0);
}

// A turn returns its session before its client learns that it has ended.
TEST_P(EngineLoopTest, TheNextTurnMayBeginAsSoonAsTheLastHasEnded) {
  SetLogLevel("warning");
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::string id(1, static_cast<char>('a' + t));
      ASSERT_TRUE(sessions_.Create(id, "").ok());
      for (int turn = 0; turn < 300; ++turn) {
        auto lease = sessions_.LeaseForTurn(id);
        ASSERT_TRUE(lease.ok()) << lease.status();
        auto stream = std::make_shared<Stream>();
        auto request = stream->Make({1, t}, 3);
        request->session = *std::move(lease);
        ASSERT_TRUE(scheduler_.Submit(request).ok());
        ASSERT_TRUE(stream->WaitForEnd());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(EngineLoopTest, IdleEngineDropsSessionsThatExpire) {
  SessionTable sessions({.time_to_live = std::chrono::seconds(1)}, metrics_);
  CountingEngine engine(4);
  Scheduler scheduler(engine, sessions, dispatcher_, metrics_, Options());
  EngineLoop loop(engine, scheduler);
  std::this_thread::sleep_for(milliseconds(20));  // the engine sleeps, with nothing to wait for
  ASSERT_TRUE(sessions.Create("a", "").ok());
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  while (sessions.Get("a").ok() && Clock::now() < limit)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(sessions.Get("a").ok());
}

TEST_P(EngineLoopTest, StalledReaderParksAndGoesOnWhenItReads) {
  auto stalled = std::make_shared<Stream>();
  auto request = stalled->Make({1, 2}, 100);
  stalled->Stall(true);
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  auto other = std::make_shared<Stream>();
  request = other->Make({3}, 100);
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  ASSERT_TRUE(other->WaitForEnd());
  EXPECT_FALSE(scheduler_.WaitUntilIdle(Clock::now() + milliseconds(50)));
  stalled->Stall(false);
  ASSERT_TRUE(stalled->WaitForEnd());
  EXPECT_EQ(stalled->client().tokens(0), ExpectedTokens({1, 2}, 0, 100));
}

TEST_P(EngineLoopTest, IdleEngineKeepsDeadlinesOfParkedStreams) {
  auto stream = std::make_shared<Stream>();
  auto request = stream->Make({1, 2}, 100);
  stream->Stall(true);
  request->deadline = Clock::now() + milliseconds(100);
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  EXPECT_TRUE(scheduler_.WaitUntilIdle(Clock::now() + std::chrono::seconds(20)));
  stream->Stall(false);
  ASSERT_TRUE(stream->WaitForEnd());
  EXPECT_EQ(stream->client().end->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(EngineLoopTest, SleepsWhenNothingCanRun) {
  auto stream = std::make_shared<Stream>();
  auto request = stream->Make({1, 2}, 100);
  const uint64_t id = request->id;
  stream->Stall(true);
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  EXPECT_TRUE(WaitUntilAsleep());
  scheduler_.Cancel(id);
  stream->Stall(false);
  ASSERT_TRUE(stream->WaitForEnd());
}

TEST_P(EngineLoopTest, TimesIncludeTheStepThatMadeThem) {
  counting_.pace = milliseconds(5);
  auto stream = std::make_shared<Stream>();
  auto request = stream->Make({1, 2}, 2);
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  ASSERT_TRUE(stream->WaitForEnd());
  EXPECT_GE(metrics_.request_prefill_time.sum(), 0.005);
  EXPECT_GE(metrics_.time_to_first_token.sum(), 0.005);
  EXPECT_GE(metrics_.inter_token_latency.sum(), 0.005);
}

TEST_P(EngineLoopTest, RunsAheadWhereTheEngineCan) {
  auto stream = std::make_shared<Stream>();
  auto request = stream->Make({1, 2}, 100);
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  ASSERT_TRUE(stream->WaitForEnd());
  EXPECT_EQ(stream->client().tokens(0), ExpectedTokens({1, 2}, 0, 100));
  EXPECT_EQ(ahead_.promised_rows > 0, GetParam() == 2);
}

TEST_P(EngineLoopTest, CancelOfARunningStream) {
  auto stream = std::make_shared<Stream>();
  auto request = stream->Make({1, 2}, 1u << 30);
  const uint64_t id = request->id;
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  stream->WaitForTokens(5);
  scheduler_.Cancel(id);
  ASSERT_TRUE(stream->WaitForEnd());
  EXPECT_EQ(stream->client().received[0].reason, FinishReason::kCancelled);
}

TEST_P(EngineLoopTest, StreamThatGoesAwayDoesNotHoldUpOthers) {
  uint64_t id = 0;
  {
    auto gone = std::make_shared<Stream>();
    auto request = gone->Make({1}, 1u << 30);
    id = request->id;
    ASSERT_TRUE(scheduler_.Submit(request).ok());
    gone->WaitForTokens(1);
  }
  auto stream = std::make_shared<Stream>();
  auto request = stream->Make({2}, 50);
  ASSERT_TRUE(scheduler_.Submit(request).ok());
  ASSERT_TRUE(stream->WaitForEnd());
  scheduler_.Cancel(id);
  EXPECT_TRUE(scheduler_.WaitUntilIdle(Clock::now() + std::chrono::seconds(10)));
}

// Runs ahead, and says how a step in flight stands.
class AskedEngine : public RunAheadEngine {
 public:
  static constexpr uint64_t kHeld = 5;  // the call that waits while `hold`

  explicit AskedEngine(Engine& engine) : RunAheadEngine(engine, /*lazy=*/false) {}
  StepTicket Launch(const StepPlan& plan) override {
    if (in_flight_++ > 0) {
      for (const StepRow& row : plan.rows) {
        if (plan.tokens[row.segment.first_token] != kLastSampled) ++strangers;
      }
    }
    return RunAheadEngine::Launch(plan);
  }
  StepResult Await(StepTicket ticket) override {
    --in_flight_;
    return RunAheadEngine::Await(ticket);
  }
  bool SleepTowardsEnd(StepTicket /*ticket*/, std::chrono::nanoseconds /*before*/) override {
    if (++asked == kHeld) {
      while (hold) std::this_thread::yield();
    }
    return runs;
  }
  std::atomic<uint64_t> asked{0};
  std::atomic<bool> hold{false};
  bool runs = true;
  size_t strangers = 0;  // rows of steps ahead that were not in the step in flight

 private:
  size_t in_flight_ = 0;
};

// The engine's thread over an AskedEngine.
struct AskedLoop {
  AskedLoop(Dispatcher& dispatcher, Metrics& metrics, bool runs, bool hold)
      : sessions({}, metrics), scheduler(engine, sessions, dispatcher, metrics, {}) {
    engine.runs = runs;
    engine.hold = hold;
    loop.emplace(engine, scheduler);
  }
  // A stream of so many tokens after the prompt.
  std::shared_ptr<Stream> Start(std::vector<uint32_t> prompt, uint32_t max_tokens) {
    auto stream = std::make_shared<Stream>();
    auto request = stream->Make(std::move(prompt), max_tokens);
    EXPECT_TRUE(scheduler.Submit(request).ok());
    return stream;
  }

  FakeEngine below{4};
  AskedEngine engine{below};
  SessionTable sessions;
  Scheduler scheduler;
  std::optional<EngineLoop> loop;
};

// What has ended is committed first: its tokens must not wait for another step.
TEST_P(EngineLoopTest, DoesNotRunAheadOfAStepThatHasEnded) {
  AskedLoop asked(dispatcher_, metrics_, /*runs=*/false, /*hold=*/false);
  const auto stream = asked.Start({1, 2}, 100);
  ASSERT_TRUE(stream->WaitForEnd());
  EXPECT_EQ(stream->client().tokens(0), ExpectedTokens({1, 2}, 0, 100));
  EXPECT_GT(asked.engine.asked, 50u);
  EXPECT_EQ(asked.engine.promised_rows, 0u);
}

// It is planned when the step in flight is committed, as if there were no running ahead.
TEST_P(EngineLoopTest, ARequestDuringTheSleepIsInTheNextStep) {
  AskedLoop asked(dispatcher_, metrics_, /*runs=*/true, /*hold=*/true);
  const auto first = asked.Start({1}, 10);
  while (asked.engine.asked < AskedEngine::kHeld) std::this_thread::yield();
  const auto second = asked.Start({2}, 1);
  asked.engine.hold = false;
  ASSERT_TRUE(second->WaitForEnd());
  ASSERT_TRUE(first->WaitForEnd());
  EXPECT_EQ(first->client().tokens(0), ExpectedTokens({1}, 0, 10));
  EXPECT_EQ(second->client().tokens(0), ExpectedTokens({2}, 0, 1));
  EXPECT_GT(asked.engine.promised_rows, 0u);
  EXPECT_EQ(asked.engine.strangers, 0u);
}

// Holds the engine thread where it asks for the depth, just before it plans.
class HeldEngine : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;
  size_t depth() const override {
    while (hold) std::this_thread::yield();
    return FakeEngine::depth();
  }
  std::atomic<bool> hold{false};
};

TEST_P(EngineLoopTest, EndsIfItIsStoppedJustBeforeItPlans) {
  HeldEngine engine(4);
  SessionTable sessions({}, metrics_);
  Scheduler scheduler(engine, sessions, dispatcher_, metrics_, Options());
  auto loop = std::make_unique<EngineLoop>(engine, scheduler);
  engine.hold = true;
  scheduler.Wake();
  std::thread stopper([&] { loop.reset(); });
  std::this_thread::sleep_for(milliseconds(50));
  engine.hold = false;
  stopper.join();
}

INSTANTIATE_TEST_SUITE_P(Depths, EngineLoopTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace rivulet
