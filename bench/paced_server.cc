// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gRPC server with an engine that computes nothing and takes a given time for each step, as a
// GPU would: what its process uses of the CPU is the streaming alone.
//
//   rivulet-paced-server --step_ms 10.7 --sessions 1024
//
// serve/streaming.py runs it under load and tells its threads apart. It prints "grpc listening on
// HOST:PORT" and serves until it is killed.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "server/engine/fake_engine.h"
#include "server/log/log.h"
#include "server/rpc/grpc_server.h"
#include "server/scheduler/engine_loop.h"
#include "server/service/service_context.h"

ABSL_FLAG(double, step_ms, 10.7, "how long a step takes once the one before has ended");
ABSL_FLAG(uint32_t, depth, 2, "steps in flight: 1 or 2");
ABSL_FLAG(uint32_t, sessions, 1024, "for how many sessions there are slots");
ABSL_FLAG(uint32_t, port, 0, "0: any");

namespace rivulet {
namespace {

// As with a GPU, the engine's thread sleeps while a step runs, and a step begins when the one
// before it has ended. What it samples depends on places alone, so it needs no tokens.
class PacedEngine : public FakeEngine {
 public:
  PacedEngine(uint32_t sessions, size_t depth, Clock::duration step)
      : FakeEngine(sessions), depth_(depth), step_(step) {
    next_token = [](const StepRow& row) {
      return static_cast<uint32_t>(row.spec.position * 7 % (kVocab - 10));
    };
  }
  StepTicket Launch(const StepPlan& plan) override {
    StepResult result = FakeEngine::Await(FakeEngine::Launch(plan));
    result.device_seconds = Seconds(step_);
    last_end_ = std::max(last_end_, Clock::now()) + step_;
    launched_.push_back({last_end_, std::move(result)});
    return ++tickets_;
  }
  StepResult Await(StepTicket /*ticket*/) override {
    std::this_thread::sleep_until(launched_.front().end);
    StepResult result = std::move(launched_.front().result);
    launched_.pop_front();
    return result;
  }
  bool SleepTowardsEnd(StepTicket /*ticket*/, std::chrono::nanoseconds before) override {
    constexpr std::chrono::microseconds kMargin{40};  // sleeps end so much late
    std::this_thread::sleep_until(launched_.front().end - before - kMargin);
    return true;
  }
  size_t depth() const override { return depth_; }

 private:
  struct Launched {
    TimePoint end;
    StepResult result;
  };

  const size_t depth_;
  const Clock::duration step_;
  std::deque<Launched> launched_;
  StepTicket tickets_ = 0;
  TimePoint last_end_{};
};

class PacedServer {
 public:
  explicit PacedServer(uint32_t sessions)
      : engine_(sessions, absl::GetFlag(FLAGS_depth),
                std::chrono::microseconds(std::llround(1000 * absl::GetFlag(FLAGS_step_ms)))) {
    model_.info.set_name("paced");
    model_.info.set_fold_interval(engine_.capacity().fold_interval);
    model_.info.set_vocab_size(FakeEngine::kVocab);
    SchedulerOptions options;
    options.max_queue = 4 * sessions;
    scheduler_ = std::make_unique<Scheduler>(engine_, sessions_, dispatcher_, metrics_, options);
    loop_ = std::make_unique<EngineLoop>(engine_, *scheduler_);
    context_ = std::make_unique<ServiceContext>(
        ServiceContext{model_, *scheduler_, sessions_, pool_, metrics_, calls_, authenticator_,
                       /*max_prompt=*/1 << 20});
  }

  // Returns only if it cannot serve.
  absl::Status Run() {
    auto server = GrpcServer::Start("127.0.0.1", static_cast<int>(absl::GetFlag(FLAGS_port)),
                                    *context_, /*tls=*/nullptr, {});
    if (!server.ok()) return server.status();
    std::printf("grpc listening on %s\n", Address("127.0.0.1", (*server)->port()).c_str());
    std::fflush(stdout);
    for (;;) pause();
  }

 private:
  PacedEngine engine_;
  Metrics metrics_;
  CallCount calls_;
  Authenticator authenticator_;
  SessionTable sessions_{{}, metrics_};
  ServedModel model_;
  Dispatcher dispatcher_;
  WorkerPool pool_{2, 1024};
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<ServiceContext> context_;
};

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("a gRPC server whose engine takes its time and computes nothing");
  absl::ParseCommandLine(argc, argv);
  rivulet::SetLogLevel("warning");
  if (absl::GetFlag(FLAGS_depth) != 1 && absl::GetFlag(FLAGS_depth) != 2) {
    std::fprintf(stderr, "error: --depth: 1 or 2\n");
    return 1;
  }
  const absl::Status failure = rivulet::PacedServer(absl::GetFlag(FLAGS_sessions)).Run();
  std::fprintf(stderr, "error: %s\n", failure.ToString().c_str());
  return 1;
}
