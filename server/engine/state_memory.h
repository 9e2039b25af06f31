// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The memory that a StatePool divides into slots: one range of bytes on the host or on a device.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_STATE_MEMORY_H_
#define RIVULET_SERVER_ENGINE_STATE_MEMORY_H_

#include <cstddef>

#include "absl/status/status.h"

namespace rivulet {

class StateMemory {
 public:
  virtual ~StateMemory() = default;

  // Called once, before anything else. RESOURCE_EXHAUSTED naming --state-memory if the system
  // refuses. The contents are undefined.
  virtual absl::Status Reserve(size_t bytes) = 0;

  // The start of the range as the engine's kernels address it. Only the host may dereference the
  // host's.
  virtual std::byte* begin() const = 0;

  // Copies `bytes` bytes from offset `from` to offset `to`; the ranges do not overlap. The copy
  // takes its place in the order of the engine's work: it sees what steps launched before it write,
  // and steps launched after it see the copy.
  virtual void Copy(size_t from, size_t to, size_t bytes) = 0;
};

// Host memory. Pages become real when they are first touched, so a large reservation costs nothing
// until sessions come.
class HostStateMemory final : public StateMemory {
 public:
  HostStateMemory() = default;
  ~HostStateMemory() override;
  HostStateMemory(const HostStateMemory&) = delete;
  HostStateMemory& operator=(const HostStateMemory&) = delete;

  absl::Status Reserve(size_t bytes) override;
  std::byte* begin() const override { return begin_; }
  void Copy(size_t from, size_t to, size_t bytes) override;

 private:
  std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STATE_MEMORY_H_
