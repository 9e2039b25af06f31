// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The driver against a server in this process that serves, refuses, stalls, never ends or goes
// away, as the test chooses.
#include "client/cli/bench/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "kernels/base/mutex.h"

namespace rivulet::cli::bench {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::Key;
using testing::Pair;

// What the server does with a request before it answers; an error ends the request.
using Behaviour = std::function<grpc::Status(grpc::ServerContext&, const v1::GenerateRequest&)>;

grpc::Status Serve(grpc::ServerContext&, const v1::GenerateRequest&) { return grpc::Status::OK; }

class FakeInference : public v1::Inference::Service {
 public:
  explicit FakeInference(Behaviour behaviour) : behaviour_(std::move(behaviour)) {}

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Enter(*request);
    grpc::Status status = behaviour_(*context, *request);
    if (status.ok()) status = Write(*context, *request, *writer);
    running_.fetch_sub(1);
    return status;
  }

  uint64_t requests() const { return requests_; }
  uint64_t tokens() const { return tokens_; }
  int most_running() const { return most_running_; }
  std::vector<std::string> sessions() {
    MutexLock lock(&mutex_);
    return sessions_;
  }
  std::multiset<int> prompt_lengths() {
    MutexLock lock(&mutex_);
    return prompt_lengths_;
  }

 private:
  void Enter(const v1::GenerateRequest& request) {
    const int running = running_.fetch_add(1) + 1;
    requests_.fetch_add(1);
    MutexLock lock(&mutex_);
    most_running_ = std::max(most_running_.load(), running);
    if (!request.session_id().empty()) sessions_.push_back(request.session_id());
    prompt_lengths_.insert(request.token_ids().ids_size());
  }

  // Messages of two tokens; the last one brings the usage.
  grpc::Status Write(grpc::ServerContext& context, const v1::GenerateRequest& request,
                     grpc::ServerWriter<v1::GenerateResponse>& writer) {
    for (uint32_t sent = 0; sent < request.max_tokens(); sent += 2) {
      v1::GenerateResponse message;
      for (uint32_t i = sent; i < std::min(sent + 2, request.max_tokens()); ++i) {
        message.add_token_ids(i);
      }
      if (!writer.Write(message) || context.IsCancelled()) return grpc::Status::CANCELLED;
      tokens_.fetch_add(static_cast<uint64_t>(message.token_ids_size()));
      if (request.max_tokens() > 1000) std::this_thread::sleep_for(milliseconds(1));
    }
    v1::GenerateResponse last;
    last.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(request.token_ids().ids_size()));
    last.mutable_usage()->set_cached_tokens(request.session_id().empty() ? 0 : 7);
    writer.Write(last);
    return grpc::Status::OK;
  }

  const Behaviour behaviour_;
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> tokens_{0};
  std::atomic<int> running_{0};
  std::atomic<int> most_running_{0};
  Mutex mutex_;
  std::vector<std::string> sessions_ ABSL_GUARDED_BY(mutex_);
  std::multiset<int> prompt_lengths_ ABSL_GUARDED_BY(mutex_);
};

class FakeSessions : public v1::Sessions::Service {
 public:
  grpc::Status CreateSession(grpc::ServerContext*, const v1::CreateSessionRequest*,
                             v1::Session* session) override {
    if (refuse) return {grpc::StatusCode::UNIMPLEMENTED, "no sessions yet"};
    session->set_id("s" + std::to_string(created_.fetch_add(1)));
    return grpc::Status::OK;
  }
  grpc::Status DeleteSession(grpc::ServerContext*, const v1::DeleteSessionRequest* request,
                             v1::DeleteSessionResponse*) override {
    MutexLock lock(&mutex_);
    deleted_.insert(request->id());
    return grpc::Status::OK;
  }

  std::atomic<bool> refuse{false};
  int created() const { return created_; }
  std::set<std::string> deleted() {
    MutexLock lock(&mutex_);
    return deleted_;
  }

