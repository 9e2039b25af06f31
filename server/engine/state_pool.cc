// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/state_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

// Slots of each kind, for `sessions` sessions of `context` tokens. More pages than slots can be
// numbered count as that many: they fit into no memory either.
StateCapacity CapacityFor(const StateSizes& sizes, uint64_t sessions, uint64_t context) {
  StateCapacity capacity;
  capacity.fold_interval = sizes.fold_interval;
  capacity.base_bytes = sizes.base_bytes;
  capacity.tail_bytes = sizes.tail_bytes;
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

// The kind's index in `sizes`.
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

absl::Status NoSlotLeft(const char* kind, uint32_t slots) {
  return absl::ResourceExhaustedError(
      absl::StrCat("all ", slots, " ", kind,
                   " slots are in use: try again when a session has ended, or give the server more "
                   "--state-memory"));
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
                                                           uint64_t state_context) {
  RIVULET_ASSIGN_OR_RETURN(StateCapacity capacity,
                           SplitStateMemory(sizes, state_memory, state_context));
  const size_t bytes = std::max<size_t>(1, TotalBytes(capacity));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("the system refuses ", bytes,
                                                     " bytes for --state-memory (",
                                                     std::strerror(errno), "): lower it"));
  }
  // States are read from end to end every token: fewer pages, fewer misses. Advice only.
  madvise(memory, bytes, MADV_HUGEPAGE);
  return std::unique_ptr<StatePool>(
      new StatePool(std::move(sizes), std::move(capacity), static_cast<std::byte*>(memory)));
}

StatePool::StatePool(StateSizes sizes, StateCapacity capacity, std::byte* memory)
    : sizes_(std::move(sizes)),
      capacity_(std::move(capacity)),
      memory_(memory),
      bases_(capacity_.base_slots),
      tails_(capacity_.tail_slots),
      page_pools_(capacity_.pages.begin(), capacity_.pages.end()) {}

StatePool::~StatePool() { munmap(memory_, std::max<size_t>(1, TotalBytes(capacity_))); }

absl::StatusOr<uint32_t> StatePool::AcquireBase() {
  if (bases_.full()) return NoSlotLeft("base", capacity_.base_slots);
  const bool fresh_page = bases_.next_is_fresh();
  const uint32_t slot = bases_.Take();
  if (!fresh_page) std::memset(BaseBytes(slot).data(), 0, sizes_.base_bytes);
  return slot;
}

void StatePool::ShareBase(uint32_t slot) {
  RIVULET_CHECK(bases_.held(slot), "shares a base that nobody holds");
  bases_.Share(slot);
}

void StatePool::ReleaseBase(uint32_t slot) {
  RIVULET_CHECK(bases_.held(slot), "releases a base that nobody holds");
  bases_.Release(slot);
}

uint32_t StatePool::References(uint32_t slot) const {
  RIVULET_CHECK(bases_.held(slot), "asks for a base that nobody holds");
  return bases_.references(slot);
}

absl::StatusOr<uint32_t> StatePool::AcquireTail() {
  if (tails_.full()) return NoSlotLeft("tail", capacity_.tail_slots);
  return tails_.Take();
}

void StatePool::ReleaseTail(uint32_t slot) {
  RIVULET_CHECK(tails_.held(slot), "releases a tail that nobody holds");
  tails_.Release(slot);
}

void StatePool::CopyTail(uint32_t from, uint32_t to) {
  if (from == to) return;
  std::memcpy(TailBytes(to).data(), TailBytes(from).data(), sizes_.tail_bytes);
}

LayerState StatePool::Layer(size_t layer) const {
  LayerState state;
  state.bases = memory_ + sizes_.base_offsets[layer];
  state.base_stride = sizes_.base_bytes;
  state.tails = Tails() + sizes_.tail_offsets[layer];
  state.tail_stride = sizes_.tail_bytes;
  state.page_kind = sizes_.page_kinds[layer];
  state.fold_interval = sizes_.fold_interval;
  if (sizes_.pages.empty()) return state;
  state.pages = Pages(state.page_kind) + sizes_.page_offsets[layer];
  state.page_stride = sizes_.pages[state.page_kind].page_bytes;
  return state;
}

std::span<std::byte> StatePool::BaseBytes(uint32_t slot) const {
  RIVULET_CHECK(bases_.held(slot), "reads a base that nobody holds");
  return {memory_ + slot * sizes_.base_bytes, sizes_.base_bytes};
}

std::span<std::byte> StatePool::TailBytes(uint32_t slot) const {
  RIVULET_CHECK(tails_.held(slot), "reads a tail that nobody holds");
  return {Tails() + slot * sizes_.tail_bytes, sizes_.tail_bytes};
}

std::byte* StatePool::Tails() const { return memory_ + capacity_.base_slots * sizes_.base_bytes; }

std::byte* StatePool::Pages(size_t kind) const {
  std::byte* pages = Tails() + capacity_.tail_slots * sizes_.tail_bytes;
  for (size_t before = 0; before < kind; ++before) {
    pages += capacity_.pages[before].slots * capacity_.pages[before].page_bytes;
  }
  return pages;
}

absl::StatusOr<uint32_t> StatePool::PagePool::Acquire() {
  if (slots_.full()) return NoSlotLeft("page", count_);
  return slots_.Take();
}

void StatePool::PagePool::Share(uint32_t slot) {
  RIVULET_CHECK(slots_.held(slot), "shares a page that nobody holds");
  slots_.Share(slot);
}

void StatePool::PagePool::Release(uint32_t slot) {
  RIVULET_CHECK(slots_.held(slot), "releases a page that nobody holds");
  slots_.Release(slot);
}

uint32_t StatePool::Slots::Take() {
  uint32_t slot = touched_;
  if (next_is_fresh()) {
    ++touched_;
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  references_[slot] = 1;
  ++used_;
  return slot;
}

void StatePool::Slots::Release(uint32_t slot) {
  if (--references_[slot] != 0) return;
  free_.push_back(slot);
  --used_;
}

}  // namespace rivulet
