// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine: one model on one device with the slots that its sessions' states live in. It runs
// steps and hands out slots; it decides nothing about which row runs when (server/scheduler does).
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
  size_t threads = 1;                         // --threads; the caller of Step is one of them
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
  uint64_t base_bytes = 0;  // of one slot, all layers
  uint64_t tail_bytes = 0;
  uint32_t base_slots = 0;
  uint32_t tail_slots = 0;
  std::vector<PageCapacity> pages;  // one for each kind that the model has
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Runs every row of the plan. Never fails as a whole: each row has its status. A row that asks
  // for a token id outside of the vocabulary fails with INVALID_ARGUMENT, one whose logits are not
  // finite with INTERNAL naming it. REQUIRES: the rows' slots are held, and the tail and (if the
  // row folds) base_out of each are no other row's.
  virtual StepResult Step(const StepPlan& plan) = 0;

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
