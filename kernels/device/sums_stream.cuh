// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the warps of a block of sums_stream.cu share: how its memory is laid out, the barriers of
// its rings, and where the numbers of a piece of work are.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_STREAM_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_STREAM_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/shared_work.cuh"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {

constexpr uint32_t kMostStages = 8;
constexpr uint32_t kKeyBuffers = 2;
constexpr uint32_t kMostConsumers = 2;  // warps

// The kernel for a kind of state, Dp / 16, and decays by channel or by unit.
template <bool kBf16State_, int kKeyTiles_, bool kChannel_>
struct StreamForm {
  static constexpr bool kBf16State = kBf16State_;
  static constexpr int kKeyTiles = kKeyTiles_;
  static constexpr bool kChannel = kChannel_;
  static constexpr uint32_t kKey = kKeyTiles * 16;  // Dp
  static constexpr uint32_t kStride = kKey + kPad;  // of rows of keys in shared memory
  static constexpr uint32_t kNumber = kBf16State ? 2 : 4;
  // Warps that prepare keys. Decays by channel need an exponential function for each number of each
  // row, which takes one warp longer than reading the pieces that share the keys.
  static constexpr uint32_t kKeyWarps = kChannel ? 4 : 1;
  // Blocks that share a processor.
  static constexpr uint32_t kMostBlocks = kKeyTiles > 8 ? 2 : kChannel ? 3 : 4;
  // Tiles of 16 value columns of a warp: two where their state is small, whose chains of products
  // then run side by side.
  static constexpr int kTiles = kBf16State || kKeyTiles <= 4 ? 2 : 1;
};

// A barrier of a ring completes a phase when the producer has described what comes (begun), when
// all of it has come (full, or key_copied), when keys have been prepared (key_full), and when the
// place has been read (empty).
struct StreamBarriers {
  uint64_t begun[kMostStages], full[kMostStages], empty[kMostStages];
  uint64_t key_begun[kKeyBuffers], key_copied[kKeyBuffers], key_full[kKeyBuffers],
      key_empty[kKeyBuffers];
};

// What the producer says of a stage or a key buffer.
struct StageHeader {
  DeviceSegment segment;
  uint32_t unit, split;
  uint32_t new_keys;  // not 0: the piece is the first with its key buffer
  uint32_t last;      // not 0: there is no more work, and the rest is undefined
};

// How a launch divides its work and its blocks' memory. Offsets are in bytes; fp32 numbers are as
// the step's kernels wrote them.
struct StreamLayout {
  uint32_t values;  // value columns of a piece: 8 << value_shift
  uint32_t value_shift;
  uint32_t splits;                        // pieces of a unit
  uint32_t group;                         // pieces of a group
  uint32_t pieces;                        // of all segments
  uint32_t run, short_run;                // pieces of a run
  uint32_t long_runs;                     // which come first; the last short one may be shorter
  uint32_t runs;                          // of all segments
  uint32_t given;                         // runs of each block that are its own
  Divisor of_segment, of_unit, of_group;  // pieces
  Divisor of_key;                         // units
  uint32_t columns;                       // queries, or key and query of a delta rule
  uint32_t queries;                       // of a unit
  uint32_t warps;                         // consumers
  // In a stage, after the state [values, Dp] in tiles: the tail's values, bf16 [C, values + pad];
  // fp32 [values], four times; four neighbours of which one is meant; fp32 [C].
  uint32_t v, token_v, skip, gate, weight, step, rate, beta, decay, header, stage_bytes, stages;
  // In a key buffer, after the tail's keys, bf16 [C, Dp + pad]: bf16 [columns, Dp + pad]; fp32
  // [Dp]; fp32 [queries, Dp]; the scores as KeyWarp says. With decays by channel also fp32 [Dp]
  // and fp32 [C].
  uint32_t q, token_k, token_q, scores, state_decay, key_scores, key_header, key_bytes;
  uint32_t keys, first_stage, bytes;  // of a block
};

// A block's memory, and the piece of work that one of its warps is at.
template <typename Form>
class StreamWork {
 public:
  __device__ StreamWork(const RecurCall& call, const StreamLayout& layout, std::byte* memory)
      : c_(call),
        l_(layout),
        memory_(memory),
        barriers_(*reinterpret_cast<StreamBarriers*>(memory)),
        lane_(threadIdx.x % 32) {}

