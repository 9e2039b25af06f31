// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warp of sum_program_stream.cu that brings states, rows and vectors.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sum_program_stream.cuh"

namespace rivulet::cuda {

// States come by bulk copies, of kCopyTiles stages each, which the lanes of a group ask for
// together; rows and vectors, which are many and short, by copies of 16 bytes of all lanes.
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
      : Base(call, layout, memory), units_(taken, layout.units, layout.given) {}

  // Before the block's first barrier, so that the segment comes while others initialise barriers;
  // Run() needs it.
  __device__ void TakeFirstUnit() { TakeSegment(blockIdx.x); }

  // The numbers of a unit come while the states of the one before do, as soon as there is a buffer
  // for them: they have to be there when the consumers come to the unit.
  __device__ void Run() {
    const bool more = this->segment_.tokens != 0;
    BeginStates();
    while (more && brought_ < min(l_.groups, l_.unit_groups)) BringGroup();
    FetchSegments(c_.rows);  // what TakeSegment reads would come late each time
    const uint32_t early = brought_;
    if (more) BringRows();
    ChoosePieces();
    AwaitLastKernel();
    units_.Ask();
    next_ = more ? Next::kTaken : Next::kUnknown;
    brought_ = l_.unit_groups;  // so that the first unit's numbers come before more of its states
    bool asked = more;
    for (uint32_t done = early;; done = 0) {
      while (BringNext()) {
      }
      if (next_ == Next::kNone) break;
      BeginStates();
      brought_ = done;
      if (!asked) units_.Ask();
      asked = false;
      next_ = Next::kUnknown;
    }
    End();
  }

 private:
  // What is known of the unit after the one whose states are brought: nothing, its segment, its
  // numbers have been brought, or that there is none.
  enum class Next : uint8_t { kUnknown, kTaken, kBrought, kNone };

