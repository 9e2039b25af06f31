// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warp of sum_program_stream.cu that brings states, rows and vectors.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sum_program_stream.cuh"

namespace rivulet::cuda {

// States come by bulk copies, a stage each; rows and vectors, which are many and short, by copies
// of 16 bytes of all lanes.
//
// A block begins with the unit of its number and then takes the next one that no block has taken,
// since units that fold take longer. `next_unit` is zero before the launch, and again after it.
template <typename Form>
class ProgramProducer : public ProgramWork<Form> {
  using Base = ProgramWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;
  static constexpr uint32_t kMostUnits = uint32_t{1} << 31;

 public:
  __device__ ProgramProducer(const SumProgramCall& call, const ProgramPlan& plan,
                             const ProgramLayout& layout, std::byte* memory, uint32_t* next_unit)
      : Base(call, plan, layout, memory), next_unit_(next_unit) {}

  // The numbers of a unit come while the states of the one before do, as soon as there is a buffer
  // for them: they have to be there when the consumers come to the unit.
  __device__ void Run() {
    bool more = TakeSegment(blockIdx.x);
    BeginStates();
    if (more) BringStates(l_.stages);
    AwaitLastKernel();
    if (!more) {
      CountUnit();
      more = TakeUnit(TakenUnit());
      BeginStates();
    }
    if (more) BringNumbers();
    while (more) {
      CountUnit();
      next_ = Next::kUnknown;
      BringStates(kAllStages);
      if (next_ == Next::kUnknown) TakeNext();
      if (next_ == Next::kTaken) BringNumbers();
      more = next_ != Next::kNone;
      BeginStates();
    }
    End();
  }

 private:
  // What is known of the unit after the one whose states are brought: nothing, its segment, its
  // numbers have been brought, or that there is none.
  enum class Next : uint8_t { kUnknown, kTaken, kBrought, kNone };
  static constexpr uint32_t kAllStages = ~0u;

  // Once for each unit that was taken. Not atomicAdd: the compiler adds up those of a warp and
  // shares out the sum, for which the warp waits.
  __device__ void CountUnit() {
    if (lane_ == 0) taken_ = atomicInc(next_unit_, kMostUnits);
  }
  // Unit n; false if its segment has no token.
  __device__ bool TakeSegment(uint32_t n) {
    const uint32_t unit = n % c_.units;
    Base::Take(c_.rows.segments[n / c_.units], unit, unit / c_.group_heads);
    return this->segment_.tokens != 0;
  }
  // Unit n, or the next one that has a token; false where there is none.
  __device__ bool TakeUnit(uint32_t n) {
    for (; n < l_.units; n = TakenUnit()) {
      if (TakeSegment(n)) return true;
      CountUnit();
    }
    return false;
  }
  __device__ uint32_t TakenUnit() const { return gridDim.x + __shfl_sync(0xffffffffu, taken_, 0); }

  __device__ void TakeNext() { next_ = TakeUnit(TakenUnit()) ? Next::kTaken : Next::kNone; }

  // Where the copies of states stand: at the first one of the unit that was taken.
  __device__ void BeginStates() {
    states_ = c_.slots.bases + this->segment_.base_in * c_.slots.base_stride;
    states_unit_ = this->unit_;
    states_fresh_ = this->fresh_;
    brought_ = 0;
  }

  // The stages of all visits in order, up to `most` of them. Those that were brought are left out.
  __device__ void BringStates(uint32_t most) {
    uint32_t n = 0;
    for (uint32_t v = 0; v < this->plan_.visit_count; ++v) {
      const ProgramSum& sum = c_.sums[this->plan_.visits[v].sum];
      const uint32_t tiles = sum.padded_value / 16;
      const std::byte* from =
          states_ + sum.offset + size_t{states_unit_} * tiles * Form::kTileBytes;
      for (uint32_t tile = 0; tile < tiles; ++tile, ++n) {
        if (n < brought_) continue;
        if (n == most) return;
        if (most == kAllStages) LookAhead();
        BringStage(from + size_t{tile} * Form::kTileBytes);
        brought_ = n + 1;
      }
    }
  }

