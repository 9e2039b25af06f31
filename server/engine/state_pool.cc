// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/state_pool.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
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
StateCapacity CapacityFor(StateCapacity sizes, uint64_t sessions, uint64_t context) {
  sizes.tail_slots = static_cast<uint32_t>(sessions);
  sizes.base_slots = sizes.tail_slots + SpareBases(sessions);
  for (PageCapacity& pages : sizes.pages) {
    const uint64_t wanted = sessions * MostPages(pages.kind, context, kLongestSegment);
    pages.slots = static_cast<uint32_t>(std::min<uint64_t>(wanted, kNoPage));
  }
  return sizes;
}

uint64_t PageBytes(const StateCapacity& capacity) {
  uint64_t bytes = 0;
  for (const PageCapacity& pages : capacity.pages) bytes += pages.slots * pages.page_bytes;
  return bytes;
}

constexpr const char* kLeastMemoryPayload = "rivulet.least_state_memory";  // in decimal

absl::Status TooLittleMemory(const StateCapacity& one, uint64_t state_memory, uint64_t context) {
  std::string parts =
      absl::StrCat("two bases of ", one.base_bytes, " and a tail of ", one.tail_bytes);
  if (!one.pages.empty()) {
    absl::StrAppend(&parts, ", and ", PageBytes(one), " for the pages of --state-context ", context,
                    " tokens");
  }
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
      "--state-memory is ", state_memory, " bytes, but one session of this model needs ",
      StateBytes(one), " (", parts, "): raise it to that at least",
      one.pages.empty() ? "" : ", or lower --state-context"));
  status.SetPayload(kLeastMemoryPayload, absl::Cord(absl::StrCat(StateBytes(one))));
  return status;
}

// The kind's index in `sizes`, to which it is added if it is new.
size_t KindIndex(StateCapacity& sizes, const PageKind& kind) {
  size_t index = 0;
  while (index < sizes.pages.size() && sizes.pages[index].kind != kind) ++index;
  if (index == sizes.pages.size()) sizes.pages.push_back({kind});
  return index;
}

}  // namespace

std::optional<uint64_t> LeastStateMemory(const absl::Status& status) {
  const auto payload = status.GetPayload(kLeastMemoryPayload);
  uint64_t least = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &least)) return std::nullopt;
  return least;
}

uint64_t StateBytes(const StateCapacity& capacity) {
  return capacity.tail_slots * capacity.tail_bytes + capacity.base_slots * capacity.base_bytes +
         PageBytes(capacity);
}

StateCapacity AddUpLayouts(std::span<const StateLayout* const> layers) {
  StateCapacity sizes;
  sizes.fold_bases = true;
  for (const StateLayout* layer : layers) {
    RIVULET_CHECK(layer->fold_interval() == layers[0]->fold_interval(),
                  "the layers of one model have different fold intervals");
    sizes.fold_interval = static_cast<uint32_t>(layer->fold_interval());
    StateCapacity::Layer& planes = sizes.layers.emplace_back();
    planes.base_offset = sizes.base_bytes;
    planes.tail_offset = sizes.tail_bytes;
    sizes.base_bytes += RoundUp(layer->base_bytes(), kAlignment);
    sizes.tail_bytes += RoundUp(layer->tail_bytes(), kAlignment);
    sizes.running_tail = sizes.running_tail || layer->running_tail();
    if (layer->page_kind().rule == PageRule::kRewrittenFenwick) sizes.fold_bases = false;
    if (layer->page_kind().rule == PageRule::kNone) continue;
    planes.page_kind = KindIndex(sizes, layer->page_kind());
    uint64_t& page_bytes = sizes.pages[planes.page_kind].page_bytes;
    planes.page_offset = page_bytes;
    page_bytes += RoundUp(layer->page_bytes(), kAlignment);
  }
  return sizes;
}

absl::StatusOr<StateCapacity> SplitStateMemory(StateCapacity sizes, uint64_t state_memory,
                                               uint64_t state_context) {
  if (state_context < sizes.fold_interval) {
    return absl::InvalidArgumentError(absl::StrCat("--state-context=", state_context,
                                                   ": this model needs at least ",
                                                   sizes.fold_interval, " tokens"));
  }
  const StateCapacity one = CapacityFor(sizes, 1, state_context);
  if (state_memory < StateBytes(one)) return TooLittleMemory(one, state_memory, state_context);
  uint64_t fits = 1, too_many = StatePool::kMaxTails + 1;
  while (too_many - fits > 1) {
    const uint64_t middle = (fits + too_many) / 2;
    const StateCapacity capacity = CapacityFor(sizes, middle, state_context);
    (StateBytes(capacity) <= state_memory ? fits : too_many) = middle;
  }
  return CapacityFor(sizes, fits, state_context);
}

absl::StatusOr<std::unique_ptr<StatePool>> StatePool::Make(StateCapacity sizes,
                                                           uint64_t state_memory,
                                                           uint64_t state_context,
                                                           std::unique_ptr<StateMemory> memory) {
  RIVULET_ASSIGN_OR_RETURN(StateCapacity capacity,
                           SplitStateMemory(std::move(sizes), state_memory, state_context));
  RIVULET_RETURN_IF_ERROR(memory->Reserve(std::max<size_t>(1, StateBytes(capacity))));
  return std::unique_ptr<StatePool>(new StatePool(std::move(capacity), std::move(memory)));
}

StatePool::StatePool(StateCapacity capacity, std::unique_ptr<StateMemory> memory)
    : capacity_(std::move(capacity)),
      memory_(std::move(memory)),
      bases_("base", capacity_.base_slots),
      tails_("tail", capacity_.tail_slots),
      head_marks_(capacity_.fold_interval, capacity_.base_slots, capacity_.tail_slots) {
  for (const PageCapacity& pages : capacity_.pages) pages_.emplace_back("page", pages.slots);
}

void StatePool::CopyTail(uint32_t from, uint32_t to) {
  const size_t bytes = capacity_.tail_bytes;
  memory_->Copy(TailsOffset() + from * bytes, TailsOffset() + to * bytes, bytes);
  head_marks_.CopyTail(from, to);
}

LayerState StatePool::Layer(size_t layer) const {
  const StateCapacity::Layer& planes = capacity_.layers[layer];
  LayerState state;
  state.bases = memory_->begin() + planes.base_offset;
  state.base_stride = capacity_.base_bytes;
  state.tails = memory_->begin() + TailsOffset() + planes.tail_offset;
  state.tail_stride = capacity_.tail_bytes;
  state.page_kind = planes.page_kind;
  if (capacity_.pages.empty()) return state;
  state.pages = memory_->begin() + PagesOffset(state.page_kind) + planes.page_offset;
  state.page_stride = capacity_.pages[state.page_kind].page_bytes;
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
