// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The walk that a recurrence of independent heads makes over a step: each head of each session is a
// unit of its own, its chunk pieces in order, units in parallel.
//
// Threading: the functions are pure; a unit's visits come from one thread, in order.
#ifndef RIVULET_KERNELS_RECURRENCE_HEAD_UNITS_H_
#define RIVULET_KERNELS_RECURRENCE_HEAD_UNITS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/parallel.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// One piece of a chunk of one head of one session, and the slots it works on.
struct HeadPiece : ChunkPiece {
  size_t head;
  uint32_t from;  // base slot that reads use
  uint32_t to;    // base slot that a fold writes
  uint32_t tail;
  uint64_t chunk;             // number of the chunk in its session; in chunk 0 `from` reads as zero
  const SegmentPages* pages;  // Segment::pages
  size_t guesses;             // of the piece's tokens, the last ones (Segment::guesses)

  size_t rows() const { return end - begin; }
  // The piece's rows of columns [first, first + count) of a [T, ...] matrix.
  template <typename T>
  MatrixView<T> Of(const MatrixView<T>& matrix, size_t first, size_t count) const {
    return matrix.Rows(first_token, rows()).Columns(first, count);
  }
};

// Calls visit(const HeadPiece&) for every piece of every (segment, head). `floats_a_token` is the
// work of one token of one head in floats read, and decides whether waking the pool is worth it.
template <typename Visit>
void ForEachHeadUnit(std::span<const Segment> segments, size_t fold_interval, size_t heads,
                     size_t floats_a_token, ThreadPool& pool, Visit&& visit) {
  const auto run = [&](size_t unit) {
    const Segment& segment = segments[unit / heads];
    ForEachChunkPiece(segment, fold_interval, [&](const ChunkPiece& piece) {
      const uint32_t to = piece.folds ? segment.BaseAfter(piece.fold) : segment.base_out;
      const size_t end = piece.first_token + piece.end - piece.begin;
      const bool last = end == segment.first_token + segment.tokens;
      visit(HeadPiece{piece, unit % heads, segment.BaseBefore(piece.fold), to, segment.tail,
                      segment.position / fold_interval + piece.fold, segment.pages,
                      last ? segment.guesses : 0});
    });
  };
  size_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.tokens;
  const size_t units = segments.size() * heads;
  if (tokens * heads * floats_a_token >= kFloatsWorthAThread) {
    pool.ParallelFor(units, run);
  } else {
    for (size_t unit = 0; unit < units; ++unit) run(unit);
  }
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_HEAD_UNITS_H_
