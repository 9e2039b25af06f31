// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Owners of the engine's slots: a handle gives its slot back when it goes. Move-only; a
// default-made or moved-from handle owns nothing.
//
// Threading: every operation, destruction included, on the engine thread. The engine must outlive
// every handle.
#ifndef RIVULET_SERVER_SESSION_STATE_HANDLES_H_
#define RIVULET_SERVER_SESSION_STATE_HANDLES_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "server/engine/engine.h"

namespace rivulet {

// One reference to a base slot.
class BaseHandle {
 public:
  BaseHandle() = default;
  BaseHandle(BaseHandle&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), slot_(other.slot_) {}
  BaseHandle& operator=(BaseHandle&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~BaseHandle() {
    if (engine_) engine_->ReleaseBase(slot_);
  }

  // A slot of zeros. RESOURCE_EXHAUSTED as Engine::AcquireBase.
  static absl::StatusOr<BaseHandle> Acquire(Engine& engine);
  // Another reference to the same slot. REQUIRES: held().
  BaseHandle Share() const;

  bool held() const { return engine_ != nullptr; }
  bool shared() const { return engine_->BaseShared(slot_); }
  uint32_t slot() const { return slot_; }

 private:
  BaseHandle(Engine* engine, uint32_t slot) : engine_(engine), slot_(slot) {}

  Engine* engine_ = nullptr;
  uint32_t slot_ = 0;
};

// A tail slot.
class TailHandle {
 public:
  TailHandle() = default;
  TailHandle(TailHandle&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), slot_(other.slot_) {}
  TailHandle& operator=(TailHandle&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~TailHandle() {
    if (engine_) engine_->ReleaseTail(slot_);
  }

  // RESOURCE_EXHAUSTED as Engine::AcquireTail.
  static absl::StatusOr<TailHandle> Acquire(Engine& engine);
  // A new slot with the same rows. REQUIRES: held().
  absl::StatusOr<TailHandle> Copy() const;

  bool held() const { return engine_ != nullptr; }
  uint32_t slot() const { return slot_; }

 private:
  TailHandle(Engine* engine, uint32_t slot) : engine_(engine), slot_(slot) {}

  Engine* engine_ = nullptr;
  uint32_t slot_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_STATE_HANDLES_H_
