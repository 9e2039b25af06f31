// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The signals of an interactive program, taken by a thread of their own and handed on as events, so
// that no code runs in a signal handler.
//
// Threading: Wait belongs to one thread, the one that reads the user's input.
#ifndef RIVULET_CLIENT_CLI_CHAT_SIGNALS_H_
#define RIVULET_CLIENT_CLI_CHAT_SIGNALS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <thread>

#include "kernels/base/mutex.h"

namespace rivulet::cli {

enum class InputEvent : uint8_t {
  kReadable,     // the input has something, or has ended
  kInterrupted,  // ctrl-C while no call ran
  kResized,      // the terminal has another size
  kResumed,      // the program was stopped, and goes on
  kTerminated,   // SIGTERM, or the terminal has gone; of all later calls too
};

class ChatSignals {
 public:
  // Make it before any other thread, so that all of them leave the signals to it.
  ChatSignals();
  ~ChatSignals();
  ChatSignals(const ChatSignals&) = delete;
  ChatSignals& operator=(const ChatSignals&) = delete;

  // Waits for `descriptor` to become readable or for a signal.
  InputEvent Wait(int descriptor);

  bool terminated() const;

  // While it lives, ctrl-C is told to `on_interrupt` instead, on the thread of the signals: how
  // often it was pressed, from 1. SIGTERM counts as twice. One at a time.
  class DuringCall {
   public:
    DuringCall(ChatSignals& signals, std::function<void(int times)> on_interrupt);
    ~DuringCall();
    DuringCall(const DuringCall&) = delete;
    DuringCall& operator=(const DuringCall&) = delete;

   private:
    ChatSignals& signals_;
  };

 private:
  void Watch();
  void Interrupt(int times);
  void Terminate();
  void Send(InputEvent event);

  std::array<int, 2> pipe_ = {-1, -1};
  mutable Mutex mutex_;
  std::function<void(int)> on_interrupt_ ABSL_GUARDED_BY(mutex_);
  int interrupts_ ABSL_GUARDED_BY(mutex_) = 0;
  bool terminated_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_SIGNALS_H_
