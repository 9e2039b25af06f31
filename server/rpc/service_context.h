// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_RPC_SERVICE_CONTEXT_H_
#define RIVULET_SERVER_RPC_SERVICE_CONTEXT_H_

#include <cstdint>

#include "server/metrics/metrics.h"
#include "server/rpc/call_count.h"
#include "server/rpc/served_model.h"
#include "server/rpc/worker_pool.h"
#include "server/scheduler/scheduler.h"
#include "server/session/session_table.h"

namespace rivulet {

// What every method needs; all of it outlives the gRPC server. Threading: each part as its own
// header says.
struct ServiceContext {
  const ServedModel& model;
  Scheduler& scheduler;
  SessionTable& sessions;
  WorkerPool& pool;
  Metrics& metrics;
  CallCount& calls;
  uint32_t max_prompt = 0;  // --max-prompt, tokens
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SERVICE_CONTEXT_H_
