// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How long steps of one kind take on a device, so that a thread can sleep through most of a step
// and poll for the rest of it. A thread that sleeps until the device wakes it comes 30 to 60 µs
// late, and one that polls all the time keeps a core busy. Short steps are not slept through.
//
// Not thread-safe. Does not sleep or read a clock itself.
#ifndef RIVULET_SERVER_ENGINE_STEP_TIMES_H_
#define RIVULET_SERVER_ENGINE_STEP_TIMES_H_

#include <chrono>
#include <cstddef>
#include <vector>

namespace rivulet {

class StepTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // Kinds are numbered from 0.
  explicit StepTimes(size_t kinds) : expected_(kinds) {}

  // How long a thread may sleep after such a step has begun; zero: not at all.
  Clock::duration Sleep(size_t kind) const;

  // Such a step took so long on the device.
  void Learn(size_t kind, Clock::duration took);

 private:
  std::vector<Clock::duration> expected_;  // zero: nothing is known
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STEP_TIMES_H_
