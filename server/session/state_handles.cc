// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/state_handles.h"

#include "kernels/base/status.h"

namespace rivulet {

absl::StatusOr<BaseHandle> BaseHandle::Acquire(Engine& engine) {
  RIVULET_ASSIGN_OR_RETURN(const uint32_t slot, engine.AcquireBase());
  return BaseHandle(&engine, slot);
}

BaseHandle BaseHandle::Share() const {
  engine_->ShareBase(slot_);
  return BaseHandle(engine_, slot_);
}

absl::StatusOr<TailHandle> TailHandle::Acquire(Engine& engine) {
  RIVULET_ASSIGN_OR_RETURN(const uint32_t slot, engine.AcquireTail());
  return TailHandle(&engine, slot);
}

absl::StatusOr<TailHandle> TailHandle::Copy() const {
  RIVULET_ASSIGN_OR_RETURN(TailHandle copy, Acquire(*engine_));
  engine_->CopyTail(slot_, copy.slot_);
  return copy;
}

}  // namespace rivulet