 private:
  std::atomic<int> created_{0};
  Mutex mutex_;
  std::set<std::string> deleted_ ABSL_GUARDED_BY(mutex_);
};

class FakeServer {
 public:
  explicit FakeServer(Behaviour behaviour = Serve) : inference(std::move(behaviour)) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&inference).RegisterService(&sessions);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeServer() { Stop(); }

  // Running calls are cancelled.
  void Stop() { server_->Shutdown(std::chrono::system_clock::now()); }
  const std::string& address() const { return address_; }

  FakeInference inference;
  FakeSessions sessions;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

struct Outcome {
  Ending ending = Ending::kComplete;
  std::vector<PhaseStatistics> phases;
  uint64_t total_tokens = 0;
};

Outcome RunBenchOn(const std::string& address, BenchOptions options,
                   const Cancellation& cancellation = Cancellation()) {
  options.common.server = address;
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  const auto workload = Workload::Make(options, 100);
  EXPECT_TRUE(workload.ok());
  Recorder recorder(options);
  Outcome outcome;
  outcome.ending = Driver(options, *workload, recorder, cancellation).Run();
  outcome.total_tokens = recorder.total_tokens();
  outcome.phases = recorder.TakePhases();
  return outcome;
}

TEST(BenchDriverTest, ClosedLoopCountsWhatTheServerSent) {
  FakeServer server;
  const Outcome outcome =
      RunBenchOn(server.address(), {.concurrency = 4,
                                    .requests = 50,
                                    .connections = 2,
                                    .prompt_tokens = {.low = 3, .high = 9},
                                    .output_tokens = LengthRange{.low = 1, .high = 20}});
  EXPECT_EQ(outcome.ending, Ending::kComplete);
  ASSERT_EQ(outcome.phases.size(), 1u);
  const PhaseStatistics& phase = outcome.phases[0];
  EXPECT_EQ(phase.due, 50u);
  EXPECT_EQ(phase.succeeded, 50u);
  EXPECT_EQ(phase.completed, 50u);
  EXPECT_EQ(phase.good, 50u);
  EXPECT_EQ(phase.wrong_length, 0u);
  EXPECT_EQ(server.inference.requests(), 50u);
  EXPECT_LE(server.inference.most_running(), 4);
  EXPECT_EQ(phase.output_tokens, server.inference.tokens());
  EXPECT_EQ(phase.first_token.count(), 50u);
  EXPECT_EQ(phase.end_to_end.count(), 50u);
  EXPECT_EQ(phase.message_gap.count(), phase.messages - 50);
  uint64_t prompts = 0;
  for (int length : server.inference.prompt_lengths()) prompts += static_cast<uint64_t>(length);
  EXPECT_EQ(phase.prompt_tokens, prompts);
  EXPECT_EQ(phase.errors.total(), 0u);
}

TEST(BenchDriverTest, AllStreamsOfTheClosedLoopRunAtOnce) {
  constexpr int kStreams = 40;
  std::atomic<int> arrived{0};
  // No request is answered before all have arrived.
  FakeServer server([&](grpc::ServerContext& context, const v1::GenerateRequest&) {
    arrived.fetch_add(1);
    while (arrived < kStreams && !context.IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  });
  const Outcome outcome =
      RunBenchOn(server.address(), {.concurrency = kStreams, .requests = kStreams});
  EXPECT_EQ(outcome.phases.at(0).succeeded, uint64_t{kStreams});
  EXPECT_EQ(server.inference.most_running(), kStreams);
}

TEST(BenchDriverTest, RefusalsAreCountedByCode) {
  std::atomic<int> number{0};
  FakeServer server([&](grpc::ServerContext&, const v1::GenerateRequest&) {
    switch (number.fetch_add(1) % 4) {
      case 0:
        return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "queue of 8 is full");
      case 1:
        return grpc::Status(grpc::StatusCode::INTERNAL, "");
      default:
        return grpc::Status::OK;
    }
  });
  const Outcome outcome =
      RunBenchOn(server.address(), {.concurrency = 5, .requests = 40, .drain_seconds = 60});
  const PhaseStatistics& phase = outcome.phases.at(0);
  EXPECT_EQ(phase.succeeded, 20u);
  EXPECT_EQ(phase.failed, 20u);
  EXPECT_THAT(phase.errors.by_code(),
              ElementsAre(Pair("INTERNAL", 10), Pair("RESOURCE_EXHAUSTED", 10)));
  EXPECT_EQ(phase.output_tokens, server.inference.tokens());
}

