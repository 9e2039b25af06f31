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
  if (layout.device()) {
    layout.SetRunningTail();
    PackForDevice(constants, layout);
    return;
  }
  Pack(constants, layout);
  forgets_ = layout.forgets();
  if (forgets_) {
    AddRows(layout);
  } else {
    layout.SetRunningTail();
  }
}

void MambaRecurrence::AddRows(StateLayout& layout) {
  const DType dtype = DType::kFloat32;  // counts take as many bytes
  rows_offset_ = layout.Add(StatePart::kTail, "rows", dtype, {blocks(), 2, fold_interval_, kBlock});
  b_offset_ = layout.Add(StatePart::kTail, "rows.b", dtype, {fold_interval_, shape_.state_size});
  done_offset_ = layout.Add(StatePart::kTail, "done", dtype, {blocks()});
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
  KeepRowsOfB(segments, state, input);
}

// All blocks share them, and read those of the guesses before this step.
void MambaRecurrence::KeepRowsOfB(std::span<const Segment> segments, const LayerState& state,
                                  const MambaInput& input) const {
  for (const Segment& segment : segments) {
    float* rows = segment.guesses > 0 ? state.Tail<float>(segment.tail, b_offset_) : nullptr;
    for (size_t t = segment.tokens - segment.guesses; t < segment.tokens; ++t) {
      const size_t place = (segment.position + t) % fold_interval_;
      std::copy_n(input.b.row(segment.first_token + t), shape_.state_size,
                  rows + place * shape_.state_size);
    }
  }
}

void MambaRecurrence::RunBlock(size_t block, const HeadPiece& piece, const LayerState& state,
                               const MambaInput& input, FloatMatrix y) const {
  const size_t n = shape_.state_size, first = block * kBlock;
  const size_t channels = std::min(kBlock, shape_.channels - first);
  const auto base = [&](uint32_t slot) {
    return state.Base<float>(slot, base_offset_) + first * n;
  };
  float* tail = state.Tail<float>(piece.tail, tail_offset_) + first * n;
  MambaScan scan{.state_size = n,
                 .channels = channels,
                 .a = a_.data() + first * n,
                 .skip = skip_.data() + first,
                 .from = tail,
                 .to = piece.folds ? base(piece.to) : tail,
                 .x = piece.Of(input.x, first, channels),
                 .dt = piece.Of(input.dt, first, channels),
                 .z = piece.Of(input.z, first, channels),
                 .b = piece.Of(input.b, 0, n),
                 .c = piece.Of(input.c, 0, n),
                 .y = piece.Of(y, first, channels),
                 .guesses = piece.guesses,
                 .done = piece.begin,
                 .begin = piece.begin};
  AlignedBuffer<float> scratch(piece.guesses > 0 ? n * kBlock : 0);
  scan.scratch = scratch.data();
  if (forgets_) FindRows(block, piece, state, scan);
  if (scan.done == 0) scan.from = base(piece.from);
  if (scan.done == 0 && piece.chunk == 0) {
    std::fill_n(scan.to, n * kBlock, 0.0f);
    scan.from = scan.to;
  }
  ScanChannels(scan);
}

// Where the rows are, and how many tokens of the chunk the tail's state holds, now and afterwards.
void MambaRecurrence::FindRows(size_t block, const HeadPiece& piece, const LayerState& state,
                               MambaScan& scan) const {
  const size_t chunk = fold_interval_ * kBlock;
  float* rows = state.Tail<float>(piece.tail, rows_offset_) + 2 * block * chunk;
  scan.rows = {rows, rows + chunk, state.Tail<float>(piece.tail, b_offset_)};
  uint32_t& done = state.Tail<uint32_t>(piece.tail, done_offset_)[block];
  scan.done = piece.begin == 0 ? 0 : done;
  if (piece.folds) return;  // into the base
  const bool some_certain = piece.rows() > piece.guesses;
  done = static_cast<uint32_t>(some_certain ? piece.end - piece.guesses : scan.done);
}

}  // namespace rivulet
