// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-server. Exit codes: 0 after a drain, --help or --version; 1 when it cannot serve; 2 for
// wrong flags. SIGTERM or SIGINT drains; a second one ends the process at once. After an error of
// the GPU the process may execute itself again (start_over.h).
#include <semaphore.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/base/version.h"
#include "model_loader/loaded_model.h"
#include "model_loader/model_folder.h"
#include "server/access_control.h"
#include "server/console/console.h"
#include "server/draft_sources.h"
#include "server/engine/cpu_engine.h"
#include "server/engine/device_engine.h"
#include "server/http/http_server.h"
#include "server/http/operations.h"
#include "server/kserve/infer_door.h"
#include "server/log/load_progress.h"
#include "server/log/log.h"
#include "server/openai/door.h"
#include "server/options.h"
#include "server/rpc/grpc_server.h"
#include "server/scheduler/engine_loop.h"
#include "server/start_over.h"
#include "server/vllm/engine_door.h"

namespace rivulet {
namespace {

using std::chrono::seconds;

// Two threads that parse and tokenize keep an engine busy with prompts.
constexpr size_t kPoolThreads = 2;
constexpr size_t kPoolWaiting = 1024;
// How long the drain waits for final messages to reach their clients.
constexpr seconds kFlushTime{2};
// How long the rest of the shutdown may take, which needs milliseconds.
constexpr seconds kShutdownTime{10};

// Without memory for a thread, gRPC loses calls and then waits for them for ever
// (docs/architecture.md#when-memory-runs-out).
void OnShutdownTimeout(int) {
  constexpr char kText[] = "rivulet-server: error: the shutdown hangs; the process ends at once\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) std::_Exit(1);
  std::_Exit(1);
}

void EndWithin(seconds time) {
  std::signal(SIGALRM, &OnShutdownTimeout);
  alarm(static_cast<unsigned>(time.count()));
}

// Scripts and tests read these lines back, so they do not depend on --log-level.
void PrintAddress(const char* what, const std::string& host, int port) {
  std::printf("%s listening on %s\n", what, Address(host, port).c_str());
  std::fflush(stdout);
}

// The running server: creates all parts, connects them, starts and ends them in order.
//
//   Start    HTTP (/readyz says 503) → load the model → engine → scheduler and its threads → gRPC
//   Drain    no new work (UNAVAILABLE), health NOT_SERVING, /readyz 503 → running streams finish
//            within --drain-seconds → the rest end with UNAVAILABLE → gRPC is shut down
class ServerProcess {
 public:
  // `end` asks the main thread for Drain, because the device is lost to this process; any thread
  // calls it.
  ServerProcess(ServerOptions options, const std::optional<StartOver>& before,
                std::function<void()> end)
      : options_(std::move(options)), before_(before), end_(std::move(end)) {
    if (before.has_value()) {
      metrics_.device_failures.Add(before->device_failures);
      if (options_.listen.port == 0) options_.listen.port = before->grpc_port;
      if (options_.http.port == 0) options_.http.port = before->http_port;
    }
    metrics_.version = std::string(Version());
    metrics_.commit = std::string(Commit());
  }
  // Cuts off what still runs. gRPC's shutdown waits for its calls, which wait for the scheduler.
  ~ServerProcess() {
    if (scheduler_ == nullptr) return;
    access_->OnTenants(nullptr);
    scheduler_->StopAdmission();
    scheduler_->AbortAll(absl::UnavailableError("the server is shutting down"));
  }

  // Prints "http listening on HOST:PORT" to stdout. After a failure only destruction is allowed.
  absl::Status Start() {
    RIVULET_RETURN_IF_ERROR(CheckDraftFiles(options_));
    RIVULET_ASSIGN_OR_RETURN(access_, AccessControl::Open(options_, metrics_));
    RIVULET_RETURN_IF_ERROR(StartHttp());
    RIVULET_RETURN_IF_ERROR(LoadModelAndEngine());
    RIVULET_ASSIGN_OR_RETURN(drafts_,
                             MakeDrafterSource(options_, served_.tokenizer, *engine_, metrics_));
    StartScheduler();
    RIVULET_RETURN_IF_ERROR(StartGrpc());
    door_ = std::make_unique<openai::Door>(*http_, OtherRoutes(), *context_, Hosts());
    ready_ = true;
    SetServing(device_works_);
    return absl::OkStatus();
  }

