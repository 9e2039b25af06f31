// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the warps of a block of sum_program_stream.cu share: how its memory is laid out, the
// barriers of its rings, and where the numbers of a unit are.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_STREAM_CUH_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_STREAM_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/shared_work.cuh"
#include "kernels/device/sum_program_plan.h"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {

constexpr uint32_t kMostProgramStages = 16;
constexpr uint32_t kMostProgramGroups = 24;
constexpr uint32_t kUnitBuffers = 2;
constexpr uint32_t kAbsent = ~0u;

// The kernel for a kind of state and Dp / 16.
template <bool kBf16State_, int kKeyTiles_>
struct ProgramForm {
  static constexpr bool kBf16State = kBf16State_;
  static constexpr int kKeyTiles = kKeyTiles_;
  static constexpr uint32_t kKey = kKeyTiles * 16;                          // Dp
  static constexpr uint32_t kTileBytes = 16 * kKey * (kBf16State ? 2 : 4);  // of 16 value columns
  // Warps that read and fold. With wide heads one block takes a whole processor, so more of its
  // warps have to run side by side.
  static constexpr uint32_t kConsumers = kKeyTiles / 2;
  static constexpr uint32_t kMostBlocks = kKeyTiles > 8 ? 1 : kKeyTiles > 4 ? 3 : 5;  // a processor
  // Tiles that a warp reads side by side, whose chains of products do not wait for each other: two
  // only where the ring has room for several groups, since with room for two nothing would be on
  // its way meanwhile.
  static constexpr uint32_t kSideBySide = kTileBytes <= 2048 ? 2 : 1;
  // Tiles of neighbouring warps that come by one copy, and the copies of a tile for each warp.
  static constexpr uint32_t kCopyTiles = kKeyTiles > 4 ? 1 : 2;
  static constexpr uint32_t kCopies = kConsumers / kCopyTiles;
  // Pieces of 16 bytes of a unit's vectors that each lane copies, at most.
  static constexpr uint32_t kPieces = kKey / 32 + 1;
};

// A barrier of a ring completes a phase when the place was filled (full) or read (empty).
struct ProgramBarriers {
  uint64_t full[kMostProgramStages], empty[kMostProgramStages];
  uint64_t unit_full[kUnitBuffers], unit_empty[kUnitBuffers];
};

// What the producer says of a unit.
struct UnitHeader {
  DeviceSegment segment;
  uint32_t unit, group;
  uint32_t last;  // not 0: there is no more work, and the rest is undefined
};

// The program with its names resolved by the launch: what a warp would otherwise look up for each
// unit. Offsets are in bytes, in a unit's buffer if nothing else is said.

// Numbers of the token that are put into a row, or into the parts of a query.
struct alignas(16) ProgramJob {
  uint32_t from;        // fp32
  uint32_t fours;       // numbers / 4
  uint32_t to;          // of place 0, or the high parts
  uint32_t row_bytes;   // of the row in the buffer; 0: a query
  uint32_t tail_bytes;  // of the row in the tail
  size_t tail;          // in a slot's tails: the row of unit 0 and place 0
};

enum class WritesTo : uint32_t { kRow, kQuery, kSum, kOutput };

// A read of a visit.
struct alignas(16) ProgramTarget {
  uint32_t query;  // its high parts
  uint32_t strict;
  WritesTo writes;
  uint32_t to;        // row of place 0, high parts, or the output so far
  float ridge, add;   // 0: none
  uint32_t ridge_of;  // what the ridge multiplies
  uint32_t row_bytes, tail_bytes;
  size_t tail;
};

struct alignas(16) VisitTable {
  size_t state;  // in a slot: unit 0
  uint32_t tiles;
  uint32_t reads;
  uint32_t key, key_bytes;      // row of place 0, from row to row
  uint32_t value, value_bytes;  // at its column
  float decay_power;
  ProgramTarget targets[kMostVisitReads];
};

// A vector of each token, or of each unit: `data` + token · stride + unit or group · unit_bytes.
struct ProgramInput {
  const std::byte* data;
  uint32_t stride, unit_bytes;
  uint32_t per_head;
  uint32_t fours;
  uint32_t to;
};

constexpr uint32_t kMostProgramJobs = 2 * kMostProgramRows + kMostProgramVectors;

// Tiles of one visit, one for each consumer: in a slot, of unit 0.
struct ProgramGroup {
  size_t state;
  uint32_t unit_bytes;
  uint32_t tiles;  // this one and those after it
};

