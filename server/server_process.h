// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The running server: creates all parts, connects them, starts and ends them in order.
//
//   Start    HTTP (/readyz says 503) → load the model → engine → scheduler and its threads → gRPC
//   Drain    no new work (UNAVAILABLE), health NOT_SERVING, /readyz 503 → running streams finish
//            within --drain-seconds → the rest end with UNAVAILABLE → gRPC is shut down
//
// Threading: one thread (main).
#ifndef RIVULET_SERVER_SERVER_PROCESS_H_
#define RIVULET_SERVER_SERVER_PROCESS_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "model_loader/loaded_model.h"
#include "server/engine/engine.h"
#include "server/http/http_server.h"
#include "server/metrics/metrics.h"
#include "server/options.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/served_model.h"
#include "server/rpc/service_context.h"
#include "server/rpc/worker_pool.h"
#include "server/scheduler/dispatcher.h"
#include "server/scheduler/engine_loop.h"
#include "server/scheduler/scheduler.h"
#include "server/session/session_table.h"

namespace rivulet {

class ServerProcess {
 public:
  explicit ServerProcess(ServerOptions options);
  ~ServerProcess();  // cuts off what still runs
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Prints "http listening on HOST:PORT" to stdout. After a failure only destruction is allowed.
  absl::Status Start();
  // Prints "grpc listening on HOST:PORT" to stdout, which says that the server is ready; SIGTERM
  // may follow at once. REQUIRES: Start succeeded.
  void AnnounceReady();
  // REQUIRES: Start succeeded.
  void Drain();

 private:
  absl::Status StartHttp();
  absl::Status LoadModelAndEngine();
  void StartScheduler();
  absl::Status StartGrpc();
  void ShowModel();

  const ServerOptions options_;
  Metrics metrics_;
  CallCount calls_;
  std::atomic<bool> ready_{false};
  // Each uses those before it.
  std::unique_ptr<HttpServer> http_;
  std::shared_ptr<const LoadedModel> model_;
  ServedModel served_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<ServiceContext> context_;
  std::unique_ptr<GrpcServer> grpc_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVER_PROCESS_H_
