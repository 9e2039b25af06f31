// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How a session's state lies in memory, and which piece of a step touches it.
//
// State = checkpoint + tail (DESIGN 1). The *checkpoint* holds the matrices at the last position
// that is a multiple of kFoldInterval, with the convolution inputs before it. The *tail* holds one
// small row for each token since. A checkpoint slot may be shared by several sessions and is then
// never written; a tail slot belongs to one session. Slots are numbers: the same description serves
// host and device memory.
//
// This file knows bytes and positions, no mathematics, and no session, request or file.
#ifndef RIVULET_KERNELS_RECURRENCE_STATE_H_
#define RIVULET_KERNELS_RECURRENCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"

namespace rivulet {

// C: tokens between two checkpoints. Chunk borders lie at absolute multiples of it.
inline constexpr size_t kFoldInterval = 16;

enum class StatePart : uint8_t { kCheckpoint, kTail };

// One array inside a slot.
struct StatePlane {
  std::string name;  // for documentation, metrics and snapshots; unique in its layer
  StatePart part;
  DType dtype;
  std::vector<size_t> shape;  // in elements, padding included
  size_t offset;  // bytes from the start of the layer's part of the slot; 64-byte aligned
};

// What one layer keeps for one session: a list of planes in two parts. Built once at load, then
// constant.
class StateLayout {
 public:
  // Appends a plane and returns its byte offset inside the layer's part of a slot.
  size_t Add(StatePart part, std::string_view name, DType dtype,
             std::initializer_list<size_t> shape);

  const std::vector<StatePlane>& planes() const { return planes_; }
  size_t checkpoint_bytes() const { return bytes_[0]; }
  size_t tail_bytes() const { return bytes_[1]; }

 private:
  std::vector<StatePlane> planes_;
  size_t bytes_[2] = {0, 0};
};

// A run of consecutive tokens of one session inside one step. Decode is a run of one; prefill is a
// run of many; the arithmetic is the same.
//
// A run that reaches the end of a chunk folds: its first fold reads `checkpoint_in` and writes
// `checkpoint_out`, later folds update `checkpoint_out`. They may be the same slot (nobody else
// holds it) or different ones (it is shared); both give the same bits. A run that does not reach
// the end of a chunk writes no checkpoint.
struct Segment {
  size_t first_token = 0;  // row of the step's token arrays
  size_t tokens = 0;       // > 0
  uint64_t position = 0;   // absolute position of the first token in its session
  uint32_t checkpoint_in = 0;
  uint32_t checkpoint_out = 0;
  uint32_t tail = 0;
};

// True if a run of `tokens` from `position` completes at least one chunk.
constexpr bool Folds(uint64_t position, size_t tokens) {
  return position % kFoldInterval + tokens >= kFoldInterval;
}

// The slots of one layer: slot s of a part starts at base + s * stride. Strides cover all layers,
// so that a slot is one contiguous run of bytes (a snapshot is two copies).
struct LayerState {
  std::byte* checkpoints = nullptr;
  size_t checkpoint_stride = 0;
  std::byte* tails = nullptr;
  size_t tail_stride = 0;

  template <typename T>
  T* Checkpoint(uint32_t slot, size_t offset) const {
    return reinterpret_cast<T*>(checkpoints + slot * checkpoint_stride + offset);
  }
  template <typename T>
  T* Tail(uint32_t slot, size_t offset) const {
    return reinterpret_cast<T*>(tails + slot * tail_stride + offset);
  }
};

// A segment cut at absolute chunk borders: pieces of at most kFoldInterval tokens, each inside one
// chunk. Every mixer walks its segments through this, and so every split of a prompt does the same
// arithmetic.
struct ChunkPiece {
  size_t first_token;  // row of the step's token arrays
  size_t begin, end;   // places in the chunk, 0 <= begin < end <= kFoldInterval
  bool folds;          // end == kFoldInterval
  bool first;          // the segment's first piece: reads checkpoint_in, later ones checkpoint_out
};

template <typename Visit>  // void(const ChunkPiece&)
void ForEachChunkPiece(const Segment& segment, Visit&& visit) {
  size_t done = 0;
  while (done < segment.tokens) {
    const size_t begin = (segment.position + done) % kFoldInterval;
    const size_t left = segment.tokens - done;
    const size_t end = begin + left < kFoldInterval ? begin + left : kFoldInterval;
    visit(ChunkPiece{segment.first_token + done, begin, end, end == kFoldInterval, done == 0});
    done += end - begin;
  }
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_STATE_H_
