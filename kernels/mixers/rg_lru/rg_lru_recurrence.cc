// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/rg_lru/rg_lru_recurrence.h"

#include <algorithm>
#include <cstring>

#include "kernels/device/running_state_operations.h"
#include "kernels/mixers/rg_lru/rg_lru_scan.h"

namespace rivulet {
namespace {

// Channels of a task: whole blocks, so that tasks touch disjoint parts of the state.
constexpr size_t kUnitChannels = 256;
// A channel of a token costs five exponentials and their like, as much as many floats that are
// only read.
constexpr size_t kFloatsAChannel = 16;

}  // namespace

RgLruRecurrence::RgLruRecurrence(const AlignedBuffer<float>& rate, StateLayout& layout)
    : width_(rate.size()),
      padded_(PaddedColumns(rate.size())),
      fold_interval_(layout.fold_interval()),
      rate_(padded_) {
  std::copy_n(rate.data(), width_, rate_.data());
  base_offset_ = layout.Add(StatePart::kBase, "h", DType::kFloat32, {padded_});
  if (layout.device()) {
    layout.SetRunningTail();
    tail_offset_ = layout.Add(StatePart::kTail, "h.now", DType::kFloat32, {padded_});
    return;
  }
  tail_offset_ = layout.Add(StatePart::kTail, "h.tail", DType::kFloat32, {fold_interval_, padded_});
}

void RgLruRecurrence::Enqueue(const DeviceStep& step, const RgLruInput& input,
                              FloatMatrix h) const {
  step.device->GatedScan({.rows = step.rows,
                          .slots = step.slots,
                          .channels = static_cast<uint32_t>(width_),
                          .rate = step.device->Constant({rate_.data(), rate_.size()}),
                          .x = input.x,
                          .input_gate = input.input_gate,
                          .recurrent_gate = input.recurrent_gate,
                          .base_offset = base_offset_,
                          .tail_offset = tail_offset_,
                          .fold_interval = static_cast<uint32_t>(fold_interval_),
                          .h = h});
}

void RgLruRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                          const RgLruInput& input, FloatMatrix h, ThreadPool& pool) const {
  const size_t units = (width_ + kUnitChannels - 1) / kUnitChannels;
  ForEachHeadUnit(segments, fold_interval_, units, kUnitChannels * kFloatsAChannel, pool,
                  [&](const HeadPiece& piece) { RunBlocks(piece, state, input, h); });
}

void RgLruRecurrence::RunBlocks(const HeadPiece& piece, const LayerState& state,
                                const RgLruInput& input, FloatMatrix h) const {
  float* tail = state.Tail<float>(piece.tail, tail_offset_);
  const float* base = state.Base<float>(piece.from, base_offset_);
  const size_t end = std::min((piece.head + 1) * kUnitChannels, width_);
  for (size_t first = piece.head * kUnitChannels; first < end; first += kBlock) {
    const size_t channels = std::min(kBlock, end - first);
    const float* from = piece.begin > 0 ? tail + (piece.begin - 1) * padded_ : base;
    float* rows = tail + first;
    ScanRgLru({.channels = channels,
               .rate = rate_.data() + first,
               .from = piece.begin == 0 && piece.chunk == 0 ? nullptr : from + first,
               .rows = rows + piece.begin * padded_,
               .row_stride = padded_,
               .x = piece.Of(input.x, first, channels),
               .input_gate = piece.Of(input.input_gate, first, channels),
               .recurrent_gate = piece.Of(input.recurrent_gate, first, channels),
               .h = piece.Of(h, first, channels)});
    if (!piece.folds) continue;
    std::memcpy(state.Base<float>(piece.to, base_offset_) + first,
                rows + (fold_interval_ - 1) * padded_, kBlock * sizeof(float));
  }
}

}  // namespace rivulet