 protected:
  __device__ std::byte* Stage(uint32_t s) const {
    return memory_ + l_.first_stage + s * l_.stage_bytes;
  }
  __device__ StageHeader& Header(uint32_t s) const {
    return *reinterpret_cast<StageHeader*>(Stage(s) + l_.header);
  }
  __device__ std::byte* Keys(uint32_t buffer) const {
    return memory_ + l_.keys + buffer * l_.key_bytes;
  }
  __device__ StageHeader& KeyHeader(uint32_t buffer) const {
    return *reinterpret_cast<StageHeader*>(Keys(buffer) + l_.key_header);
  }

  __device__ void Take(const DeviceSegment& segment, uint32_t unit, uint32_t split) {
    segment_ = segment;
    unit_ = unit;
    split_ = split;
    first_ = split * l_.values;
    width_ = min(l_.values, c_.padded_value - first_);
    place_ = static_cast<uint32_t>(segment.position % kChunk);
    fresh_ = segment.position < kChunk;
  }
  __device__ void Take(const StageHeader& header) {
    Take(header.segment, header.unit, header.split);
  }
  __device__ std::byte* Matrix(uint32_t slot) const {
    return c_.slots.bases + slot * c_.slots.base_stride + c_.state_offset +
           (size_t{unit_} * c_.padded_value + first_) * (Form::kKey * Form::kNumber);
  }
  __device__ std::byte* Tail(size_t offset) const {
    return c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset;
  }
  __device__ uint32_t KeyOf() const { return Over(unit_, l_.of_key); }
  __device__ bf16* KeyRow(uint32_t place) const {
    return reinterpret_cast<bf16*>(Tail(c_.key_offset)) +
           (size_t{KeyOf()} * kChunk + place) * Form::kKey;
  }
  // The unit's row of values, and whether it is the first of those that share it.
  __device__ uint32_t ValueOf() const {
    return c_.units_per_value == 1 ? unit_ : unit_ / c_.units_per_value;
  }
  __device__ bool KeepsValue() const {
    return c_.units_per_value == 1 || unit_ % c_.units_per_value == 0;
  }
  __device__ bf16* ValueRow(uint32_t place) const {
    return reinterpret_cast<bf16*>(Tail(c_.value_offset)) +
           (size_t{ValueOf()} * kChunk + place) * c_.padded_value + first_;
  }
  __device__ float* DecayRow() const {
    return reinterpret_cast<float*>(Tail(c_.decay_offset)) + size_t{unit_} * kChunk;
  }
  __device__ float* ChannelDecays(uint32_t place) const {
    return reinterpret_cast<float*>(Tail(c_.decay_offset)) +
           (size_t{unit_ / c_.units_per_decay} * kChunk + place) * Form::kKey;
  }
  __device__ size_t Token() const { return segment_.first_token; }
  __device__ bool Empty() const { return segment_.tokens == 0; }

  // Rows of the tail before the token's, by `threads` threads, of which this is number `thread`: 16
  // bytes at its number modulo 1 << shift of every (threads >> shift)-th row, if there are so many.
  __device__ void CopyRows(std::byte* to, uint32_t to_stride, const bf16* from,
                           uint32_t from_stride, uint32_t shift, uint32_t eights, uint32_t thread,
                           uint32_t threads) const {
    const uint32_t eight = thread & ((1u << shift) - 1), step = threads >> shift;
    uint32_t row = thread >> shift;
    if (eight >= eights) return;
    to += row * to_stride + eight * 16;
    from += row * from_stride + eight * 8;
    for (; row < place_; row += step, to += step * to_stride, from += step * from_stride) {
      CopyAsync(to, from);
    }
  }

  const RecurCall& c_;
  const StreamLayout& l_;
  std::byte* const memory_;
  StreamBarriers& barriers_;
  const uint32_t lane_;
  DeviceSegment segment_;
  uint32_t unit_, split_, first_, width_, place_;
  bool fresh_;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_STREAM_CUH_
