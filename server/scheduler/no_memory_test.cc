// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine thread without memory: each of its allocations fails once, in a run of its own, and
// then many fail at random. Every request must end, no slot may be lost, and a session is either as
// before or gone.
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/engine/fake_run_ahead.h"
#include "server/log/log.h"
#include "server/scheduler/engine_loop.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

constexpr int64_t kNever = int64_t{1} << 60;

thread_local bool is_engine_thread = false;
thread_local bool has_memory = false;
std::atomic<int64_t> until_failure{kNever};  // allocations of the engine thread
std::atomic<uint32_t> failures_in_1000{0};
std::atomic<uint64_t> failures{0};

bool Fails() {
  if (!is_engine_thread || has_memory) return false;
  thread_local std::minstd_rand random(7);
  const bool chance = random() % 1000 < failures_in_1000.load();
  if (until_failure.fetch_sub(1) != 0 && !chance) return false;
  ++failures;
  return true;
}

}  // namespace
}  // namespace rivulet

// Not inline: the compiler would take malloc and delete for a mismatch.
__attribute__((noinline)) void* operator new(size_t size) {
  void* const memory = rivulet::Fails() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return rivulet::Fails() ? nullptr : std::malloc(size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rivulet {
namespace {

const std::thread::id main_thread = std::this_thread::get_id();

// Finds the engine thread: it asks for the depth again and again.
class MarkedEngine : public RunAheadEngine {
 public:
  MarkedEngine(FakeEngine& engine, size_t depth)
      : RunAheadEngine(engine, /*lazy=*/false), engine_(engine), depth_(depth) {}
  StepTicket Launch(const StepPlan& plan) override {
    if (depth_ == 1) return engine_.Launch(plan);
    const WithMemory with_memory;
    return RunAheadEngine::Launch(plan);
  }
  StepResult Await(StepTicket ticket) override {
    if (depth_ == 1) return engine_.Await(ticket);
    const WithMemory with_memory;
    return RunAheadEngine::Await(ticket);
  }
  size_t depth() const override {
    is_engine_thread = std::this_thread::get_id() != main_thread;
    return depth_;
  }

 private:
  // The fake that runs ahead is not made for failures of its own.
  struct WithMemory {
    WithMemory() { has_memory = true; }
    ~WithMemory() { has_memory = false; }
  };

  FakeEngine& engine_;
  const size_t depth_;
};

class Reader : public StreamSink, public std::enable_shared_from_this<Reader> {
 public:
  void OnReady() override {
    MutexLock lock(&mutex_);
    client_->Read();
    changed_.NotifyAll();
  }
  std::unique_ptr<Request> Make(std::vector<uint32_t> prompt, uint32_t max_tokens,
                                uint32_t completions = 1) {
    MutexLock lock(&mutex_);
    client_.emplace(completions);
    client_->outbox = std::make_shared<Outbox>(weak_from_this());
    auto request = MakeRequest(*client_, std::move(prompt), max_tokens);
    request->stop.ignore_eos = true;
    request->arrival = Clock::now();
    return request;
  }
  absl::Status End() {
    MutexLock lock(&mutex_);
    const TimePoint limit = Clock::now() + std::chrono::seconds(60);
    while (!client_->end.has_value()) {
      if (changed_.WaitUntil(&mutex_, limit)) return absl::UnknownError("never ended");
    }
    return *client_->end;
  }
  const Client& client() ABSL_NO_THREAD_SAFETY_ANALYSIS { return *client_; }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Client> client_ ABSL_GUARDED_BY(mutex_);
};

struct Variant {
  size_t depth;
  bool prefix_cache;
};

// Everything of a server below rpc, with three slots.
struct Server {
  explicit Server(const Variant& variant)
      : engine(fake, variant.depth),
        scheduler(engine, sessions, dispatcher, metrics, Options(variant)) {}
  static SchedulerOptions Options(const Variant& variant) {
    SchedulerOptions options;
    if (variant.prefix_cache) options.prefix_cache.bytes = uint64_t{1} << 30;
    return options;
  }
  // A turn of a session whose name is in use or not.
  std::shared_ptr<Reader> Turn(const std::string& id, uint32_t max_tokens) {
    (void)sessions.Create(id, "").status();
    auto reader = std::make_shared<Reader>();
    auto request = reader->Make({1, 2, 3}, max_tokens);
    auto lease = sessions.LeaseForTurn(id);
    EXPECT_TRUE(lease.ok()) << lease.status();
    request->session = *std::move(lease);
    EXPECT_TRUE(scheduler.Submit(request).ok());
    return reader;
  }
  std::shared_ptr<Reader> Submit(std::vector<uint32_t> prompt, uint32_t max_tokens,
                                 uint32_t completions = 1) {
    auto reader = std::make_shared<Reader>();
    auto request = reader->Make(std::move(prompt), max_tokens, completions);
    request->score_prompt = completions > 1;
    EXPECT_TRUE(scheduler.Submit(request).ok());
    return reader;
  }

  Metrics metrics;
  std::vector<PageKind> pages = {
      {.rule = PageRule::kFenwick, .levels = 6, .fold_interval = 16},
      {.rule = PageRule::kAppended, .fold_interval = 16},
  };
  FakeEngine fake{3, pages, 256};
  MarkedEngine engine;
  SessionTable sessions{{}, metrics};
  Dispatcher dispatcher;
  Scheduler scheduler;
  EngineLoop loop{engine, scheduler};
};

// A status that a request may end with when memory runs out somewhere.
void ExpectOkOrNoMemory(const absl::Status& status) {
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
}

// More than fits at once, of every kind.
void UseEverything(Server& server) {
  const std::shared_ptr<Reader> turn = server.Turn("talk", 20);
  const std::vector<std::shared_ptr<Reader>> others = {
      server.Submit(std::vector<uint32_t>(50, 5), 30, 2), server.Submit({4, 4}, 40),
      server.Submit({7}, 3), server.Submit(std::vector<uint32_t>(20, 6), 5)};
  ExpectOkOrNoMemory(turn->End());
  for (const auto& reader : others) ExpectOkOrNoMemory(reader->End());
  const absl::Status second = server.Turn("talk", 20)->End();
  ExpectOkOrNoMemory(second);
  EXPECT_TRUE(server.scheduler.WaitUntilIdle(Clock::now() + std::chrono::seconds(60)));
}

// With memory again: the session is whole or gone, all slots can be had, and the bits are right.
void ExpectSound(Server& server) {
  until_failure = kNever;
  failures_in_1000 = 0;
  const auto session = server.sessions.Get("talk");
  if (session.ok()) {
    EXPECT_FALSE(session->busy);
    EXPECT_TRUE(session->tokens % 23 == 0) << session->tokens;  // 3 and 20 a turn
    const uint64_t before = session->tokens;
    EXPECT_TRUE(server.Turn("talk", 20)->End().ok());
    EXPECT_EQ(server.sessions.Get("talk")->tokens, before + 23);
    EXPECT_TRUE(server.sessions.Delete("talk").ok());
  }
  const auto all = server.Submit({1, 2}, 100, 3);
  EXPECT_TRUE(all->End().ok());
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all->client().tokens(i), ExpectedTokens({1, 2}, i, 100));
  }
  EXPECT_TRUE(server.scheduler.WaitUntilIdle(Clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(server.metrics.state_slots_used.value(), 0);
  EXPECT_EQ(server.metrics.state_bytes.value(), server.metrics.prefix_bytes.value());
  EXPECT_EQ(server.sessions.leases(), 0u);
}

class NoMemoryTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { SetLogLevel("off"); }
};

TEST_P(NoMemoryTest, EachAllocationOfTheEngineThreadMayFail) {
  bool failed = true;
  for (int64_t n = 0; failed && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    Server server(GetParam());
    const uint64_t before = failures;
    until_failure = n;
    UseEverything(server);
    failed = failures > before;
    ExpectSound(server);
    EXPECT_LT(n, 100'000);
  }
}

TEST_P(NoMemoryTest, ManyAllocationsFailAtRandom) {
  for (uint32_t often : {3, 30, 200}) {
    for (int round = 0; round < 20; ++round) {
      SCOPED_TRACE(often);
      Server server(GetParam());
      failures_in_1000 = often;
      UseEverything(server);
      ExpectSound(server);
    }
  }
  EXPECT_GT(failures, 100u);
}

INSTANTIATE_TEST_SUITE_P(Depths, NoMemoryTest,
                         testing::Values(Variant{1, false}, Variant{2, false}, Variant{1, true},
                                         Variant{2, true}),
                         [](const auto& info) {
                           return (info.param.depth == 1 ? "1" : "2") +
                                  std::string(info.param.prefix_cache ? "Cached" : "");
                         });

}  // namespace
}  // namespace rivulet