  // REQUIRES for both: Start succeeded. The first prints "grpc listening on HOST:PORT" to stdout,
  // which says that the server is ready; SIGTERM may follow at once.
  void AnnounceReady() {
    PrintAddress("grpc", options_.listen.host, grpc_->port());
    if (!before_.has_value()) return;
    LogWarning("device_restarted", {{"seconds", Seconds(Clock::now() - before_->failed)}});
  }
  void Drain() {
    LogInfo("draining", {{"seconds_at_most", options_.drain_seconds}});
    ready_ = false;
    metrics_.draining.Set(1);
    SetServing(false);
    scheduler_->StopAdmission();
    grpc_->EndIdleStreams();
    if (!scheduler_->WaitUntilIdle(Clock::now() + seconds(options_.drain_seconds))) {
      LogWarning("drain_cut_off", {{"requests_running", metrics_.requests_running.value()},
                                   {"requests_waiting", metrics_.requests_waiting.value()}});
      scheduler_->AbortAll(absl::UnavailableError(
          "the server is shutting down and --drain-seconds are over; send the request elsewhere"));
    }
    EndWithin(kFlushTime + kShutdownTime);
    grpc_->Shutdown(kFlushTime);  // waits for the calls of both ports
    door_.reset();
    LogInfo("drained");
  }

  // Set: the device failed, and this process cannot use it again. REQUIRES: Start succeeded.
  std::optional<StartOver> start_over() const {
    if (!device_gone_) return std::nullopt;
    return StartOver{.failed = failed_,
                     .device_failures = metrics_.device_failures.value(),
                     .grpc_port = grpc_->port(),
                     .http_port = http_->port()};
  }

 private:
  // Beside the API's, and while the model loads.
  std::vector<HttpRoute> OtherRoutes() {
    std::vector<HttpRoute> routes = Operations();
    for (HttpRoute& route : ConsoleRoutes()) routes.push_back(std::move(route));
    return routes;
  }

  std::vector<HttpRoute> Operations() {
    OperationsHandlers handlers;
    handlers.metrics_text = [this] {
      return PrometheusText(metrics_, access_->authenticator().metrics());
    };
    handlers.alive = [] { return GrpcServer::Accepts(); };
    handlers.ready = [this] { return ready_ && device_works_ && GrpcServer::Accepts(); };
    return OperationsRoutes(std::move(handlers));
  }

  // A page that a browser has from elsewhere has no token.
  AllowedHosts Hosts() const {
    if (!IsLoopback(options_.http.host) || !options_.tokens.empty()) return {};
    return AllowedHosts(options_.http_hosts);
  }

  absl::Status StartHttp() {
    HttpLimits limits;
    limits.write_time = seconds(options_.stalled_client_seconds);
    RIVULET_ASSIGN_OR_RETURN(
        http_, HttpServer::Start(
                   options_.http.host, options_.http.port,
                   openai::RoutesWhileLoading(OtherRoutes(), access_->authenticator(), Hosts()),
                   metrics_, limits, access_->tls()));
    PrintAddress("http", options_.http.host, http_->port());
    return absl::OkStatus();
  }

  // For health checks. Any thread.
  void SetServing(bool serving) {
    MutexLock lock(&serving_mutex_);
    if (grpc_ != nullptr) grpc_->SetServing(serving && ready_);
  }

  LoadOptions HowToLoad() const {
    LoadOptions load;
    load.weight_dtype = options_.weight_dtype;
    load.threads = options_.threads;
    load.packed_cache = options_.packed_cache;
    load.mixer.state_dtype = options_.state_dtype;
    load.mixer.kv_dtype = options_.kv_dtype;
    load.predictor = options_.speculate == Speculation::kMtp;
    load.mixer.drafts = options_.speculate != Speculation::kOff;
    load.config_override = options_.config_override;
    load.mixer.level_overflow = options_.level_overflow;
    load.progress = LoadProgress();
    return load;
  }

