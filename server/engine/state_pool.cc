// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/state_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

uint32_t SpareBases(uint64_t tails) {
  return static_cast<uint32_t>(std::max<uint64_t>(1, tails / StatePool::kTailsPerSpare));
}

// The slots of `sessions` sessions of `context` tokens. More pages than a slot number can count are
// cut to that many, which no memory holds either.
StateCapacity CapacityFor(const StateSizes& sizes, uint64_t sessions, uint64_t context) {
  StateCapacity capacity;
  capacity.fold_interval = sizes.fold_interval;
  capacity.base_bytes = sizes.base_bytes;
  capacity.tail_bytes = sizes.tail_bytes;
  capacity.running_tail = sizes.running_tail;
  capacity.tail_slots = static_cast<uint32_t>(sessions);
  capacity.base_slots = capacity.tail_slots + SpareBases(sessions);
  for (const StateSizes::Pages& pages : sizes.pages) {
    const uint64_t wanted = sessions * MostPages(pages.kind, context, kLongestSegment);
    const auto slots = static_cast<uint32_t>(std::min<uint64_t>(wanted, kNoPage));
    capacity.pages.push_back({pages.kind, pages.page_bytes, slots});
  }
  return capacity;
}

uint64_t PageBytes(const StateCapacity& capacity) {
  uint64_t bytes = 0;
  for (const PageCapacity& pages : capacity.pages) bytes += pages.slots * pages.page_bytes;
  return bytes;
}

uint64_t TotalBytes(const StateCapacity& capacity) {
  return capacity.tail_slots * capacity.tail_bytes + capacity.base_slots * capacity.base_bytes +
         PageBytes(capacity);
}

absl::Status TooLittleMemory(const StateCapacity& one, uint64_t state_memory, uint64_t context) {
  std::string parts =
      absl::StrCat("two bases of ", one.base_bytes, " and a tail of ", one.tail_bytes);
  if (!one.pages.empty()) {
    absl::StrAppend(&parts, ", and ", PageBytes(one), " for the pages of --state-context ", context,
                    " tokens");
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "--state-memory is ", state_memory, " bytes, but one session of this model needs ",
      TotalBytes(one), " (", parts, "): raise it to that at least",
      one.pages.empty() ? "" : ", or lower --state-context"));
}

// The kind's index in `sizes`, to which it is added if it is new.
size_t KindIndex(StateSizes& sizes, const PageKind& kind) {
  size_t index = 0;
  while (index < sizes.pages.size() && sizes.pages[index].kind != kind) ++index;
  if (index == sizes.pages.size()) sizes.pages.push_back({kind, 0});
  return index;
}

void AddPages(const StateLayout& layer, StateSizes& sizes) {
  const bool has_pages = layer.page_kind().rule != PageRule::kNone;
  sizes.page_kinds.push_back(has_pages ? KindIndex(sizes, layer.page_kind()) : 0);
  sizes.page_offsets.push_back(0);
  if (!has_pages) return;
  StateSizes::Pages& pages = sizes.pages[sizes.page_kinds.back()];
  sizes.page_offsets.back() = pages.page_bytes;
  pages.page_bytes += RoundUp(layer.page_bytes(), kAlignment);
}

}  // namespace

StateSizes AddUpLayouts(std::span<const StateLayout* const> layers) {
  StateSizes sizes;
  for (const StateLayout* layer : layers) {
    RIVULET_CHECK(layer->fold_interval() == layers[0]->fold_interval(),
                  "the layers of one model have different fold intervals");
    sizes.fold_interval = static_cast<uint32_t>(layer->fold_interval());
    sizes.base_offsets.push_back(sizes.base_bytes);
    sizes.tail_offsets.push_back(sizes.tail_bytes);
    sizes.base_bytes += RoundUp(layer->base_bytes(), kAlignment);
    sizes.tail_bytes += RoundUp(layer->tail_bytes(), kAlignment);
    sizes.running_tail = sizes.running_tail || layer->running_tail();
    AddPages(*layer, sizes);
  }
  return sizes;
}

