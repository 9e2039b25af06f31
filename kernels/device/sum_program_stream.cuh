// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the warps of a block of sum_program_stream.cu share: how its memory is laid out, the
// barriers of its rings, and where the numbers of a unit are.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_STREAM_CUH_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_STREAM_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/sum_program_plan.h"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {

constexpr uint32_t kMostProgramStages = 16;
constexpr uint32_t kUnitBuffers = 2;

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

// A block's memory, in bytes. A stage is a tile of 16 value columns of a state. The stages are a
// multiple of the consumers, so that each stage belongs to one consumer in all rounds: copies may
// arrive out of order, and a consumer that waited for one round of a barrier while an earlier round
// was under way would take the wrong one for its own. In a unit's buffer: rows of the tail, bf16
// [C, width + pad]; input vectors, fp32 [width]; vectors that are queries, as high and low parts,
// bf16 [2, Dp + pad]; the cumulative decays, fp32 [C]; the output, fp32 [Ep].
struct ProgramLayout {
  uint32_t rows[kMostProgramRows], row_stride[kMostProgramRows];  // strides in numbers
  uint32_t vectors[kMostProgramVectors];                          // kAbsent: not an input
  uint32_t queries[kMostProgramVectors];                          // kAbsent: not a query
  uint32_t decays, out, header, unit_bytes;
  uint32_t first_unit, first_stage, stages, bytes;
  uint32_t last_out;  // the read that the output is complete after
  uint32_t units;     // of all segments
};
constexpr uint32_t kAbsent = ~0u;

// A block's memory, and the unit that one of its warps is at.
template <typename Form>
class ProgramWork {
 public:
  __device__ ProgramWork(const SumProgramCall& call, const ProgramPlan& plan,
                         const ProgramLayout& layout, std::byte* memory)
      : c_(call),
        plan_(plan),
        l_(layout),
        memory_(memory),
        barriers_(*reinterpret_cast<ProgramBarriers*>(memory)),
        lane_(threadIdx.x % 32) {}

 protected:
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
  __device__ std::byte* Matrix(const ProgramSum& sum, uint32_t slot) const {
    return c_.slots.bases + slot * c_.slots.base_stride + sum.offset +
           size_t{unit_} * (sum.padded_value / 16) * Form::kTileBytes;
  }
  __device__ bf16* TailRow(const ProgramRow& row, uint32_t place) const {
    const size_t at = (size_t{unit_} * kChunk + place) * row.width;
    return reinterpret_cast<bf16*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride +
                                   row.offset) +
           at;
  }
  __device__ float* Vector(const ProgramVector& vector) const {
    const uint32_t index = vector.per_head ? unit_ : group_;
    return vector.data + size_t{segment_.first_token} * vector.stride +
           size_t{index} * vector.width;
  }

  const SumProgramCall& c_;
  const ProgramPlan& plan_;
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
