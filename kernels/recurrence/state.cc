// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/state.h"

#include <utility>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/check.h"

namespace rivulet {

size_t StateLayout::Add(StatePart part, std::string_view name, DType dtype,
                        std::initializer_list<size_t> shape) {
  size_t elements = 1;
  for (size_t extent : shape) elements *= extent;
  size_t& bytes = bytes_[static_cast<size_t>(part)];
  const size_t offset = bytes;
  bytes = RoundUp(offset + elements * DTypeSize(dtype), kAlignment);
  planes_.push_back({std::string(name), part, dtype, shape, offset});
  return offset;
}

PartOffsets StateLayout::Append(const StateLayout& other, std::string_view prefix) {
  RIVULET_CHECK(other.fold_interval() == fold_interval() && other.device() == device(),
                "layouts of different devices in one layer");
  const PartOffsets offsets{base_bytes(), tail_bytes(), page_bytes()};
  for (StatePlane plane : other.planes_) {
    plane.name.insert(0, prefix);
    plane.offset += bytes(plane.part);
    planes_.push_back(std::move(plane));
  }
  for (size_t part = 0; part < kStateParts; ++part) bytes_[part] += other.bytes_[part];
  if (other.page_kind_.rule != PageRule::kNone) SetPageKind(other.page_kind_);
  running_tail_ = running_tail_ || other.running_tail_;
  return offsets;
}

LayerState PartOffsets::Of(LayerState state) const {
  state.bases += base;
  state.tails += tail;
  if (state.pages != nullptr) state.pages += page;
  return state;
}

DeviceSlots PartOffsets::Of(DeviceSlots slots) const {
  slots.bases += base;
  slots.tails += tail;
  if (slots.pages != nullptr) slots.pages += page;
  return slots;
}

void StateLayout::SetPageKind(PageKind kind) {
  RIVULET_CHECK(page_kind_.rule == PageRule::kNone, "a layer has pages of one kind");
  kind.fold_interval = page_kind_.fold_interval;
  page_kind_ = kind;
}

}  // namespace rivulet