  // Brings the numbers of the next unit if it is time, not before a stage of this one is under way.
  __device__ void LookAhead() {
    if (brought_ == 0 || next_ == Next::kBrought || next_ == Next::kNone) return;
    if (next_ == Next::kUnknown) TakeNext();
    if (next_ != Next::kTaken || !BufferIsFree()) return;
    BringNumbers();
    next_ = Next::kBrought;
  }

  __device__ bool BufferIsFree() const {
    if (unit_buffer_.first_round) return true;
    bool free = false;
    if (lane_ == 0) {
      free = TestBarrier(&barriers_.unit_empty[unit_buffer_.at], unit_buffer_.parity ^ 1);
    }
    return __shfl_sync(0xffffffffu, free, 0);
  }

  __device__ void BringStage(const std::byte* from) {
    if (!stage_.first_round) WaitBarrier(&barriers_.empty[stage_.at], stage_.parity ^ 1);
    if (lane_ == 0) {
      uint64_t* const full = &barriers_.full[stage_.at];
      ArriveExpecting(full, states_fresh_ ? 0 : Form::kTileBytes);
      if (!states_fresh_) BulkCopy(Base::Stage(stage_.at), from, Form::kTileBytes, full);
    }
    stage_.Advance(l_.stages);
  }

  __device__ void BringNumbers() {
    AwaitBuffer();
    for (uint32_t r = 0; r < c_.row_count; ++r) BringRows(r);
    BringVectors();
    ArriveAfterCopies(&barriers_.unit_full[unit_buffer_.at]);
    if (lane_ == 0) {
      Base::Header() = {this->segment_, this->unit_, this->group_, 0};
      Arrive(&barriers_.unit_full[unit_buffer_.at]);
    }
    unit_buffer_.Advance(kUnitBuffers);
  }

  // The token's inputs, and the unit's decays.
  __device__ void BringVectors() const {
#pragma unroll 1
    for (uint32_t v = 0; v < kMostProgramVectors; ++v) {
      if (l_.vectors[v] == kAbsent) continue;
      Bring(Base::template At<std::byte>(l_.vectors[v]), this->Vector(c_.vectors[v]),
            c_.vectors[v].width * 4);
    }
    if (c_.decays == nullptr) return;
    Bring(Base::template At<std::byte>(l_.decays), c_.decays + size_t{this->unit_} * kChunk,
          kChunk * 4);
  }

  __device__ void AwaitBuffer() {
    Base::TakeBuffer(unit_buffer_.at);
    if (unit_buffer_.first_round) return;
    WaitBarrier(&barriers_.unit_empty[unit_buffer_.at], unit_buffer_.parity ^ 1);
  }

  // The rows of the tail before the token's.
  __device__ void BringRows(uint32_t r) const {
    const ProgramRow& row = c_.rows_of[r];
    const bf16* from = this->TailRow(row, 0);
    bf16* to = Base::template At<bf16>(l_.rows[r]);
    const uint32_t eights = row.width / 8;
    uint32_t place = 0, column = lane_;
    while (column >= eights) column -= eights, ++place;
    while (place < this->place_) {
      CopyAsync(to + place * l_.row_stride[r] + column * 8, from + place * row.width + column * 8);
      column += 32;
      while (column >= eights) column -= eights, ++place;
    }
  }

  __device__ void Bring(std::byte* to, const float* from, uint32_t bytes) const {
    for (uint32_t i = lane_ * 16; i < bytes; i += 512) {
      CopyAsync(to + i, reinterpret_cast<const std::byte*>(from) + i);
    }
  }

  // Tells the others that there is no more work. The last block to find this out prepares the
  // counter for the next launch.
  __device__ void End() {
    AwaitBuffer();
    ArriveAfterCopies(&barriers_.unit_full[unit_buffer_.at]);
    if (lane_ != 0) return;
    Base::Header().last = 1;
    Arrive(&barriers_.unit_full[unit_buffer_.at]);
    if (taken_ + 1 == l_.units) *next_unit_ = 0;
  }

  uint32_t* const next_unit_;
  Ring stage_, unit_buffer_;
  uint32_t taken_ = 0;  // lane 0: how many units were taken before the block's next one
  Next next_ = Next::kUnknown;
  // The unit whose states are brought, and how many of its stages were.
  const std::byte* states_ = nullptr;
  uint32_t states_unit_ = 0, brought_ = 0;
  bool states_fresh_ = false;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_
