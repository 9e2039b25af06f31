// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/h3/h3_recurrence.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/device/running_state_operations.h"
#include "kernels/mixers/h3/h3_scan.h"

namespace rivulet {

H3Recurrence::H3Recurrence(const H3Shape& shape, const H3Constants& constants, StateLayout& layout)
    : shape_(shape),
      fold_interval_(layout.fold_interval()),
      ring_rows_(RoundUp(shape.window > 1 ? shape.window - 1 : 1, fold_interval_)),
      skip_(shape.padded_heads()) {
  RIVULET_CHECK(constants.taps.size() == shape.heads * shape.head_dim * shape.window,
                "taps are not [channels, window]");
  RIVULET_CHECK(constants.pole_real.size() == shape.heads * shape.modes,
                "poles are not [heads, modes]");
  std::copy_n(constants.skip.data(), shape_.heads, skip_.data());
  if (layout.device()) {
    layout.SetRunningTail();
    PackForDevice(constants, layout);
  } else {
    Pack(constants);
    AddPlanes(layout);
  }
}

void H3Recurrence::AddPlanes(StateLayout& layout) {
  const size_t blocks = shape_.padded_heads() / kBlock, hd = shape_.head_dim, m = shape_.modes;
  const DType dtype = DType::kFloat32;
  ring_offset_ = layout.Add(StatePart::kBase, "keys", dtype, {blocks, hd, ring_rows_, kBlock});
  modes_offset_ = layout.Add(StatePart::kBase, "modes", dtype, {blocks, hd, hd, m, 2, kBlock});
  keys_offset_ =
      layout.Add(StatePart::kTail, "keys.tail", dtype, {blocks, hd, fold_interval_, kBlock});
  modes_now_offset_ =
      layout.Add(StatePart::kTail, "modes.now", dtype, {blocks, hd, hd, m, 2, kBlock});
  forgets_ = layout.forgets();
  if (!forgets_) return layout.SetRunningTail();
  rows_offset_ =
      layout.Add(StatePart::kTail, "rows", dtype, {blocks, 2, hd, fold_interval_, kBlock});
  done_offset_ = layout.Add(StatePart::kTail, "done", dtype, {blocks});
}

void H3Recurrence::PackForDevice(const H3Constants& constants, StateLayout& layout) {
  if (!RunsOnDevice()) return;  // the layer says so
  const size_t hd = shape_.head_dim, n = shape_.window, m = shape_.modes;
  const size_t channels = shape_.heads * hd, columns = PaddedColumns(channels);
  const size_t modes = PaddedModes(m), poles = shape_.heads * modes * 2;
  taps_ = AlignedBuffer<float>(n * columns);
  for (size_t i = 0; i < channels * n; ++i) taps_[i % n * columns + i / n] = constants.taps[i];
  modal_ = AlignedBuffer<float>(2 * poles);
  for (size_t i = 0; i < shape_.heads * m; ++i) {
    float* pole = &modal_[(i / m * modes + i % m) * 2];
    pole[0] = constants.pole_real[i], pole[1] = constants.pole_imaginary[i];
    pole[poles] = constants.weight_real[i], pole[poles + 1] = constants.weight_imaginary[i];
  }
  const DType dtype = DType::kFloat32, rows = layout.row_dtype();
  ring_offset_ = layout.Add(StatePart::kBase, "keys", rows, {ring_rows_, columns});
  modes_offset_ = layout.Add(StatePart::kBase, "modes", dtype, {hd, columns, modes, 2});
  keys_offset_ = layout.Add(StatePart::kTail, "keys.tail", rows, {fold_interval_, columns});
  modes_now_offset_ = layout.Add(StatePart::kTail, "modes.now", dtype, {hd, columns, modes, 2});
}

bool H3Recurrence::RunsOnDevice() const { return shape_.modes <= kMostModes; }

FloatMatrix H3Recurrence::EnqueueFilter(const DeviceStep& step, ConstFloatMatrix k) const {
  const FloatMatrix y = step.workspace->Take(k.rows, k.columns);
  step.device->Filter({.rows = step.rows,
                       .slots = step.slots,
                       .channels = static_cast<uint32_t>(k.columns),
                       .padded = static_cast<uint32_t>(PaddedColumns(k.columns)),
                       .window = static_cast<uint32_t>(shape_.window),
                       .ring_rows = static_cast<uint32_t>(ring_rows_),
                       .taps = step.device->Constant({taps_.data(), taps_.size()}),
                       .x = k,
                       .y = y,
                       .ring_offset = ring_offset_,
                       .tail_offset = keys_offset_,
                       .fold_interval = static_cast<uint32_t>(fold_interval_)});
  return y;
}

void H3Recurrence::Enqueue(const DeviceStep& step, const H3Input& input, const Operand& o) const {
  const size_t modes = PaddedModes(shape_.modes), columns = shape_.heads * shape_.head_dim;
  const float* const modal = step.device->Constant({modal_.data(), modal_.size()});
  const FloatMatrix k = EnqueueFilter(step, input.k);
  FloatMatrix partial = {};
  if (shape_.head_dim > 1) partial = step.workspace->Take(k.rows, columns);
  step.device->ScanModes({.rows = step.rows,
                          .slots = step.slots,
                          .heads = static_cast<uint32_t>(shape_.heads),
                          .head_dim = static_cast<uint32_t>(shape_.head_dim),
                          .padded_columns = static_cast<uint32_t>(PaddedColumns(columns)),
                          .padded_modes = static_cast<uint32_t>(modes),
                          .poles = modal,
                          .weights = modal + shape_.heads * modes * 2,
                          .skip = step.device->Constant({skip_.data(), skip_.size()}),
                          .q = input.q,
                          .k = k,
                          .v = input.v,
                          .partial = partial,
                          .base_offset = modes_offset_,
                          .tail_offset = modes_now_offset_,
                          .fold_interval = static_cast<uint32_t>(fold_interval_),
                          .y = o});
}

void H3Recurrence::Pack(const H3Constants& constants) {
  const size_t hd = shape_.head_dim, n = shape_.window, m = shape_.modes;
  taps_ = AlignedBuffer<float>(shape_.columns() * n);
  modal_ = AlignedBuffer<float>(shape_.padded_heads() * m * 4);
  for (size_t h = 0; h < shape_.heads; ++h) {
    const size_t block = h / kBlock, lane = h % kBlock;
    for (size_t tap = 0; tap < hd * n; ++tap) {
      taps_[(block * hd * n + tap) * kBlock + lane] = constants.taps[h * hd * n + tap];
    }
    for (size_t mode = 0; mode < m; ++mode) {
      float* modal = &modal_[(block * m + mode) * 4 * kBlock + lane];
      modal[0] = constants.pole_real[h * m + mode];
      modal[kBlock] = constants.pole_imaginary[h * m + mode];
      modal[2 * kBlock] = constants.weight_real[h * m + mode];
      modal[3 * kBlock] = constants.weight_imaginary[h * m + mode];
    }
  }
}

float* H3Recurrence::Ring(const LayerState& state, uint32_t slot, size_t block) const {
  return state.Base<float>(slot, ring_offset_) + block * shape_.head_dim * ring_rows_ * kBlock;
}

void H3Recurrence::Run(std::span<const Segment> segments, const LayerState& state,
                       const H3Input& input, FloatMatrix o, ThreadPool& pool) const {
  const size_t hd = shape_.head_dim;
  const size_t floats = kBlock * hd * (shape_.window + 2 * hd * shape_.modes);
  ForEachHeadUnit(segments, fold_interval_, shape_.padded_heads() / kBlock, floats, pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, o); });
}

