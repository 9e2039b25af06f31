// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/start_over.h"

#include <linux/close_range.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rivulet {
namespace {

constexpr char kVariable[] = "RIVULET_STARTED_OVER";
// Kernels fail at these waits for tests: n for the first program image, the next for the second.
constexpr char kFaults[] = "RIVULET_FAIL_CUDA_AT";

std::string ToText(const StartOver& state) {
  return absl::StrCat(state.failed.time_since_epoch().count(), ",", state.device_failures, ",",
                      state.grpc_port, ",", state.http_port);
}

bool IsPort(int port) { return port > 0 && port <= 65535; }

std::optional<StartOver> Parse(const char* text) {
  const std::vector<std::string> fields = absl::StrSplit(text, ',');
  int64_t ticks = 0;
  StartOver state;
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &ticks) ||
      !absl::SimpleAtoi(fields[1], &state.device_failures) ||
      !absl::SimpleAtoi(fields[2], &state.grpc_port) ||
      !absl::SimpleAtoi(fields[3], &state.http_port) || !IsPort(state.grpc_port) ||
      !IsPort(state.http_port)) {
    return std::nullopt;
  }
  state.failed = TimePoint(TimePoint::duration(ticks));
  const bool past = ticks >= 0 && state.failed <= Clock::now();
  return past ? std::optional(state) : std::nullopt;
}

void PassOnFaults() {
  const char* const faults = std::getenv(kFaults);
  const char* const rest = faults == nullptr ? nullptr : std::strchr(faults, ',');
  if (rest == nullptr) {
    unsetenv(kFaults);
  } else {
    setenv(kFaults, std::string(rest + 1).c_str(), 1);
  }
}

}  // namespace

std::optional<StartOver> StartedOver() {
  const char* const text = std::getenv(kVariable);
  if (text == nullptr) return std::nullopt;
  return Parse(text);
}

absl::Status ExecuteAgain(const std::string& program, const std::vector<std::string>& arguments,
                          const StartOver& state) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  alarm(0);
  setenv(kVariable, ToText(state).c_str(), 1);
  PassOnFaults();
  // At execution, so that this process still has them if that fails.
  close_range(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  execv(program.c_str(), argv.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot execute ", program));
}

}  // namespace rivulet
