// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The real rivulet-server as a child process, for tests. Ports are chosen by the kernel and read
// back from what the server prints. To debug one, set RIVULET_E2E_PAUSE=1: each server's process id
// is printed, and the test waits for ENTER, so that a debugger can be attached.
#ifndef RIVULET_TESTS_E2E_SERVER_PROCESS_H_
#define RIVULET_TESTS_E2E_SERVER_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

namespace rivulet::e2e {

// The result of a child process that has ended.
struct Exit {
  int code = -1;        // exit code, or 128 + signal
  bool killed = false;  // by a signal
  std::string output;   // stdout and stderr together, in order of writing
};

// A child process whose output is gathered while it runs. Killed (SIGKILL) and reaped on
// destruction.
class ChildProcess {
 public:
  // `arguments[0]` is the program. `input` is its standard input.
  static std::unique_ptr<ChildProcess> Start(const std::vector<std::string>& arguments,
                                             const std::string& input = "");
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int signal);
  // Waits for the end; kills the child when it takes longer than `limit` (code 128 + 9).
  Exit Wait(std::chrono::seconds limit);
  // What was written so far.
  std::string output() const;
  // The rest of the first line that contains `marker`, after it; empty if the child ended, or
  // `limit` passed, without one.
  std::string WaitForLine(const std::string& marker, std::chrono::seconds limit);

  pid_t pid() const { return pid_; }

 private:
  ChildProcess() = default;
  void Gather(int descriptor);

  pid_t pid_ = -1;
  std::thread reader_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::string output_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Runs a program to its end.
Exit RunProgram(const std::vector<std::string>& arguments, const std::string& input = "",
                std::chrono::seconds limit = std::chrono::seconds(60));

// build/<preset>/bin/NAME: RIVULET_BIN_DIR, which ctest sets, or beside this test's own folder.
std::string Binary(const std::string& name);
// A file or folder of the checkout: RIVULET_SOURCE_DIR, or the working directory.
std::string SourcePath(const std::string& relative);

class ServerProcess {
 public:
  // Starts rivulet-server on `model` with two ports of the kernel's choice and more `flags`, and
  // waits until it listens. Fails with the server's output when it ends instead.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::string& model, const std::vector<std::string>& flags = {});

  const std::string& address() const { return address_; }
  const std::string& http_address() const { return http_address_; }
  ChildProcess& process() { return *process_; }

  // SIGTERM, then the exit.
  Exit Stop();

 private:
  std::unique_ptr<ChildProcess> process_;
  std::string address_;
  std::string http_address_;
};

// The body of GET http://ADDRESS/PATH, and its status code.
struct HttpAnswer {
  int status = 0;
  std::string body;
};
HttpAnswer HttpGet(const std::string& address, const std::string& path);

// The value of the first line of a metrics page that begins with `name`; -1 if there is none.
double Metric(const std::string& page, const std::string& name);

}  // namespace rivulet::e2e

#endif  // RIVULET_TESTS_E2E_SERVER_PROCESS_H_