void H3Recurrence::RunPiece(const HeadPiece& piece, const LayerState& state, const H3Input& input,
                            FloatMatrix o) const {
  const size_t block = piece.head, hd = shape_.head_dim, heads = shape_.padded_heads();
  const size_t ring_next = piece.chunk * fold_interval_ % ring_rows_;
  const size_t modes = block * hd * hd * shape_.modes * 2 * kBlock;
  const auto base = [&](uint32_t slot) { return state.Base<float>(slot, modes_offset_) + modes; };
  float* now = state.Tail<float>(piece.tail, modes_now_offset_) + modes;
  const size_t first = block * kBlock, columns = (hd - 1) * heads + kBlock;
  AlignedBuffer<float> scratch(piece.guesses > 0 ? shape_.modes * 2 * kBlock : 0);
  H3Scan scan{.head_dim = hd,
              .window = shape_.window,
              .fold_interval = fold_interval_,
              .ring_rows = ring_rows_,
              .modes = shape_.modes,
              .begin = piece.begin,
              .ring_next = ring_next,
              .taps = taps_.data() + first * hd * shape_.window,
              .modal = modal_.data() + first * shape_.modes * 4,
              .skip = skip_.data() + first,
              .ring = piece.chunk == 0 ? nullptr : Ring(state, piece.from, block),
              .keys = state.Tail<float>(piece.tail, keys_offset_) + first * hd * fold_interval_,
              .from = now,
              .to = piece.folds ? base(piece.to) : now,
              .guesses = piece.guesses,
              .scratch = scratch.data(),
              .done = piece.begin,
              .q = piece.Of(input.q, first, columns),
              .k = piece.Of(input.k, first, columns),
              .v = piece.Of(input.v, first, columns),
              .y = piece.Of(o, first, columns),
              .head_stride = heads};
  if (forgets_) FindRows(piece, state, scan);
  if (scan.done == 0) scan.from = base(piece.from);
  if (scan.done == 0 && piece.chunk == 0) {
    std::fill_n(scan.to, hd * hd * shape_.modes * 2 * kBlock, 0.0f);
    scan.from = scan.to;
  }
  ScanHeads(scan);
  if (piece.folds) FoldKeys(piece, state, ring_next);
}

