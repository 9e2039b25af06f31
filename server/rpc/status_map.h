// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// absl::Status → what a gRPC client sees.
#ifndef RIVULET_SERVER_RPC_STATUS_MAP_H_
#define RIVULET_SERVER_RPC_STATUS_MAP_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "server/scheduler/scheduler.h"

namespace rivulet {

// Trailing metadata with the milliseconds after which a refused request may be sent again.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";
// For ABORTED: the session's running turn has to end, and most turns are short.
inline constexpr char kBusyRetryMs[] = "100";
// gRPC sends messages in a header, and peers limit those to 8 KiB.
inline constexpr size_t kMaxErrorBytes = 4096;

// The codes of both are the same numbers.
inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message().substr(0, kMaxErrorBytes));
  if (status.message().size() > kMaxErrorBytes) message += " ...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

// Ends a call of any kind of reactor, with what the status says beyond code and message. `context`
// must still live.
template <typename Reactor>
void FinishCall(Reactor& reactor, grpc::ServerContextBase& context, const absl::Status& status) {
  const absl::optional<absl::Cord> retry = status.GetPayload(Scheduler::kRetryAfterPayload);
  if (retry.has_value()) {
    context.AddTrailingMetadata(kRetryAfterKey, std::string(*retry));
  } else if (status.code() == absl::StatusCode::kAborted) {
    context.AddTrailingMetadata(kRetryAfterKey, kBusyRetryMs);
  }
  reactor.Finish(ToGrpcStatus(status));
}

// The worker pool holds as many calls as it may.
inline absl::Status TooManyCalls() {
  absl::Status status =
      absl::ResourceExhaustedError("too many calls are waiting to be read; try again later");
  status.SetPayload(Scheduler::kRetryAfterPayload, absl::Cord("1000"));
  return status;
}

// For a call that the process has no memory for.
inline absl::Status NoMemory() {
  static const auto* const kStatus = new absl::Status(absl::ResourceExhaustedError(
      "the server has no memory left for this request; send less, or try again later"));
  return *kStatus;  // made before memory ran out: copying it takes none
}

// Runs `work` and returns its status. For every task of a worker and every message that is built.
template <typename Work>
absl::Status OrNoMemory(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_STATUS_MAP_H_