  // At the start, and after a failure of the device.
  absl::StatusOr<DeviceAndModel> OpenDevice() {
    LoadOptions load = HowToLoad();
    const bool exact = options_.weight_dtype == DType::kFloat32;
    DeviceAndModel opened;
    RIVULET_ASSIGN_OR_RETURN(opened.device, OpenCudaDevice(exact ? ProductPrecision::kFloat32
                                                                 : ProductPrecision::kBFloat16));
    const Device& device = *opened.device;
    device_name_ = device.name();
    LogInfo("device", {{"name", device.name()},
                       {"free_bytes", device.free_bytes()},
                       {"cublaslt", CublasLtIsLoaded() ? "yes" : "no"}});
    if (!CublasLtIsLoaded()) {
      LogWarning("cublaslt_missing",
                 {{"effect", "products of many tokens are slower: prompts, and many streams"},
                  {"remedy", "install libcublasLt.so.13, or name its folder in LD_LIBRARY_PATH"}});
    }
    load.mixer.device = opened.device.get();
    if (!exact) load.weight_dtype = options_.weight_dtype.value_or(DType::kBFloat16);
    kv_dtype_ = load.mixer.KvDType();
    RIVULET_ASSIGN_OR_RETURN(opened.model, LoadModel(options_.model, load));
    ShowLoad(*opened.model);
    model_ = opened.model;
    return opened;
  }

  absl::Status MakeEngine() {
    EngineOptions engine = {.threads = options_.threads, .state_context = options_.state_context};
    if (options_.state_memory != 0 || options_.cuda) engine.state_memory = options_.state_memory;
    if (options_.cuda) {
      RIVULET_ASSIGN_OR_RETURN(
          engine_, MakeDeviceEngine([this] { return OpenDevice(); }, engine, /*depth=*/2));
      return absl::OkStatus();
    }
    const LoadOptions load = HowToLoad();
    kv_dtype_ = load.mixer.KvDType();
    RIVULET_ASSIGN_OR_RETURN(model_, LoadModel(options_.model, load));
    ShowLoad(*model_);
    RIVULET_ASSIGN_OR_RETURN(engine_, MakeCpuEngine(model_, engine));
    return absl::OkStatus();
  }

  absl::Status SizePrefixCache() {
    const uint64_t states = StateBytes(engine_->capacity());
    prefix_cache_bytes_ = options_.prefix_cache.value_or(states / 2);
    if (prefix_cache_bytes_ <= states) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--prefix-cache is ", prefix_cache_bytes_, " bytes, a part of the ", states,
                     " that --state-memory has for states: give at most that, or auto or off"));
  }

  absl::Status LoadModelAndEngine() {
    const TimePoint start = Clock::now();
    RIVULET_RETURN_IF_ERROR(MakeEngine());
    RIVULET_RETURN_IF_ERROR(SizePrefixCache());
    served_ = DescribeModel(*model_, engine_->capacity());
    served_.info.set_speculate(kSpeculationNames[static_cast<size_t>(options_.speculate)]);
    if (served_.tokenizer != nullptr) {
      served_.grammars = std::make_shared<GrammarStore>(*served_.tokenizer);
    }
    const std::string commit = model_->commit;
    const PackedCacheUse packed_cache = model_->packed_cache;
    for (const std::string& key : model_->added_keys) LogInfo("config_key_added", {{"key", key}});
    model_.reset();  // the engine has it
    const v1::Model& info = served_.info;
    ShowModel(info);
    if (!commit.empty()) LogInfo("snapshot", {{"model", info.name()}, {"commit", commit}});
    for (const std::string& part : served_.left_out) LogInfo("not_loaded", {{"part", part}});
    ShowPackedCache(packed_cache);
    ShowDeviceMemory();
    LogInfo("loaded", {{"model", info.name()},
                       {"architecture", info.architecture()},
                       {"parameters", info.parameters()},
                       {"weight_dtype", info.weight_dtype()},
                       {"state_dtype", info.state_dtype()},
                       {"kv_dtype", DTypeName(kv_dtype_)},
                       {"state_bytes_per_session", info.state_bytes_per_session()},
                       {"state_slots", engine_->capacity().tail_slots},
                       {"prefix_cache_bytes", prefix_cache_bytes_},
                       {"threads", options_.threads},
                       {"seconds", Seconds(Clock::now() - start)}});
    return absl::OkStatus();
  }

  void ShowLoad(const LoadedModel& model) {
    const bool packed = model.packed_cache.read;
    const uint64_t bytes = packed ? model.packed_cache.bytes : model.checkpoint_bytes;
    metrics_.model_load_milliseconds.Set(std::llround(1000 * model.load_seconds));
    metrics_.model_load_bytes.Set(static_cast<int64_t>(bytes));
    metrics_.weights_were_packed = packed;
  }