  // Unit n; false if its segment has no token.
  __device__ bool TakeSegment(uint32_t n) {
    const uint32_t segment = Over(n, l_.of_segment);
    const uint32_t unit = n - segment * l_.of_segment.divisor;
    Base::Take(c_.rows.segments[SegmentInTurn(c_.rows, segment)], unit, Over(unit, l_.of_group));
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
  // Where the copies of states stand: at the first one of the unit that was taken.
  __device__ void BeginStates() {
    states_ = c_.slots.bases + this->segment_.base_in * c_.slots.base_stride;
    states_unit_ = this->unit_;
    states_fresh_ = this->fresh_;
    brought_ = 0;
  }

  // The next group of the unit, and the numbers of the next unit if it is time: when half of the
  // states are under way, which unit it is has long been known. False: the unit's states and the
  // next one's numbers are.
  __device__ bool BringNext() {
    const bool last = brought_ == l_.unit_groups;
    if (next_ == Next::kUnknown && brought_ > 0 && 2 * brought_ >= l_.unit_groups) {
      next_ = TakeUnit(units_.Next()) ? Next::kTaken : Next::kNone;
    }
    if (next_ == Next::kTaken && (last || BufferIsFree())) {
      BringNumbers();
      next_ = Next::kBrought;
    }
    if (!last) BringGroup();
    return !last;
  }

  __device__ bool BufferIsFree() const {
    if (unit_buffer_.first_round) return true;
    bool free = false;
    if (lane_ == 0) {
      free = TestBarrier(&barriers_.unit_empty[unit_buffer_.at], unit_buffer_.parity ^ 1);
    }
    return __shfl_sync(0xffffffffu, free, 0);
  }

  __device__ void BringGroup() {
    const ProgramGroup& group = l_.group[brought_++];
    if (lane_ < Form::kCopies) {
      const uint32_t first = lane_ * Form::kCopyTiles, copy = stages_.at * Form::kCopies + lane_;
      const uint32_t tiles = group.tiles < first ? 0 : min(group.tiles - first, Form::kCopyTiles);
      const uint32_t bytes = states_fresh_ ? 0 : tiles * Form::kTileBytes;
      const std::byte* from = states_ + group.state + size_t{states_unit_} * group.unit_bytes;
      uint64_t* const full = &barriers_.full[copy];
      if (!stages_.first_round) WaitBarrier(&barriers_.empty[copy], stages_.parity ^ 1);
      ArriveExpecting(full, bytes);
      if (bytes != 0) {
        BulkCopy(Base::Stage(stages_.at * Form::kConsumers + first),
                 from + first * Form::kTileBytes, bytes, full);
      }
    }
    __syncwarp();
    stages_.Advance(l_.groups);
  }

  // Those of the first unit need not wait for the kernel before: no kernel of the step writes rows
  // of earlier tokens, and all kernels of the step before have ended (README.md#overlap).
  __device__ void BringRows() {
    AwaitBuffer();
#pragma unroll 1
    for (uint32_t r = 0; r < c_.row_count; ++r) BringRows(r);
    rows_brought_ = true;
  }
  __device__ void BringNumbers() {
    if (!rows_brought_) BringRows();
    rows_brought_ = false;
    BringPieces();
    ArriveAfterCopies(&barriers_.unit_full[unit_buffer_.at]);
    if (lane_ == 0) {
      Base::Header() = {this->segment_, this->unit_, this->group_, 0};
      Arrive(&barriers_.unit_full[unit_buffer_.at]);
    }
    unit_buffer_.Advance(kUnitBuffers);
  }

  // 16 bytes of an input that a lane copies for each unit.
  struct Piece {
    const std::byte* from = nullptr;  // null: none
    uint32_t stride = 0, unit_bytes = 0;
    uint32_t to = 0;
    bool per_head = false;
  };
  // The inputs' pieces in order are shared out.
  __device__ void ChoosePieces() {
    uint32_t input = 0, at = lane_;
#pragma unroll
    for (Piece& piece : pieces_) {
      if (FindPiece(input, at)) piece = PieceAt(input, at);
      at += 32;
    }
  }
  // From piece `at` of an input on to the input that has it; false: there are not so many.
  __device__ bool FindPiece(uint32_t& input, uint32_t& at) const {
    while (input < l_.inputs && at >= l_.input[input].fours) at -= l_.input[input++].fours;
    return input < l_.inputs;
  }
  __device__ Piece PieceAt(uint32_t input, uint32_t at) const {
    const ProgramInput& of = l_.input[input];
    return {of.data + at * 16, of.stride, of.unit_bytes, of.to + at * 16, of.per_head != 0};
  }

  __device__ void BringPieces() const {
#pragma unroll
    for (const Piece& piece : pieces_) {
      if (piece.from != nullptr) BringPiece(piece);
    }
    if (l_.more_pieces != 0) BringMorePieces();
  }
  // Those that lanes have no room to remember.
  __device__ void BringMorePieces() const {
    uint32_t input = 0;
    for (uint32_t at = 32 * Form::kPieces + lane_; FindPiece(input, at); at += 32) {
      BringPiece(PieceAt(input, at));
    }
  }
  __device__ void BringPiece(const Piece& piece) const {
    const uint32_t index = piece.per_head ? this->unit_ : this->group_;
    CopyAsync(Base::template At<std::byte>(piece.to),
              piece.from + size_t{this->segment_.first_token} * piece.stride +
                  size_t{index} * piece.unit_bytes);
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

  // Tells the others that there is no more work.
  __device__ void End() {
    AwaitBuffer();
    ArriveAfterCopies(&barriers_.unit_full[unit_buffer_.at]);
    if (lane_ != 0) return;
    Base::Header().last = 1;
    Arrive(&barriers_.unit_full[unit_buffer_.at]);
    units_.End();
  }

  WorkCounter units_;
  Piece pieces_[Form::kPieces];
  Ring stages_, unit_buffer_;
  Next next_ = Next::kUnknown;
  bool rows_brought_ = false;  // those of the unit that was taken
  // The unit whose states are brought, and how many of its groups were.
  const std::byte* states_ = nullptr;
  uint32_t states_unit_ = 0, brought_ = 0;
  bool states_fresh_ = false;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PRODUCER_CUH_
