// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace rivulet::cli {
namespace {

// SIGUSR1 ends the watcher itself.
sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int s : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT, SIGUSR1}) sigaddset(&signals, s);
  return signals;
}

}  // namespace

SignalWatcher::SignalWatcher() {
  signal(SIGPIPE, SIG_IGN);  // a closed stdout makes writes fail
  // One pending event of each kind is enough, so a full pipe may drop others. Without descriptors
  // for the pipe, ctrl-C still ends calls.
  if (pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0) pipe_ = {-1, -1};
  const sigset_t signals = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatcher::~SignalWatcher() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
  for (int end : pipe_) close(end);
}

InputEvent SignalWatcher::Wait(int descriptor) {
  for (;;) {
    if (terminated()) return InputEvent::kTerminated;
    pollfd waiting[2] = {{descriptor, POLLIN, 0}, {pipe_[0], POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return InputEvent::kTerminated;
    InputEvent event{};
    if (waiting[1].revents != 0 && read(pipe_[0], &event, 1) == 1) return event;
    if (waiting[0].revents != 0) return InputEvent::kReadable;
  }
}

bool SignalWatcher::terminated() const {
  MutexLock lock(&mutex_);
  return terminated_;
}

void SignalWatcher::Send(InputEvent event) { (void)!write(pipe_[1], &event, 1); }

void SignalWatcher::Interrupt() {
  MutexLock lock(&mutex_);
  if (!on_signal_) return Send(InputEvent::kInterrupted);
  on_signal_(++times_, /*terminate=*/false);
}

void SignalWatcher::Terminate() {
  MutexLock lock(&mutex_);
  terminated_ = true;
  Send(InputEvent::kTerminated);
  if (on_signal_) on_signal_(++times_, /*terminate=*/true);
}

void SignalWatcher::Watch() {
  const sigset_t signals = WatchedSignals();
  for (int received = 0;;) {
    sigwait(&signals, &received);
    if (received == SIGUSR1) return;
    if (received == SIGINT) Interrupt();
    if (received == SIGTERM || received == SIGHUP) Terminate();
    if (received == SIGWINCH) Send(InputEvent::kResized);
    if (received == SIGCONT) Send(InputEvent::kResumed);
  }
}

SignalWatcher::DuringCall::DuringCall(SignalWatcher& signals, OnSignal on_signal)
    : signals_(signals) {
  MutexLock lock(&signals_.mutex_);
  signals_.on_signal_ = std::move(on_signal);
  signals_.times_ = 0;
}

SignalWatcher::DuringCall::~DuringCall() {
  MutexLock lock(&signals_.mutex_);
  signals_.on_signal_ = nullptr;
}

}  // namespace rivulet::cli
