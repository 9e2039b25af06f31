// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/suite_slots.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/base/check.h"

namespace rivulet {
namespace {

size_t Guarded(size_t bytes) { return RoundUp(bytes, kAlignment) + kAlignment; }

std::string Bytes(const AlignedBuffer<std::byte>& all, size_t stride, uint32_t slot) {
  return std::string(reinterpret_cast<const char*>(all.data()) + slot * stride, stride);
}

}  // namespace

SuiteSlots::SuiteSlots(const StateLayout& layout, size_t slots, size_t pages_a_slot, int fill)
    : layout_(layout),
      fill_(fill),
      base_stride_(Guarded(layout.base_bytes())),
      tail_stride_(Guarded(layout.tail_bytes())),
      page_stride_(Guarded(layout.page_bytes())),
      bases_(slots * base_stride_),
      tails_(slots * tail_stride_) {
  if (layout.page_kind().rule != PageRule::kNone) {
    holders_.resize(slots * pages_a_slot);
    pages_ = AlignedBuffer<std::byte>(holders_.size() * page_stride_);
  }
  free_.resize(holders_.size());
  std::iota(free_.begin(), free_.end(), 0u);
  std::shuffle(free_.begin(), free_.end(), std::mt19937_64(1));
  for (AlignedBuffer<std::byte>* bytes : {&bases_, &tails_, &pages_}) {
    if (bytes->size() != 0) std::memset(bytes->data(), fill, bytes->size());
  }
}

LayerState SuiteSlots::state() {
  LayerState state;
  state.bases = bases_.data();
  state.base_stride = base_stride_;
  state.tails = tails_.data();
  state.tail_stride = tail_stride_;
  state.pages = pages_.data();
  state.page_stride = page_stride_;
  return state;
}

std::string SuiteSlots::Base(uint32_t slot) const { return Bytes(bases_, base_stride_, slot); }

std::string SuiteSlots::Tail(uint32_t slot) const { return Bytes(tails_, tail_stride_, slot); }

std::string SuiteSlots::Page(uint32_t slot) const { return Bytes(pages_, page_stride_, slot); }

std::string SuiteSlots::Planes(StatePart part, const std::string& slot) const {
  std::string bytes;
  for (const StatePlane& plane : layout_.planes()) {
    if (plane.part != part) continue;
    size_t count = DTypeSize(plane.dtype);
    for (const size_t extent : plane.shape) count *= extent;
    bytes += slot.substr(plane.offset, count);
  }
  return bytes;
}

std::string SuiteSlots::BasePlanes(uint32_t slot) const {
  return Planes(StatePart::kBase, Base(slot));
}

std::string SuiteSlots::PagePlanes(const SegmentPages& pages, size_t fold) const {
  const bool fenwick = layout_.page_kind().fenwick();
  const uint32_t* slots = fenwick ? pages.Table(fold) : pages.slots;
  std::string bytes;
  for (size_t i = 0; i < (fenwick ? pages.levels : pages.count); ++i) {
    if (slots[i] != kNoPage) bytes += Planes(StatePart::kPage, Page(slots[i]));
  }
  return bytes;
}

absl::StatusOr<uint32_t> SuiteSlots::Acquire() {
  RIVULET_CHECK(!free_.empty(), "the suite has too few pages");
  const uint32_t slot = free_.back();
  free_.pop_back();
  holders_[slot] = 1;
  if (fill_ == kPoison) std::memset(pages_.data() + slot * page_stride_, kPoison, page_stride_);
  return slot;
}

void SuiteSlots::Release(uint32_t slot) {
  if (--holders_[slot] == 0) free_.push_back(slot);
}

Segment SuiteSession::Plan(size_t first_token, size_t tokens) {
  tokens_ = tokens;
  planned_ = *pages.Plan(position, tokens);
  return {.first_token = first_token,
          .tokens = tokens,
          .position = position,
          .base_in = base,
          .base_out = base,
          .tail = tail,
          .pages = &planned_};
}

void SuiteSession::Commit() {
  pages.Commit();
  position += tokens_;
}

}  // namespace rivulet
