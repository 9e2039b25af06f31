// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine: one model on one device with the slots that its sessions' states live in. It runs
// steps and hands out slots; it decides nothing about which row runs when (server/scheduler does).
//
// Everything happens in the order of the calls: a launched step reads and writes the slots before
// anything that a later call does to them. So a slot that a running step still uses may be released
// and acquired again at once.
//
// Threading: every method on the engine thread alone, except capacity() and vocab_size(), which are
// constant.
#ifndef RIVULET_SERVER_ENGINE_ENGINE_H_
#define RIVULET_SERVER_ENGINE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/guess_plan.h"
#include "server/engine/state_pool.h"
#include "server/engine/step_plan.h"

namespace rivulet {

struct EngineOptions {
  size_t threads = 1;  // --threads; the engine thread is one of them
  // --state-memory, in bytes: all slots together. 0, on a device: what it has left after weights
  // and temporaries.
  uint64_t state_memory = uint64_t{1} << 30;
  uint64_t state_context = 4096;  // --state-context: see SplitStateMemory
};

// Bytes of a device's memory by what they hold; all zero on the CPU.
struct DeviceMemory {
  uint64_t weights = 0;
  uint64_t bases = 0, tails = 0, pages = 0;  // of the states
  uint64_t temporaries = 0;
  uint64_t free = 0;
};

// Names a launched step.
using StepTicket = uint64_t;

class Engine {
 public:
  virtual ~Engine() = default;

  // Starts a step of every row of the plan and copies what it needs of the plan and of everything
  // that the plan points to: the caller may change all of it afterwards. REQUIRES: the rows' slots
  // are held, the tail and (if the row folds) base_out of each are no other row's, and fewer than
  // depth() steps have been launched and not awaited. A row that begins with kLastSampled follows a
  // row with the same tail and a sample, in the step launched before
  // (docs/architecture.md#running-ahead). It may throw std::bad_alloc; then no step was launched.
  virtual StepTicket Launch(const StepPlan& plan) = 0;

  // Waits for the step and returns its results. A step never fails as a whole: each row has its
  // status. A row that asks for a token id outside of the vocabulary fails with INVALID_ARGUMENT,
  // one whose logits are not finite with INTERNAL naming it. If the step does not get the memory
  // that it needs, its rows fail with RESOURCE_EXHAUSTED. REQUIRES: the ticket is the oldest that
  // has not been awaited.
  virtual StepResult Await(StepTicket ticket) = 0;

  // Sleeps until about `before` before the end of a launched step; not at all where that has
  // passed, or where the end is not known. False: the step has ended, so Await would not wait.
  virtual bool SleepTowardsEnd(StepTicket /*ticket*/, std::chrono::nanoseconds /*before*/) {
    return true;
  }

  // How many steps may be launched and not awaited: 1, or 2 for a device that runs the next step
  // while the host still looks at the results of the last.
  virtual size_t depth() const = 0;

  // Launch and Await, for callers that never run ahead.
  StepResult Step(const StepPlan& plan) { return Await(Launch(plan)); }

  // Whether its model has a head for further tokens, which was loaded (LoadOptions::predictor).
  virtual bool guesses() const { return false; }
  // Guesses by that head. The rows' slots are held, and no step in flight has any of them. What a
  // row has in its slots is as before, so the same row gets the same guesses again. They depend on
  // the session's tokens alone, but that there are none once the head was left out of a step of
  // them. REQUIRES: guesses().
  virtual GuessResult Guess(const GuessPlan& /*plan*/) { return {}; }

  // Not OK once the device has failed: rows fail with UNAVAILABLE, and what the slots hold is lost.
  virtual absl::Status failure() const { return absl::OkStatus(); }
  // After a failure: opens the device anew and loads the model again. The slots remain as they were
  // held, with undefined contents. REQUIRES: every launched step has been awaited.
  virtual absl::Status Restart() { return failure(); }
  // Constant from the start on, but for Restart: nothing is allocated later.
  virtual DeviceMemory memory() const { return {}; }

  // The slots of the sessions' states. The reference remains valid.
  virtual StatePool& states() const = 0;
  // Constant; any thread.
  const StateCapacity& capacity() const { return states().capacity(); }
  virtual uint32_t vocab_size() const = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_ENGINE_H_