TEST(BenchDriverTest, OpenLoopSendsWhileTheServerStalls) {
  constexpr uint64_t kRequests = 30;
  FakeServer* reached = nullptr;
  // No request is answered before all have arrived, so a client that waits for answers never ends.
  FakeServer server([&](grpc::ServerContext& context, const v1::GenerateRequest&) {
    while (reached->inference.requests() < kRequests && !context.IsCancelled()) {
      std::this_thread::yield();
    }
    return grpc::Status::OK;
  });
  reached = &server;
  const Outcome outcome = RunBenchOn(
      server.address(), {.rate = 100, .arrival = Arrival::kConstant, .requests = kRequests});
  const PhaseStatistics& phase = outcome.phases.at(0);
  EXPECT_EQ(phase.succeeded, kRequests);
  EXPECT_EQ(phase.send_lag.count(), kRequests);
  // Due 10 ms apart and all answered at the end: the first waited for the 29 after it.
  EXPECT_GE(phase.first_token.max(), milliseconds(290));
}

TEST(BenchDriverTest, APhaseHasAsManyArrivalsAsTheRateSays) {
  FakeServer server;
  const Outcome outcome = RunBenchOn(
      server.address(),
      {.rate = 50, .arrival = Arrival::kConstant, .duration_seconds = 0.4, .warmup_seconds = 0.1});
  EXPECT_EQ(outcome.phases.at(0).due, 20u) << "the one at the end of the warm-up is of it";
}

TEST(BenchDriverTest, ArrivalsOverTheLimitAreCountedAndNotSent) {
  FakeServer server([](grpc::ServerContext& context, const v1::GenerateRequest&) {
    while (!context.IsCancelled()) std::this_thread::sleep_for(milliseconds(1));
    return grpc::Status::CANCELLED;
  });
  const Outcome outcome = RunBenchOn(
      server.address(),
      {.rate = 500, .requests = 20, .duration_seconds = 2, .drain_seconds = 0, .max_in_flight = 3});
  const PhaseStatistics& phase = outcome.phases.at(0);
  EXPECT_EQ(phase.due, 20u);
  EXPECT_EQ(phase.not_sent, 17u);
  EXPECT_EQ(phase.cut_off, 3u);
  EXPECT_EQ(phase.failed, 0u);
}

TEST(BenchDriverTest, TimeoutsAreErrors) {
  FakeServer server([](grpc::ServerContext& context, const v1::GenerateRequest&) {
    while (!context.IsCancelled()) std::this_thread::sleep_for(milliseconds(1));
    return grpc::Status::CANCELLED;
  });
  const Outcome outcome =
      RunBenchOn(server.address(), {.common = {.timeout_seconds = 0.1}, .requests = 2});
  EXPECT_THAT(outcome.phases.at(0).errors.by_code(), ElementsAre(Pair("DEADLINE_EXCEEDED", 2)));
}

TEST(BenchDriverTest, InterruptionReportsWhatWasMeasured) {
  FakeServer server;
  Cancellation cancellation;
  std::thread interrupter([&] {
    while (server.inference.tokens() < 50) std::this_thread::sleep_for(milliseconds(1));
    cancellation.Cancel();
  });
  const Outcome outcome = RunBenchOn(
      server.address(),
      {.concurrency = 3, .output_tokens = LengthRange{.low = 1'000'000, .high = 1'000'000}},
      cancellation);
  interrupter.join();
  EXPECT_EQ(outcome.ending, Ending::kInterrupted);
  const PhaseStatistics& phase = outcome.phases.at(0);
  EXPECT_EQ(phase.cut_off, 3u);
  EXPECT_EQ(phase.failed, 0u);
  EXPECT_GT(phase.output_tokens, 0u);
}

