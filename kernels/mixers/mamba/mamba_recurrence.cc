// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba/mamba_recurrence.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/device/running_state_operations.h"
#include "kernels/mixers/mamba/mamba_scan.h"

namespace rivulet {
namespace {

// State numbers that are worth a task of their own: an exp each, about 2 µs in all.
constexpr size_t kStatesAUnit = 2048;

}  // namespace

MambaRecurrence::MambaRecurrence(const MambaShape& shape, const MambaConstants& constants,
                                 StateLayout& layout)
    : shape_(shape),
      fold_interval_(layout.fold_interval()),
      blocks_a_unit_(std::max<size_t>(1, kStatesAUnit / (shape.state_size * kBlock))),
      skip_(blocks() * kBlock) {
  RIVULET_CHECK(constants.a.size() == shape.channels * shape.state_size,
                "A is not [channels, state size]");
  RIVULET_CHECK(constants.d.size() == shape.channels, "D is not [channels]");
  std::copy_n(constants.d.data(), shape.channels, skip_.data());
  layout.SetRunningTail();
  if (layout.device()) {
    PackForDevice(constants, layout);
  } else {
    Pack(constants, layout);
  }
}

void MambaRecurrence::Pack(const MambaConstants& constants, StateLayout& layout) {
  const size_t n = shape_.state_size;
  a_ = AlignedBuffer<float>(blocks() * n * kBlock);
  for (size_t i = 0; i < shape_.channels * n; ++i) {
    const size_t channel = i / n;
    a_[(channel / kBlock * n + i % n) * kBlock + channel % kBlock] = constants.a[i];
  }
  const DType dtype = DType::kFloat32;
  base_offset_ = layout.Add(StatePart::kBase, "h", dtype, {blocks(), n, kBlock});
  tail_offset_ = layout.Add(StatePart::kTail, "h.now", dtype, {blocks(), n, kBlock});
}

void MambaRecurrence::PackForDevice(const MambaConstants& constants, StateLayout& layout) {
  if (!RunsOnDevice()) return;  // the layer says so
  const size_t n = shape_.state_size, padded = PaddedScanStates(n);
  const size_t channels = PaddedColumns(shape_.channels);
  a_ = AlignedBuffer<float>(channels * padded);
  for (size_t i = 0; i < shape_.channels * n; ++i) a_[i / n * padded + i % n] = constants.a[i];
  const DType dtype = DType::kFloat32;
  base_offset_ = layout.Add(StatePart::kBase, "h", dtype, {channels, padded});
  tail_offset_ = layout.Add(StatePart::kTail, "h.now", dtype, {channels, padded});
}

bool MambaRecurrence::RunsOnDevice() const { return shape_.state_size <= kMostScanStates; }

void MambaRecurrence::Enqueue(const DeviceStep& step, const MambaInput& input,
                              const Operand& y) const {
  Device& device = *step.device;
  device.SelectiveScan({.rows = step.rows,
                        .slots = step.slots,
                        .channels = static_cast<uint32_t>(shape_.channels),
                        .state_size = static_cast<uint32_t>(shape_.state_size),
                        .padded_state = PaddedScanStates(shape_.state_size),
                        .a = device.Constant({a_.data(), a_.size()}),
                        .skip = device.Constant({skip_.data(), skip_.size()}),
                        .x = input.x,
                        .dt = input.dt,
                        .z = input.z,
                        .b = input.b,
                        .c = input.c,
                        .base_offset = base_offset_,
                        .tail_offset = tail_offset_,
                        .fold_interval = static_cast<uint32_t>(fold_interval_),
                        .y = y});
}

void MambaRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                          const MambaInput& input, FloatMatrix y, ThreadPool& pool) const {
  const size_t units = (blocks() + blocks_a_unit_ - 1) / blocks_a_unit_;
  const size_t states = blocks_a_unit_ * shape_.state_size * kBlock;
  ForEachHeadUnit(segments, fold_interval_, units, states, pool, [&](const HeadPiece& piece) {
    const size_t first = piece.head * blocks_a_unit_;
    const size_t last = std::min(first + blocks_a_unit_, blocks());
    for (size_t block = first; block < last; ++block) RunBlock(block, piece, state, input, y);
  });
}

void MambaRecurrence::RunBlock(size_t block, const HeadPiece& piece, const LayerState& state,
                               const MambaInput& input, FloatMatrix y) const {
  const size_t n = shape_.state_size, first = block * kBlock;
  const size_t channels = std::min(kBlock, shape_.channels - first);
  const auto base = [&](uint32_t slot) {
    return state.Base<float>(slot, base_offset_) + first * n;
  };
  float* tail = state.Tail<float>(piece.tail, tail_offset_) + first * n;
  float* to = piece.folds ? base(piece.to) : tail;
  const float* from = piece.begin == 0 ? base(piece.from) : tail;
  if (piece.chunk == 0 && piece.begin == 0) {
    std::fill_n(to, n * kBlock, 0.0f);
    from = to;
  }
  ScanChannels({.state_size = n,
                .channels = channels,
                .a = a_.data() + first * n,
                .skip = skip_.data() + first,
                .from = from,
                .to = to,
                .x = piece.Of(input.x, first, channels),
                .dt = piece.Of(input.dt, first, channels),
                .z = piece.Of(input.z, first, channels),
                .b = piece.Of(input.b, 0, n),
                .c = piece.Of(input.c, 0, n),
                .y = piece.Of(y, first, channels)});
}

}  // namespace rivulet
