// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warp of sum_program_stream.cu that brings states, rows and vectors.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sum_program_stream.cuh"

namespace rivulet::cuda {

// States come by bulk copies, a stage each, which the lanes of a group's stages ask for together;
// rows and vectors, which are many and short, by copies of 16 bytes of all lanes.
//
// Units are taken as blocks get to them (shared_work.cuh), since those that fold take longer.
template <typename Form>
class ProgramProducer : public ProgramWork<Form> {
  using Base = ProgramWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;

 public:
  __device__ ProgramProducer(const SumProgramCall& call, const ProgramLayout& layout,
                             std::byte* memory, uint32_t* taken)
      : Base(call, layout, memory), units_(taken) {}

  // The numbers of a unit come while the states of the one before do, as soon as there is a buffer
  // for them: they have to be there when the consumers come to the unit.
  __device__ void Run() {
    bool more = TakeSegment(blockIdx.x);
    BeginStates();
    if (more) BringStates(l_.groups);
    AwaitLastKernel();
    if (!more) {
      units_.Ask();
      more = TakeUnit(units_.Next());
      BeginStates();
    }
    if (more) BringNumbers();
    while (more) {
      units_.Ask();
      next_ = Next::kUnknown;
      BringStates(kAllGroups);
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
  static constexpr uint32_t kAllGroups = ~0u;

  // Unit n; false if its segment has no token.
  __device__ bool TakeSegment(uint32_t n) {
    const uint32_t segment = Over(n, l_.of_segment);
    const uint32_t unit = n - segment * l_.of_segment.divisor;
    Base::Take(c_.rows.segments[segment], unit, Over(unit, l_.of_group));
    return this->segment_.tokens != 0;
  }
  // Unit n, or the next one that has a token; false where there is none.
  __device__ bool TakeUnit(uint32_t n) {
    for (; n < l_.units; n = units_.Next()) {
      if (TakeSegment(n)) return true;
      units_.Ask();
    }
    return false;
  }
  __device__ void TakeNext() { next_ = TakeUnit(units_.Next()) ? Next::kTaken : Next::kNone; }

  // Where the copies of states stand: at the first one of the unit that was taken.
  __device__ void BeginStates() {
    states_ = c_.slots.bases + this->segment_.base_in * c_.slots.base_stride;
    states_unit_ = this->unit_;
    states_fresh_ = this->fresh_;
    brought_ = 0;
  }

  // The groups of all visits in order, up to `most` of them. Those that were brought are left out.
  __device__ void BringStates(uint32_t most) {
    uint32_t n = 0;
    for (uint32_t v = 0; v < l_.visits; ++v) {
      const VisitTable& visit = l_.tables.visits[v];
      const std::byte* from =
          states_ + visit.state + size_t{states_unit_} * visit.tiles * Form::kTileBytes;
      for (uint32_t tile = 0; tile < visit.tiles; tile += Form::kConsumers, ++n) {
        if (n < brought_) continue;
        if (n == most) return;
        if (most == kAllGroups) LookAhead();
        BringGroup(from + size_t{tile} * Form::kTileBytes, visit.tiles - tile);
        brought_ = n + 1;
      }
    }
  }

  // Brings the numbers of the next unit if it is time, not before states of this one are under way.
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

  // Consecutive tiles, of which there are `tiles`. A lane fills the stage of one consumer.
  __device__ void BringGroup(const std::byte* from, uint32_t tiles) {
    if (lane_ < Form::kConsumers) {
      const uint32_t stage = stages_.at * Form::kConsumers + lane_;
      const uint32_t bytes = states_fresh_ || lane_ >= tiles ? 0 : Form::kTileBytes;
      uint64_t* const full = &barriers_.full[stage];
      if (!stages_.first_round) WaitBarrier(&barriers_.empty[stage], stages_.parity ^ 1);
      ArriveExpecting(full, bytes);
      if (bytes != 0) BulkCopy(Base::Stage(stage), from + lane_ * Form::kTileBytes, bytes, full);
    }
    __syncwarp();
    stages_.Advance(l_.groups);
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
    for (uint32_t i = 0; i < l_.inputs; ++i) {
      const ProgramVector& vector = c_.vectors[l_.input[i].vector];
      Bring(l_.input[i].to, this->Vector(vector), vector.width);
    }
    if (c_.decays == nullptr) return;
    Bring(l_.decays, c_.decays + size_t{this->unit_} * kChunk, kChunk);
  }

  __device__ void AwaitBuffer() {
    Base::TakeBuffer(unit_buffer_.at);
    if (unit_buffer_.first_round) return;
    WaitBarrier(&barriers_.unit_empty[unit_buffer_.at], unit_buffer_.parity ^ 1);
  }

  // The rows of the tail before the token's: a row by 1 << row_shift lanes.
  __device__ void BringRows(uint32_t r) const {
    const ProgramRow& row = c_.rows_of[r];
    const uint32_t shift = l_.row_shift[r], lanes = 1u << shift, step = 32u >> shift;
    const uint32_t bytes = row.width * 2;
    const std::byte* from = this->TailRow(row.offset, bytes, 0);
    std::byte* const to = Base::template At<std::byte>(l_.rows[r]);
    for (uint32_t place = lane_ >> shift; place < this->place_; place += step) {
      for (uint32_t at = (lane_ & (lanes - 1)) * 16; at < bytes; at += lanes * 16) {
        CopyAsync(to + place * l_.row_bytes[r] + at, from + place * bytes + at);
      }
    }
  }

  __device__ void Bring(uint32_t to, const float* from, uint32_t count) const {
    for (uint32_t i = lane_ * 4; i < count; i += 128) {
      CopyAsync(Base::template At<float>(to) + i, from + i);
    }
  }

  // Tells the others that there is no more work.
  __device__ void End() {
    AwaitBuffer();
    ArriveAfterCopies(&barriers_.unit_full[unit_buffer_.at]);
    if (lane_ != 0) return;
    Base::Header().last = 1;
    Arrive(&barriers_.unit_full[unit_buffer_.at]);
    units_.End(l_.units);
  }

  WorkCounter units_;
  Ring stages_, unit_buffer_;
  Next next_ = Next::kUnknown;
  // The unit whose states are brought, and how many of its groups were.
  const std::byte* states_ = nullptr;
  uint32_t states_unit_ = 0, brought_ = 0;
  bool states_fresh_ = false;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_
