// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_RPC_DEADLINE_H_
#define RIVULET_SERVER_RPC_DEADLINE_H_

#include <grpcpp/server_context.h>

#include <chrono>

#include "server/scheduler/request.h"

namespace rivulet {

// The client's deadline on our clock; kNoDeadline if it has none.
inline TimePoint DeadlineOf(const grpc::ServerContextBase& context) {
  // gRPC represents "none" by a time far away, which would overflow our clock.
  constexpr auto kFarAway = std::chrono::hours(24 * 365);
  const auto deadline = context.deadline();
  const auto now = std::chrono::system_clock::now();
  if (deadline > now + kFarAway) return kNoDeadline;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline - now);
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_DEADLINE_H_
