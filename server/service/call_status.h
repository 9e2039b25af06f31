// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What every door does with the status of a call.
#ifndef RIVULET_SERVER_SERVICE_CALL_STATUS_H_
#define RIVULET_SERVER_SERVICE_CALL_STATUS_H_

#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "server/scheduler/scheduler.h"

namespace rivulet {

// After how many milliseconds a refused request may be sent again, as decimal text; empty if
// waiting alone does not help.
inline std::string RetryAfterMs(const absl::Status& status) {
  const absl::optional<absl::Cord> retry = status.GetPayload(Scheduler::kRetryAfterPayload);
  if (retry.has_value()) return std::string(*retry);
  // The session's running turn has to end, and most turns are short.
  return status.code() == absl::StatusCode::kAborted ? "100" : "";
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

#endif  // RIVULET_SERVER_SERVICE_CALL_STATUS_H_