// Where the rows are, and how many tokens of the chunk the tail's modes hold, now and afterwards.
void H3Recurrence::FindRows(const HeadPiece& piece, const LayerState& state, H3Scan& scan) const {
  const size_t rows = shape_.head_dim * fold_interval_ * kBlock;
  scan.shifted_rows = state.Tail<float>(piece.tail, rows_offset_) + 2 * piece.head * rows;
  scan.value_rows = scan.shifted_rows + rows;
  uint32_t& done = state.Tail<uint32_t>(piece.tail, done_offset_)[piece.head];
  scan.done = piece.begin == 0 ? 0 : done;
  if (piece.folds) return;  // into the base
  const bool some_certain = piece.rows() > piece.guesses;
  done = static_cast<uint32_t>(some_certain ? piece.end - piece.guesses : scan.done);
}

// The chunk's keys take the place of the oldest ones.
void H3Recurrence::FoldKeys(const HeadPiece& piece, const LayerState& state,
                            size_t ring_next) const {
  const size_t hd = shape_.head_dim, row = ring_rows_ * kBlock;
  const float* from = Ring(state, piece.from, piece.head);
  float* to = Ring(state, piece.to, piece.head);
  if (piece.chunk == 0) {
    std::fill_n(to, hd * row, 0.0f);
  } else if (from != to) {
    std::memcpy(to, from, hd * row * sizeof(float));
  }
  const size_t chunk = fold_interval_ * kBlock;
  const float* keys = state.Tail<float>(piece.tail, keys_offset_) + piece.head * hd * chunk;
  for (size_t i = 0; i < hd; ++i) {
    std::memcpy(to + i * row + ring_next * kBlock, keys + i * chunk, chunk * sizeof(float));
  }
}

}  // namespace rivulet