TEST(BenchDriverTest, ServerGoesAwayInTheMiddle) {
  FakeServer server;
  std::thread stopper([&] {
    while (server.inference.requests() < 8) std::this_thread::sleep_for(milliseconds(1));
    server.Stop();
  });
  const Outcome outcome = RunBenchOn(
      server.address(),
      {.concurrency = 4, .requests = 60, .output_tokens = LengthRange{.low = 1002, .high = 1002}});
  stopper.join();
  const PhaseStatistics& phase = outcome.phases.at(0);
  EXPECT_EQ(phase.due, 60u);
  EXPECT_GT(phase.failed, 0u);
  EXPECT_EQ(phase.succeeded + phase.failed, 60u);
}

TEST(BenchDriverTest, GivesUpWhenTheServerDoesNotAnswer) {
  std::string address;
  { address = FakeServer().address(); }
  const Outcome outcome = RunBenchOn(address, {.concurrency = 4, .duration_seconds = 300});
  EXPECT_EQ(outcome.ending, Ending::kGaveUp);
  EXPECT_THAT(outcome.phases.at(0).errors.by_code(), ElementsAre(Key("UNAVAILABLE")));
  EXPECT_EQ(outcome.total_tokens, 0u);
}

TEST(BenchDriverTest, SessionsRunTheirTurnsAndAreDeleted) {
  FakeServer server;
  const Outcome outcome =
      RunBenchOn(server.address(), {.concurrency = 2, .requests = 6, .turns = 3});
  EXPECT_EQ(server.sessions.created(), 6);
  EXPECT_EQ(server.sessions.deleted().size(), 6u);
  const PhaseStatistics& phase = outcome.phases.at(0);
  EXPECT_EQ(phase.succeeded, 18u);
  ASSERT_EQ(phase.turns.size(), 3u);
  for (const TurnStatistics& turn : phase.turns) {
    EXPECT_EQ(turn.succeeded, 6u);
    EXPECT_EQ(turn.cached_tokens, 42u);
  }
  const std::vector<std::string> used = server.inference.sessions();
  for (const std::string& id : server.sessions.deleted()) {
    EXPECT_EQ(std::count(used.begin(), used.end(), id), 3) << id;
  }
}

TEST(BenchDriverTest, AFailedTurnEndsItsSession) {
  std::atomic<int> number{0};
  FakeServer server([&](grpc::ServerContext&, const v1::GenerateRequest&) {
    return number.fetch_add(1) == 1 ? grpc::Status(grpc::StatusCode::ABORTED, "busy")
                                    : grpc::Status::OK;
  });
  const Outcome outcome = RunBenchOn(server.address(), {.requests = 2, .turns = 3});
  EXPECT_EQ(server.sessions.deleted().size(), 2u);
  EXPECT_EQ(outcome.phases.at(0).succeeded, 4u);
  EXPECT_THAT(outcome.phases.at(0).errors.by_code(), ElementsAre(Pair("ABORTED", 1)));
}

TEST(BenchDriverTest, ServerWithoutSessions) {
  FakeServer server;
  server.sessions.refuse = true;
  const Outcome outcome = RunBenchOn(server.address(), {.requests = 3, .turns = 2});
  EXPECT_EQ(outcome.phases.at(0).succeeded, 0u);
  EXPECT_THAT(outcome.phases.at(0).errors.by_code(), ElementsAre(Pair("UNIMPLEMENTED", 3)));
  EXPECT_EQ(server.inference.requests(), 0u);
}

