// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/state.h"

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

void StateLayout::SetPageKind(PageKind kind) {
  RIVULET_CHECK(page_kind_.rule == PageRule::kNone, "a layer has pages of one kind");
  kind.fold_interval = page_kind_.fold_interval;
  page_kind_ = kind;
}

}  // namespace rivulet
