// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The signals of the program, received by a thread and passed on as calls or events, so that no
// code runs in a signal handler.
//
// Threading: only the thread that reads the user's input may call Wait.
#ifndef RIVULET_CLIENT_CLI_SIGNALS_H_
#define RIVULET_CLIENT_CLI_SIGNALS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <thread>

#include "kernels/base/mutex.h"

namespace rivulet::cli {

enum class InputEvent : uint8_t {
  kReadable,     // there is input, or its end
  kInterrupted,  // ctrl-C while no call ran
  kResized,      // the terminal's size has changed
  kResumed,      // the program continues after a stop
  kTerminated,   // SIGTERM, or the terminal is gone; all later calls return it too
};

class SignalWatcher {
 public:
  // Create it before any other thread, since threads inherit the blocked signals.
  SignalWatcher();
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // Waits for `descriptor` to become readable or for a signal.
  InputEvent Wait(int descriptor);

  bool terminated() const;

  // While it exists, ctrl-C, SIGTERM and SIGHUP call `on_signal` instead, on the signal thread,
  // with the number of such signals so far, from 1. `terminate`: it was not ctrl-C. One at a time.
  using OnSignal = std::function<void(int times, bool terminate)>;
  class DuringCall {
   public:
    DuringCall(SignalWatcher& signals, OnSignal on_signal);
    ~DuringCall();
    DuringCall(const DuringCall&) = delete;
    DuringCall& operator=(const DuringCall&) = delete;

   private:
    SignalWatcher& signals_;
  };

 private:
  void Watch();
  void Interrupt();
  void Terminate();
  void Send(InputEvent event);

  std::array<int, 2> pipe_ = {-1, -1};
  mutable Mutex mutex_;
  OnSignal on_signal_ ABSL_GUARDED_BY(mutex_);
  int times_ ABSL_GUARDED_BY(mutex_) = 0;
  bool terminated_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_SIGNALS_H_
