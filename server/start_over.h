// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Starting the server over in the same process id. After some errors of a GPU the driver gives the
// process no new context, however long it waits; a fresh program image gets one. The server then
// ends as in a drain and executes itself again, with the arguments that it was started with. What
// has to outlast that travels in an environment variable.
//
// Threading: the main thread, after all others have ended.
#ifndef RIVULET_SERVER_START_OVER_H_
#define RIVULET_SERVER_START_OVER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/scheduler/plan.h"

namespace rivulet {

// What the next program image has to know of this one.
struct StartOver {
  TimePoint failed;                  // when the device failed, of a clock that all processes share
  uint64_t device_failures = 0;      // as the metric counts them
  int grpc_port = 0, http_port = 0;  // where clients look for it, also if the flags say "any"
};

// Of this process; nullopt: it was started by others, or the variable makes no sense.
std::optional<StartOver> StartedOver();

// Replaces this process by `program`, which finds `state` by StartedOver. Descriptors above stderr
// are closed, a pending alarm is taken back. Returns only after a failure, when the process must
// end.
absl::Status ExecuteAgain(const std::string& program, const std::vector<std::string>& arguments,
                          const StartOver& state);

}  // namespace rivulet

#endif  // RIVULET_SERVER_START_OVER_H_
