// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/server_process.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "kernels/base/status.h"
#include "kernels/base/version.h"
#include "server/engine/cpu_engine.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two threads that parse and tokenize keep an engine busy with prompts.
constexpr size_t kPoolThreads = 2;
constexpr size_t kPoolWaiting = 1024;
// How long the drain waits for final messages to reach their clients.
constexpr seconds kFlushTime{2};

// Scripts and tests read these lines back, so they do not depend on --log-level.
void PrintAddress(const char* what, const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  std::printf("%s listening on %s%s%s:%d\n", what, ipv6 ? "[" : "", host.c_str(), ipv6 ? "]" : "",
              port);
  std::fflush(stdout);
}

// A line for each tenth of the load.
std::function<void(double, const std::string&)> ProgressLog() {
  return [shown = -1](double share, const std::string& what) mutable {
    const int tenth = static_cast<int>(share * 10);
    if (tenth == shown) return;
    shown = tenth;
    LogInfo("loading", {{"percent", tenth * 10}, {"now", what}});
  };
}

double SecondsSince(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ServerProcess::ServerProcess(ServerOptions options) : options_(std::move(options)) {
  metrics_.version = std::string(Version());
  metrics_.commit = std::string(Commit());
}

ServerProcess::~ServerProcess() {
  // gRPC's shutdown waits for its calls, which wait for the scheduler.
  if (scheduler_ == nullptr) return;
  scheduler_->StopAdmission();
  scheduler_->AbortAll(absl::UnavailableError("the server is shutting down"));
}

absl::Status ServerProcess::Start() {
  RIVULET_RETURN_IF_ERROR(StartHttp());
  RIVULET_RETURN_IF_ERROR(LoadModelAndEngine());
  StartScheduler();
  RIVULET_RETURN_IF_ERROR(StartGrpc());
  ready_ = true;
  return absl::OkStatus();
}

absl::Status ServerProcess::StartHttp() {
  HttpHandlers handlers;
  handlers.metrics_text = [this] { return PrometheusText(metrics_); };
  handlers.alive = [] { return GrpcServer::Accepts(); };
  handlers.ready = [this] { return ready_.load() && GrpcServer::Accepts(); };
  RIVULET_ASSIGN_OR_RETURN(
      http_, HttpServer::Start(options_.http.host, options_.http.port, std::move(handlers)));
  PrintAddress("http", options_.http.host, http_->port());
  return absl::OkStatus();
}

absl::Status ServerProcess::LoadModelAndEngine() {
  const TimePoint start = Clock::now();
  LoadOptions load;
  load.weight_dtype = options_.weight_dtype;
  load.mixer.state_dtype = options_.state_dtype;
  load.config_override = options_.config_override;
  load.mixer.level_overflow = options_.level_overflow;
  load.progress = ProgressLog();
  RIVULET_ASSIGN_OR_RETURN(model_, LoadModel(options_.model, load));
  EngineOptions engine;
  engine.threads = options_.threads;
  engine.state_memory = options_.state_memory;
  engine.state_context = options_.state_context;
  RIVULET_ASSIGN_OR_RETURN(engine_, MakeCpuEngine(model_, engine));
  served_ = DescribeModel(*model_, engine_->capacity());
  ShowModel();
  LogInfo("loaded", {{"model", served_.name},
                     {"architecture", served_.architecture},
                     {"parameters", served_.parameters},
                     {"weight_dtype", served_.weight_dtype},
                     {"state_dtype", served_.state_dtype},
                     {"state_bytes_per_session", served_.state_bytes_per_session},
                     {"state_slots", engine_->capacity().tail_slots},
                     {"threads", options_.threads},
                     {"seconds", SecondsSince(start)}});
  return absl::OkStatus();
}

void ServerProcess::ShowModel() {
  metrics_.model_name = served_.name;
  metrics_.architecture = served_.architecture;
  metrics_.weight_dtype = served_.weight_dtype;
  metrics_.state_dtype = served_.state_dtype;
  metrics_.model_known = true;
}

void ServerProcess::StartScheduler() {
  SchedulerOptions scheduler;
  scheduler.max_queue = options_.max_queue;
  scheduler.max_context = options_.max_context;
  scheduler.tokenizer = served_.tokenizer;
  scheduler.eos_ids = served_.eos_ids;
  scheduler.stall_limit = seconds(options_.stalled_client_seconds);
  SessionTable::Options sessions;
  sessions.time_to_live = seconds(options_.session_ttl);
  sessions_ = std::make_unique<SessionTable>(std::move(sessions), metrics_);
  dispatcher_ = std::make_unique<Dispatcher>();
  scheduler_ = std::make_unique<Scheduler>(*engine_, *sessions_, *dispatcher_, metrics_,
                                           std::move(scheduler));
  loop_ = std::make_unique<EngineLoop>(*engine_, *scheduler_);
}

absl::Status ServerProcess::StartGrpc() {
  pool_ = std::make_unique<WorkerPool>(kPoolThreads, kPoolWaiting);
  context_ = std::make_unique<ServiceContext>(ServiceContext{
      served_, *scheduler_, *sessions_, *pool_, metrics_, calls_, options_.max_prompt});
  RIVULET_ASSIGN_OR_RETURN(
      grpc_, GrpcServer::Start(options_.listen.host, options_.listen.port, *context_));
  return absl::OkStatus();
}

void ServerProcess::AnnounceReady() { PrintAddress("grpc", options_.listen.host, grpc_->port()); }

void ServerProcess::Drain() {
  LogInfo("draining", {{"seconds_at_most", options_.drain_seconds}});
  ready_ = false;
  metrics_.draining.Set(1);
  grpc_->SetServing(false);
  scheduler_->StopAdmission();
  grpc_->EndIdleStreams();
  if (!scheduler_->WaitUntilIdle(Clock::now() + seconds(options_.drain_seconds))) {
    LogWarning("drain_cut_off", {{"requests_running", metrics_.requests_running.value()},
                                 {"requests_waiting", metrics_.requests_waiting.value()}});
    scheduler_->AbortAll(absl::UnavailableError(
        "the server is shutting down and --drain-seconds are over; send the request elsewhere"));
  }
  grpc_->Shutdown(kFlushTime);
  LogInfo("drained");
}

}  // namespace rivulet