TEST(BenchDriverTest, InterruptedSessionsAreDeleted) {
  FakeServer server;
  Cancellation cancellation;
  std::thread interrupter([&] {
    while (server.inference.tokens() < 50) std::this_thread::sleep_for(milliseconds(1));
    cancellation.Cancel();
  });
  RunBenchOn(server.address(),
             {.concurrency = 3,
              .output_tokens = LengthRange{.low = 1'000'000, .high = 1'000'000},
              .turns = 2},
             cancellation);
  interrupter.join();
  EXPECT_EQ(server.sessions.created(), 3);
  EXPECT_EQ(server.sessions.deleted().size(), 3u);
}

TEST(BenchDriverTest, InterferenceIsMeasuredWithAndWithout) {
  FakeServer server;
  const Outcome outcome = RunBenchOn(server.address(), {.concurrency = 3,
                                                        .duration_seconds = 0.3,
                                                        .prompt_tokens = {.low = 5, .high = 5},
                                                        .interfere_prompt = 4321});
  ASSERT_EQ(outcome.phases.size(), 2u);
  const PhaseStatistics& without = outcome.phases[0];
  const PhaseStatistics& with = outcome.phases[1];
  EXPECT_GT(without.token_gap.count(), 0u);
  EXPECT_GT(with.token_gap.count(), 0u);
  EXPECT_EQ(without.interference.succeeded, 0u);
  EXPECT_GT(with.interference.succeeded, 0u);
  EXPECT_EQ(server.inference.prompt_lengths().count(5), 3u);
  EXPECT_GE(server.inference.prompt_lengths().count(4321), with.interference.succeeded);
  EXPECT_EQ(without.errors.total() + with.errors.total(), 0u);
  // Never more than one at a time, beside the three streams.
  EXPECT_LE(server.inference.most_running(), 4);
}

TEST(BenchDriverTest, InterferenceWaitsForTheEndOfOnePrompt) {
  FakeServer server([](grpc::ServerContext&, const v1::GenerateRequest& request) {
    if (request.token_ids().ids_size() == 50) std::this_thread::sleep_for(milliseconds(400));
    return grpc::Status::OK;
  });
  const Outcome outcome =
      RunBenchOn(server.address(), {.duration_seconds = 0.1, .interfere_prompt = 50});
  EXPECT_EQ(outcome.phases.at(1).interference.succeeded, 1u);
}

TEST(BenchDriverTest, WarmUpWaitsForTheFirstTokens) {
  std::atomic<int> arrived{0};
  std::atomic<int64_t> first_answer{std::numeric_limits<int64_t>::max()};
  FakeServer server([&](grpc::ServerContext&, const v1::GenerateRequest&) {
    if (arrived.fetch_add(1) >= 3) return grpc::Status::OK;
    std::this_thread::sleep_for(milliseconds(200));
    first_answer = std::min<int64_t>(first_answer, Clock::now().time_since_epoch().count());
    return grpc::Status::OK;
  });
  const Outcome outcome =
      RunBenchOn(server.address(), {.concurrency = 3, .requests = 5, .warmup_seconds = 0.01});
  // A stream that was answered sends its next request, whose first token counts too: so it may
  // begin before the last of the three, but not before the first, for a warm-up of any length.
  EXPECT_GE(outcome.phases.at(0).begin.time_since_epoch().count(), first_answer);
  EXPECT_EQ(outcome.phases.at(0).succeeded, 5u);
}

TEST(BenchDriverTest, WarmUpIsNotMeasured) {
  FakeServer server;
  const Outcome outcome =
      RunBenchOn(server.address(), {.concurrency = 2, .requests = 5, .warmup_seconds = 0.2});
  EXPECT_EQ(outcome.phases.at(0).due, 5u);
  EXPECT_GT(server.inference.requests(), 5u);
  EXPECT_EQ(outcome.total_tokens, server.inference.tokens());
  EXPECT_LT(outcome.phases.at(0).output_tokens, server.inference.tokens());
}

}  // namespace
}  // namespace rivulet::cli::bench