absl::StatusOr<StateCapacity> SplitStateMemory(const StateSizes& sizes, uint64_t state_memory,
                                               uint64_t state_context) {
  if (state_context < sizes.fold_interval) {
    return absl::InvalidArgumentError(absl::StrCat("--state-context=", state_context,
                                                   ": this model needs at least ",
                                                   sizes.fold_interval, " tokens"));
  }
  const StateCapacity one = CapacityFor(sizes, 1, state_context);
  if (state_memory < TotalBytes(one)) return TooLittleMemory(one, state_memory, state_context);
  uint64_t fits = 1, too_many = StatePool::kMaxTails + 1;
  while (too_many - fits > 1) {
    const uint64_t middle = (fits + too_many) / 2;
    const StateCapacity capacity = CapacityFor(sizes, middle, state_context);
    (TotalBytes(capacity) <= state_memory ? fits : too_many) = middle;
  }
  return CapacityFor(sizes, fits, state_context);
}

absl::StatusOr<std::unique_ptr<StatePool>> StatePool::Make(StateSizes sizes, uint64_t state_memory,
                                                           uint64_t state_context,
                                                           std::unique_ptr<StateMemory> memory) {
  RIVULET_ASSIGN_OR_RETURN(StateCapacity capacity,
                           SplitStateMemory(sizes, state_memory, state_context));
  RIVULET_RETURN_IF_ERROR(memory->Reserve(std::max<size_t>(1, TotalBytes(capacity))));
  return std::unique_ptr<StatePool>(
      new StatePool(std::move(sizes), std::move(capacity), std::move(memory)));
}

StatePool::StatePool(StateSizes sizes, StateCapacity capacity, std::unique_ptr<StateMemory> memory)
    : sizes_(std::move(sizes)),
      capacity_(std::move(capacity)),
      memory_(std::move(memory)),
      bases_("base", capacity_.base_slots),
      tails_("tail", capacity_.tail_slots) {
  for (const PageCapacity& pages : capacity_.pages) pages_.emplace_back("page", pages.slots);
}

void StatePool::CopyTail(uint32_t from, uint32_t to) {
  const size_t bytes = sizes_.tail_bytes;
  memory_->Copy(TailsOffset() + from * bytes, TailsOffset() + to * bytes, bytes);
}

LayerState StatePool::Layer(size_t layer) const {
  LayerState state;
  state.fold_interval = sizes_.fold_interval;
  state.bases = memory_->begin() + sizes_.base_offsets[layer];
  state.base_stride = sizes_.base_bytes;
  state.tails = memory_->begin() + TailsOffset() + sizes_.tail_offsets[layer];
  state.tail_stride = sizes_.tail_bytes;
  state.page_kind = sizes_.page_kinds[layer];
  if (sizes_.pages.empty()) return state;
  state.pages = memory_->begin() + PagesOffset(state.page_kind) + sizes_.page_offsets[layer];
  state.page_stride = sizes_.pages[state.page_kind].page_bytes;
  return state;
}

size_t StatePool::PagesOffset(size_t kind) const {
  size_t offset = TailsOffset() + capacity_.tail_slots * capacity_.tail_bytes;
  for (size_t before = 0; before < kind; ++before) {
    offset += capacity_.pages[before].slots * capacity_.pages[before].page_bytes;
  }
  return offset;
}

absl::StatusOr<uint32_t> SlotPool::Acquire() {
  if (used_ == references_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", used_, " ", part_,
                     " slots are in use: try again when a session has ended, or give the server "
                     "more --state-memory"));
  }
  uint32_t slot = touched_;
  if (free_.empty()) {
    ++touched_;
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  references_[slot] = 1;
  ++used_;
  return slot;
}

void SlotPool::Share(uint32_t slot) {
  CheckHeld(slot);
  ++references_[slot];
}

void SlotPool::Release(uint32_t slot) {
  CheckHeld(slot);
  if (--references_[slot] != 0) return;
  free_.push_back(slot);
  --used_;
}

bool SlotPool::Shared(uint32_t slot) const {
  CheckHeld(slot);
  return references_[slot] > 1;
}

void SlotPool::CheckHeld(uint32_t slot) const {
  RIVULET_CHECK(slot < references_.size() && references_[slot] > 0, "the slot is not held");
}

}  // namespace rivulet
