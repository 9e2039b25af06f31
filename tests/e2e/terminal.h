// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A program on a pseudo-terminal. Tests only.
//
// Threading: used by one thread; an internal thread collects the program's output.
#ifndef RIVULET_TESTS_E2E_TERMINAL_H_
#define RIVULET_TESTS_E2E_TERMINAL_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace rivulet::e2e {

class Terminal {
 public:
  // `environment` is added to PATH and TERM=xterm, which are all there is. The screen is 100 x 30.
  static std::unique_ptr<Terminal> Start(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& environment);
  // Kills the program if it runs.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Type(const std::string& keys);
  void Resize(int columns, int rows);

  // Waits until `text` was printed after what the last WaitFor found, and returns what stands
  // between the two; false in `found` once `limit` has passed or the program has ended.
  struct Found {
    bool found = false;
    std::string before;
  };
  Found WaitFor(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(60));

  // The exit code, or 128 + signal; -1 if it runs on after `limit`.
  int Wait(std::chrono::seconds limit = std::chrono::seconds(60));

  std::string output() const;
  size_t printed() const;  // bytes so far
  pid_t pid() const { return pid_; }

 private:
  Terminal(pid_t pid, int descriptor);
  void Gather();

  const pid_t pid_;
  const int descriptor_;
  bool reaped_ = false;
  mutable Mutex mutex_;
  CondVar changed_;
  std::string output_ ABSL_GUARDED_BY(mutex_);
  size_t searched_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reader_;  // last: it uses the others
};

}  // namespace rivulet::e2e

#endif  // RIVULET_TESTS_E2E_TERMINAL_H_
