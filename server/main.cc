// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-server. Exit codes: 0 after a drain, --help or --version; 1 when it cannot serve; 2 for
// wrong flags. SIGTERM or SIGINT drains; a second one ends the process at once.
#include <semaphore.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "kernels/base/version.h"
#include "server/log/log.h"
#include "server/options.h"
#include "server/server_process.h"

namespace rivulet {
namespace {

sem_t stop_requested;
std::atomic<bool> serving{false};

// While the model loads there is nothing to drain.
void OnStopSignal(int signal) {
  if (!serving) std::_Exit(128 + signal);
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

int PrintVersion() {
  std::printf("rivulet-server %s (%s)\n", std::string(Version()).c_str(),
              std::string(Commit()).c_str());
  return 0;
}

int PrintHelp() {
  std::fputs(OptionsHelp().c_str(), stdout);
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

int Serve(const ServerOptions& options) {
  sem_init(&stop_requested, 0, 0);
  HandleStopSignals(&OnStopSignal);
  std::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  ServerProcess server(options);
  const absl::Status started = server.Start();
  if (!started.ok()) return Fail(1, started);
  serving = true;
  server.AnnounceReady();
  WaitForStopSignal();
  server.Drain();
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ServerOptions> options = ParseOptions(arguments);
  if (!options.ok()) return Fail(2, options.status());
  if (options->show_help) return PrintHelp();
  if (options->show_version) return PrintVersion();
  SetLogLevel(options->log_level);
  return Serve(*options);
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
