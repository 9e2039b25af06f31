// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine: one model on one device with the slots that its sessions' states live in. It runs
// steps and hands out slots; it decides nothing about which row runs when (server/scheduler does).
//
// Everything happens in the order of the calls: a launched step reads and writes the slots before
// anything that a later call does to them. So a slot that a running step still uses may be released
// and acquired again at once.
//
// Threading: every method on the engine thread alone, but capacity() and vocab_size(), which are
// constant.
#ifndef RIVULET_SERVER_ENGINE_ENGINE_H_
#define RIVULET_SERVER_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/recurrence/pages.h"
#include "server/engine/step_plan.h"

namespace rivulet {

struct EngineOptions {
  size_t threads = 1;                         // --threads; the engine thread is one of them
  uint64_t state_memory = uint64_t{1} << 30;  // --state-memory, in bytes: all slots together
  uint64_t state_context = 4096;              // --state-context: see SplitStateMemory
};

// The longest segment that a step may hold: pages that a session takes within it are counted.
inline constexpr uint64_t kLongestSegment = 1024;

// Of one kind of pages: bytes of a slot over all layers of the kind, and how many slots.
struct PageCapacity {
  PageKind kind;
  uint64_t page_bytes = 0;
  uint32_t slots = 0;
};

// Bytes and numbers of slots; constant.
struct StateCapacity {
  uint32_t fold_interval = 0;  // C: tokens between two bases (kernels/recurrence/state.h)
  uint64_t base_bytes = 0;     // of one slot, all layers
  uint64_t tail_bytes = 0;
  uint32_t base_slots = 0;
  uint32_t tail_slots = 0;
  std::vector<PageCapacity> pages;  // one for each kind that the model has
};

// Names a launched step.
using StepTicket = uint64_t;

class Engine {
 public:
  virtual ~Engine() = default;

  // Starts a step of every row of the plan and copies what it needs of the plan and of everything
  // that the plan points to: the caller may change all of it afterwards. REQUIRES: the rows' slots
  // are held, the tail and (if the row folds) base_out of each are no other row's, and fewer than
  // depth() steps have been launched and not awaited.
  virtual StepTicket Launch(const StepPlan& plan) = 0;

  // Waits for the step and returns its results. A step never fails as a whole: each row has its
  // status. A row that asks for a token id outside of the vocabulary fails with INVALID_ARGUMENT,
  // one whose logits are not finite with INTERNAL naming it. REQUIRES: the ticket is the oldest
  // that has not been awaited.
  virtual StepResult Await(StepTicket ticket) = 0;

  // How many steps may be launched and not awaited: 1, or 2 for a device that runs the next step
  // while the host still looks at the results of the last.
  virtual size_t depth() const = 0;

  // Launch and Await, for callers that never run ahead.
  StepResult Step(const StepPlan& plan) { return Await(Launch(plan)); }

  // A base slot with one reference, all zeros (the state before the first token), or
  // RESOURCE_EXHAUSTED naming --state-memory.
  virtual absl::StatusOr<uint32_t> AcquireBase() = 0;
  // One more holder of a base. Who folds a shared one names another slot as base_out
  // (server/session/session.h); the engine does not check.
  virtual void ShareBase(uint32_t slot) = 0;
  virtual void ReleaseBase(uint32_t slot) = 0;
  virtual bool BaseShared(uint32_t slot) const = 0;

  // A tail slot, its contents undefined, or RESOURCE_EXHAUSTED naming --state-memory.
  virtual absl::StatusOr<uint32_t> AcquireTail() = 0;
  virtual void ReleaseTail(uint32_t slot) = 0;
  virtual void CopyTail(uint32_t from, uint32_t to) = 0;

  // The slots of capacity().pages[kind]; the reference stays good. PageTable (kernels/recurrence)
  // knows which of them a session needs.
  virtual PageSource& pages(size_t kind) = 0;

  virtual const StateCapacity& capacity() const = 0;
  virtual uint32_t bases_used() const = 0;
  virtual uint32_t tails_used() const = 0;
  virtual uint32_t pages_used(size_t kind) const = 0;
  virtual uint32_t vocab_size() const = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_ENGINE_H_