// A block's memory, in bytes: barriers, tables, 16 zeros, the buffers of units, stages. A stage is
// a tile of 16 value columns of a state. Stages come in groups of one for each consumer, so that a
// stage belongs to one consumer in all rounds: a consumer that waited for one round of a barrier
// while an earlier round was under way would take the wrong one for its own. kCopyTiles stages of a
// group share their barriers.
//
// In a unit's buffer: rows of the tail, bf16 [C, width + pad]; input vectors, fp32 [width]; vectors
// that are queries, as high and low parts, bf16 [2, Dp + pad]; the cumulative decays, fp32 [C]; the
// output, fp32 [Ep].
struct ProgramLayout {
  uint32_t rows[kMostProgramRows], row_bytes[kMostProgramRows];  // from row to row
  uint32_t row_shift[kMostProgramRows];                          // 1 << row_shift lanes copy a row
  uint32_t vectors[kMostProgramVectors];                         // kAbsent: not an input
  uint32_t queries[kMostProgramVectors];                         // kAbsent: not a query
  uint32_t decays, out, header, unit_bytes;
  uint32_t first_job, zeros, first_unit, first_stage, groups, bytes;
  uint32_t units;                 // of all segments
  uint32_t given;                 // units of each block that are its own
  uint32_t visits, jobs, inputs;  // in the lists
  uint32_t more_pieces;           // not 0: inputs have more pieces than lanes remember
  uint32_t unit_groups;           // of all visits of a unit
  Divisor of_segment, of_group;   // units, heads
  ProgramInput input[kMostProgramVectors + 1];
  ProgramGroup group[kMostProgramGroups];
  VisitTable visit[kMostProgramSums];
  ProgramJob job[kMostProgramJobs];
};

// A block's memory, and the unit that one of its warps is at.
template <typename Form>
class ProgramWork {
 public:
  __device__ ProgramWork(const SumProgramCall& call, const ProgramLayout& layout, std::byte* memory)
      : c_(call),
        l_(layout),
        memory_(memory),
        barriers_(*reinterpret_cast<ProgramBarriers*>(memory)),
        lane_(threadIdx.x % 32) {}

 protected:
  __device__ VisitTable* Visits() const {
    return reinterpret_cast<VisitTable*>(memory_ + sizeof(ProgramBarriers));
  }
  __device__ ProgramJob* Jobs() const {
    return reinterpret_cast<ProgramJob*>(memory_ + l_.first_job);
  }
  __device__ std::byte* Stage(uint32_t s) const {
    return memory_ + l_.first_stage + s * Form::kTileBytes;
  }
  __device__ void TakeBuffer(uint32_t buffer) {
    buffer_ = memory_ + l_.first_unit + buffer * l_.unit_bytes;
  }
  __device__ UnitHeader& Header() const {
    return *reinterpret_cast<UnitHeader*>(buffer_ + l_.header);
  }
  __device__ void Take(const DeviceSegment& segment, uint32_t unit, uint32_t group) {
    segment_ = segment;
    unit_ = unit;
    group_ = group;
    place_ = static_cast<uint32_t>(segment.position % kChunk);
    fresh_ = segment.position < kChunk;
  }
  template <typename T>
  __device__ T* At(uint32_t offset) const {
    return reinterpret_cast<T*>(buffer_ + offset);
  }

  // In device memory, of the unit.
  __device__ std::byte* State(const VisitTable& visit, uint32_t slot) const {
    return c_.slots.bases + slot * c_.slots.base_stride + visit.state +
           size_t{unit_} * visit.tiles * Form::kTileBytes;
  }
  __device__ std::byte* TailRow(size_t tail, uint32_t tail_bytes, uint32_t place) const {
    return c_.slots.tails + segment_.tail * c_.slots.tail_stride + tail +
           size_t{unit_ * kChunk + place} * tail_bytes;
  }
  __device__ float* Vector(const ProgramVector& vector) const {
    const uint32_t index = vector.per_head ? unit_ : group_;
    return vector.data + size_t{segment_.first_token} * vector.stride +
           size_t{index} * vector.width;
  }

  const SumProgramCall& c_;
  const ProgramLayout& l_;
  std::byte* const memory_;
  ProgramBarriers& barriers_;
  const uint32_t lane_;
  std::byte* buffer_ = nullptr;
  DeviceSegment segment_;
  uint32_t unit_, group_, place_;  // the group that shares vectors which are not per head
  bool fresh_;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_STREAM_CUH_