  void ShowPackedCache(const PackedCacheUse& use) {
    if (options_.cuda && !options_.packed_cache.empty()) {
      LogWarning("packed_cache_unused", {{"error", "--device cuda packs its own weights"}});
    }
    if (!use.unused.ok()) {
      LogWarning("packed_cache_unused", {{"error", std::string(use.unused.message())}});
    }
    if (use.read) LogInfo("packed_cache_read", {{"file", use.path}, {"seconds", use.seconds}});
    if (use.written) {
      LogInfo("packed_cache_written", {{"file", use.path}, {"seconds", use.seconds}});
    }
    if (!use.failed.ok()) {
      LogWarning("packed_cache_not_written", {{"error", std::string(use.failed.message())}});
    }
  }

  void ShowDeviceMemory() {
    const DeviceMemory memory = engine_->memory();
    const auto set = [](Gauge& gauge, uint64_t bytes) { gauge.Set(static_cast<int64_t>(bytes)); };
    set(metrics_.device_weights, memory.weights);
    set(metrics_.device_bases, memory.bases);
    set(metrics_.device_tails, memory.tails);
    set(metrics_.device_pages, memory.pages);
    set(metrics_.device_temporaries, memory.temporaries);
    set(metrics_.device_free, memory.free);
  }

  // On the engine thread.
  DeviceFailureHandlers WhenTheDeviceFails() {
    DeviceFailureHandlers handlers;
    if (before_.has_value()) handlers.last_failure = before_->failed;
    handlers.failed = [this](const absl::Status& /*why*/) {
      metrics_.device_failures.Add();
      device_works_ = false;
      SetServing(false);
    };
    handlers.restarted = [this] {
      model_.reset();
      ShowDeviceMemory();
      device_works_ = true;
      SetServing(true);
    };
    handlers.start_over = [this](const absl::Status& /*why*/, TimePoint failed) {
      failed_ = failed;
      device_gone_ = true;
      end_();
    };
    handlers.gave_up = [](const absl::Status& why) {
      const std::string message(why.message());
      std::fprintf(stderr, "rivulet-server: error: the GPU failed and is given up: %s\n",
                   message.c_str());
      std::_Exit(1);
    };
    return handlers;
  }

  void ShowModel(const v1::Model& info) {
    metrics_.model_name = info.name();
    metrics_.architecture = info.architecture();
    metrics_.weight_dtype = info.weight_dtype();
    metrics_.state_dtype = info.state_dtype();
    metrics_.kv_dtype = DTypeName(kv_dtype_);
    metrics_.device = device_name_;
    metrics_.model_known = true;
  }

  void StartScheduler() {
    SchedulerOptions scheduler;
    scheduler.max_queue = options_.max_queue;
    scheduler.max_context = options_.max_context;
    scheduler.max_session_tokens = options_.max_session_tokens;
    scheduler.keep_positions = options_.keep_positions;
    scheduler.keep_borders = options_.keep_borders.value_or(kAutomaticBorders);
    scheduler.prompt_borders = options_.prompt_borders.value_or(kAutomaticBorders);
    scheduler.drafts.source = drafts_.get();
    scheduler.drafts.most = options_.draft_tokens;
    scheduler.prefix_cache.bytes = prefix_cache_bytes_;
    scheduler.tokenizer = served_.tokenizer;
    scheduler.eos_ids = served_.eos_ids;
    scheduler.stall_limit = seconds(options_.stalled_client_seconds);
    SessionTable::Options sessions;
    sessions.time_to_live = seconds(options_.session_ttl);
    sessions_ = std::make_unique<SessionTable>(std::move(sessions), metrics_);
    dispatcher_ = std::make_unique<Dispatcher>();
    scheduler_ = std::make_unique<Scheduler>(*engine_, *sessions_, *dispatcher_, metrics_,
                                             std::move(scheduler));
    loop_ = std::make_unique<EngineLoop>(*engine_, *scheduler_, WhenTheDeviceFails());
    access_->OnTenants([this](TenantNames names) { sessions_->ServeTenants(std::move(names)); });
  }

  absl::StatusOr<GrpcDoors> MakeDoors() const {
    RIVULET_ASSIGN_OR_RETURN(const ModelFolder folder, FindModelFolder(options_.model));
    GrpcDoors doors;
    doors.push_back(vllm_engine::MakeDoor(*context_, folder.directory));
    doors.push_back(kserve::MakeDoor(*context_));
    return doors;
  }

