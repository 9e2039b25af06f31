// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The device fails while requests run: they end with UNAVAILABLE, sessions are lost, and the engine
// starts again; a second failure within a minute gives it up. On a fake device, with all threads
// below rpc.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/fake_device.h"
#include "server/engine/device_engine.h"
#include "server/log/log.h"
#include "server/scheduler/engine_loop.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

constexpr char kModel[] = "tests/parity/fixtures/mamba2_hf";
constexpr std::chrono::seconds kLimit{60};
constexpr char kRefusal[] = "the driver refuses this process";

class Reader : public StreamSink, public std::enable_shared_from_this<Reader> {
 public:
  void OnReady() override {
    MutexLock lock(&mutex_);
    client_->Read();
    changed_.NotifyAll();
  }
  std::unique_ptr<Request> Make(std::vector<uint32_t> prompt, uint32_t max_tokens) {
    MutexLock lock(&mutex_);
    client_.emplace(1);
    client_->outbox = std::make_shared<Outbox>(weak_from_this());
    auto request = MakeRequest(*client_, std::move(prompt), max_tokens);
    request->stop.ignore_eos = true;
    request->arrival = Clock::now();
    return request;
  }
  absl::Status End() {
    MutexLock lock(&mutex_);
    const TimePoint limit = Clock::now() + kLimit;
    while (!client_->end.has_value()) {
      if (changed_.WaitUntil(&mutex_, limit)) return absl::UnknownError("never ended");
    }
    return *client_->end;
  }
  void WaitForTokens(size_t count) {
    MutexLock lock(&mutex_);
    while (client_->received[0].tokens.size() < count) changed_.Wait(&mutex_);
  }
  std::vector<uint32_t> tokens() {
    MutexLock lock(&mutex_);
    return client_->tokens(0);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Client> client_ ABSL_GUARDED_BY(mutex_);
};

class DeviceFailureTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    SetLogLevel("off");
    auto engine = MakeDeviceEngine([this] { return Open(); },
                                   {.threads = 1, .state_memory = uint64_t{8} << 20}, GetParam());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    scheduler_ =
        std::make_unique<Scheduler>(*engine_, sessions_, dispatcher_, metrics_, SchedulerOptions());
    DeviceFailureHandlers handlers;
    handlers.failed = [this](const absl::Status&) { ++failures_; };
    handlers.restarted = [this] { ++restarts_; };
    handlers.start_over = [this](const absl::Status& why, TimePoint) {
      EXPECT_EQ(why.message(), refusal_);
      leaves_ = true;
    };
    handlers.gave_up = [this](const absl::Status&) { gave_up_ = true; };
    loop_ = std::make_unique<EngineLoop>(*engine_, *scheduler_, handlers);
  }

  absl::StatusOr<DeviceAndModel> Open() {
    if (++opened_ > opens_) return absl::UnavailableError(kRefusal);
    DeviceAndModel result;
    auto device = std::make_unique<FakeDevice>();
    device->on_wait = [this] {
      return fails_.exchange(false) ? absl::UnavailableError("CUDA: injected") : absl::OkStatus();
    };
    result.device = std::move(device);
    LoadOptions options;
    options.mixer.device = result.device.get();
    auto model = LoadModel(model_, options);
    if (!model.ok()) return model.status();
    result.model = *std::move(model);
    return result;
  }

  std::shared_ptr<Reader> Submit(uint32_t max_tokens, SessionLease lease = {}) {
    auto reader = std::make_shared<Reader>();
    auto request = reader->Make({1, 2, 3}, max_tokens);
    request->session = std::move(lease);
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    return reader;
  }
  SessionLease Turn(const std::string& id) {
    auto lease = sessions_.LeaseForTurn(id);
    EXPECT_TRUE(lease.ok()) << lease.status();
    return *std::move(lease);
  }

  // The device fails in the midst of a request.
  void FailARequest() {
    const auto running = Submit(100'000);
    running->WaitForTokens(3);
    fails_ = true;
    EXPECT_EQ(running->End().code(), absl::StatusCode::kUnavailable);
  }
  // Whether the engine thread sets it in time.
  static bool Becomes(const std::atomic<bool>& flag) {
    const TimePoint limit = Clock::now() + kLimit;
    while (!flag && Clock::now() < limit) std::this_thread::yield();
    return flag;
  }

  std::string model_ = kModel, refusal_ = kRefusal;
  std::atomic<bool> fails_{false};
  std::atomic<int> opened_{0}, opens_{1000}, failures_{0}, restarts_{0};
  std::atomic<bool> gave_up_{false}, leaves_{false};
  Metrics metrics_;
  std::unique_ptr<Engine> engine_;
  SessionTable sessions_{{}, metrics_};
  Dispatcher dispatcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST_P(DeviceFailureTest, RequestsEndSessionsAreLostAndTheEngineStartsAgain) {
  const auto before = Submit(20);
  ASSERT_TRUE(before->End().ok());
  ASSERT_TRUE(sessions_.Create("talk", "").ok());
  ASSERT_TRUE(sessions_.Create("leased", "").ok());
  ASSERT_TRUE(sessions_.Create("empty", "").ok());
  ASSERT_TRUE(Submit(5, Turn("talk"))->End().ok());
  ASSERT_TRUE(Submit(5, Turn("leased"))->End().ok());
  SessionLease leased = Turn("leased");  // its request comes after the failure
  EXPECT_GT(metrics_.graph_replays.value(), 0);
  EXPECT_GT(metrics_.device_step_time.sum(), 0.0);

  const auto running = Submit(100'000);
  running->WaitForTokens(10);
  fails_ = true;
  const absl::Status end = running->End();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
  EXPECT_NE(end.message().find("injected"), std::string::npos) << end;

  const auto again = Submit(20);
  ASSERT_TRUE(again->End().ok()) << again->End();
  EXPECT_EQ(again->tokens(), before->tokens());
  const absl::Status lost = sessions_.Get("talk").status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(lost.message().find("lost in a failed step"), std::string::npos) << lost;
  const absl::Status forked = sessions_.Fork("talk", "branch", "", std::nullopt).status();
  EXPECT_EQ(forked.code(), absl::StatusCode::kNotFound) << forked;
  EXPECT_EQ(forked.message(), lost.message());
  EXPECT_EQ(Submit(5, std::move(leased))->End().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(sessions_.Get("empty").ok());
  ASSERT_TRUE(scheduler_->WaitUntilIdle(Clock::now() + kLimit));
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(failures_, 1);
  EXPECT_EQ(restarts_, 1);
  EXPECT_FALSE(gave_up_);
  EXPECT_EQ(metrics_.state_slots_used.value(), 0);
  EXPECT_EQ(metrics_.requests[static_cast<size_t>(Outcome::kError)].value(), 1u);
  EXPECT_EQ(metrics_.session_ends[static_cast<size_t>(SessionEnd::kFailed)].value(), 2u);
}

TEST_P(DeviceFailureTest, ASecondFailureWithinAMinuteGivesUp) {
  for (int i = 0; i < 2; ++i) {
    FailARequest();
  }
  EXPECT_TRUE(Becomes(gave_up_));
  EXPECT_EQ(failures_, 2);
  EXPECT_EQ(restarts_, 1);
  EXPECT_EQ(opened_, 2);
}

TEST_P(DeviceFailureTest, WithoutANewContextEverythingEndsForTheNextProcess) {
  opens_ = 1;
  FailARequest();
  EXPECT_TRUE(Becomes(leaves_));
  EXPECT_FALSE(gave_up_);
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(failures_, 1);
  EXPECT_TRUE(scheduler_->WaitUntilIdle(Clock::now() + kLimit));
  auto late = std::make_shared<Reader>();
  auto request = late->Make({1, 2, 3}, 5);
  EXPECT_EQ(scheduler_->Submit(request).code(), absl::StatusCode::kUnavailable);
}

// A model of other sizes would find its sessions' slots too small.
TEST_P(DeviceFailureTest, FilesThatHaveChangedAreLeftToTheNextProcess) {
  model_ = "tests/parity/fixtures/gla_conv_clamp_gqa";
  refusal_ = "the model's files have changed since the server started";
  FailARequest();
  EXPECT_TRUE(Becomes(leaves_));
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(restarts_, 0);
}

TEST_P(DeviceFailureTest, AFailureOfTheProcessBeforeCounts) {
  loop_.reset();
  DeviceFailureHandlers handlers;
  handlers.last_failure = Clock::now();
  handlers.gave_up = [this](const absl::Status&) { gave_up_ = true; };
  loop_ = std::make_unique<EngineLoop>(*engine_, *scheduler_, handlers);
  FailARequest();
  EXPECT_TRUE(Becomes(gave_up_));
  EXPECT_EQ(opened_, 1);
}

INSTANTIATE_TEST_SUITE_P(Depths, DeviceFailureTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace rivulet