  absl::Status StartGrpc() {
    pool_ = std::make_unique<WorkerPool>(kPoolThreads, kPoolWaiting);
    context_ = std::make_unique<ServiceContext>(
        ServiceContext{served_, *scheduler_, *sessions_, *pool_, metrics_, calls_,
                       access_->authenticator(), options_.max_prompt});
    RIVULET_ASSIGN_OR_RETURN(GrpcDoors doors, MakeDoors());
    RIVULET_ASSIGN_OR_RETURN(std::unique_ptr<GrpcServer> grpc,
                             GrpcServer::Start(options_.listen.host, options_.listen.port,
                                               *context_, access_->tls(), std::move(doors)));
    MutexLock lock(&serving_mutex_);
    grpc_ = std::move(grpc);
    return absl::OkStatus();
  }

  ServerOptions options_;  // constant from the constructor on
  const std::optional<StartOver> before_;
  const std::function<void()> end_;
  TimePoint failed_;  // set before device_gone_
  std::atomic<bool> device_gone_{false};
  Metrics metrics_;
  CallCount calls_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> device_works_{true};
  Mutex serving_mutex_;
  // Each uses those before it.
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<HttpServer> http_;
  std::shared_ptr<const LoadedModel> model_;  // while it is loaded; then the engine's alone
  DType kv_dtype_ = DType::kFloat32;
  std::string device_name_ = "cpu";
  uint64_t prefix_cache_bytes_ = 0;
  ServedModel served_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<DrafterSource> drafts_;  // null: none
  std::unique_ptr<SessionTable> sessions_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<ServiceContext> context_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<openai::Door> door_;
};

sem_t stop_requested;
std::atomic<bool> serving{false};
std::atomic<bool> stop_signalled{false};

// While the model loads there is nothing to drain.
void OnStopSignal(int signal) {
  if (!serving) std::_Exit(128 + signal);
  stop_signalled = true;
  sem_post(&stop_requested);  // one of the few calls that a handler may make
}

void HandleStopSignals(void (*handler)(int)) {
  std::signal(SIGTERM, handler);
  std::signal(SIGINT, handler);
}

void WaitForStopSignal() {
  while (sem_wait(&stop_requested) != 0) continue;  // EINTR
  HandleStopSignals(SIG_DFL);
}

int Fail(int code, const absl::Status& status) {
  const std::string message(status.message());
  std::fprintf(stderr, "rivulet-server: error: %s\n", message.c_str());
  return code;
}

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

// gRPC 1.51 never accepts again once a connection has found no file descriptor, and the usual soft
// limit of 1024 is too low.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Set: the next program image should serve on. Else the exit code is in `code`.
std::optional<StartOver> RunServer(const ServerOptions& options, int& code) {
  ServerProcess server(options, StartedOver(), [] { sem_post(&stop_requested); });
  const absl::Status started = server.Start();
  code = started.ok() ? 0 : Fail(1, started);
  if (!started.ok()) return std::nullopt;
  serving = true;
  server.AnnounceReady();
  WaitForStopSignal();
  server.Drain();
  if (stop_signalled) return std::nullopt;
  return server.start_over();
}

int Serve(const ServerOptions& options, std::vector<std::string> arguments) {
  sem_init(&stop_requested, 0, 0);
  HandleStopSignals(&OnStopSignal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow: the write fails, and that is said
  RaiseDescriptorLimit();
  int code = 0;
  const std::optional<StartOver> next = RunServer(options, code);
  if (!next.has_value()) return code;
  arguments.insert(arguments.begin(), "rivulet-server");
  return Fail(1, ExecuteAgain("/proc/self/exe", arguments, *next));
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ServerOptions> options = ParseOptions(arguments);
  if (!options.ok()) return Fail(2, options.status());
  if (options->show_help) return Print(OptionsHelp());
  if (options->show_version) {
    return Print("rivulet-server " + std::string(Version()) + " (" + std::string(Commit()) + ")\n");
  }
  SetLogLevel(options->log_level);
  return Serve(*options, arguments);
}

}  // namespace
}  // namespace rivulet

// Our code does not throw; what the standard library throws at the start (no memory, no threads)
// ends it with a message.
int main(int argc, char** argv) {
  try {
    return rivulet::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rivulet-server: %s\n", error.what());
    return 1;
  }
}
