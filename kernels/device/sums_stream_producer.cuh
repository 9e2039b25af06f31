// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warp of sums_stream.cu that brings the numbers of a block's pieces.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sums_stream.cuh"

namespace rivulet::cuda {

// Everything comes by bulk copies: the state by one, the rest by a lane for each row, since a warp
// that goes through the rows would take longer than the state.
//
// A block begins with the run of its number and then takes the next run that no block has taken,
// since a run of a row that folds takes longer than others. The last runs are short, so that the
// blocks end at about the same time. `next_run` is zero before the launch, and again after it.
template <typename Form>
class Producer : public StreamWork<Form> {
  using Base = StreamWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;

 public:
  __device__ Producer(const RecurCall& call, const StreamLayout& layout, std::byte* memory,
                      uint32_t* next_run)
      : Base(call, layout, memory), next_run_(next_run) {}

  __device__ void Run() {
    BeginRun(blockIdx.x);
    const uint32_t early = min(l_.stages, left_);
    for (uint32_t n = 0; n < early; ++n) {
      if (lane_ == 0) CopyState(n);
      if (NewKeys()) FetchDecays();
      NextPiece();
    }
    BeginRun(blockIdx.x);
    AwaitLastKernel();
    for (uint32_t n = 0; left_ > 0; ++n) {
      if (begins_run_ && lane_ == 0) taken_ = atomicAdd(next_run_, 1);
      if (n >= early) {
        AwaitStage();
        if (lane_ == 0) CopyState(stage_.at);
      }
      if (NewKeys() && !keys_ahead_) {
        if (n >= early) FetchDecays();
        CopyKeys();
      }
      keys_ahead_ = keys_ahead_ && !begins_run_;
      CopyNumbers();
      if (MayCopyAhead()) CopyKeysAhead();
      NextPiece();
      if (left_ == 0) BeginRun(gridDim.x + __shfl_sync(0xffffffffu, taken_, 0));
    }
    End();
  }

 private:
  // Leaves left_ 0 where there is no such run.
  __device__ void BeginRun(uint32_t run) {
    left_ = 0;
    if (run >= l_.runs) return;
    const bool is_long = run < l_.long_runs;
    const uint32_t piece = run + min(run, l_.long_runs) * (l_.run - 1);
    const uint32_t of_segment = c_.units * l_.splits, rest = piece % of_segment;
    left_ = is_long ? l_.run : 1;
    begins_run_ = true;
    in_group_ = rest % l_.group;
    at_ = piece / of_segment;
    Base::Take(c_.rows.segments[at_], rest / l_.splits, rest % l_.splits);
  }

  // Counts where it could divide, which takes a warp a tenth of the time that a piece has.
  __device__ void NextPiece() {
    begins_run_ = false;
    --left_;
    if (++in_group_ == l_.group) in_group_ = 0;
    uint32_t unit = this->unit_, split = this->split_ + 1;
    if (split == l_.splits) split = 0, ++unit;
    if (unit == c_.units) {
      unit = 0;
      if (++at_ < c_.rows.segment_count) this->segment_ = c_.rows.segments[at_];
    }
    Base::Take(this->segment_, unit, split);
  }

  __device__ bool NewKeys() const { return begins_run_ || in_group_ == 0; }

  // Whether the next keys that are needed are those of the next run, and there is room for them:
  // the consumers have begun with this run. Not at the first piece of a longer run, since which run
  // comes next was asked for only then and would be waited for.
  __device__ bool MayCopyAhead() const {
    if (keys_ahead_ || (begins_run_ && left_ > 1) || in_group_ + left_ > l_.group) return false;
    bool free = key_.first_round;
    if (!free && lane_ == 0) free = TestBarrier(&barriers_.key_empty[key_.at], key_.parity ^ 1);
    return __shfl_sync(0xffffffffu, free, 0);
  }

  // So that they are prepared when the consumers come to them.
  __device__ void CopyKeysAhead() {
    const DeviceSegment segment = this->segment_;
    const uint32_t unit = this->unit_, split = this->split_;
    const uint32_t at = at_, in_group = in_group_, left = left_;
    const bool begins_run = begins_run_;
    BeginRun(gridDim.x + __shfl_sync(0xffffffffu, taken_, 0));
    if (left_ > 0) {
      FetchDecays();
      CopyKeys();
      keys_ahead_ = true;
    }
    Base::Take(segment, unit, split);
    at_ = at, in_group_ = in_group, left_ = left, begins_run_ = begins_run;
  }

  __device__ void AwaitStage() const {
    if (!stage_.first_round) WaitBarrier(&barriers_.empty[stage_.at], stage_.parity ^ 1);
  }
  __device__ void AwaitKeyBuffer() const {
    if (!key_.first_round) WaitBarrier(&barriers_.key_empty[key_.at], key_.parity ^ 1);
  }

  // Tells the others that there is no more work. The last block to find this out prepares the
  // counter for the next launch.
  __device__ void End() {
    AwaitStage();
    AwaitKeyBuffer();
    if (lane_ != 0) return;
    Base::Header(stage_.at).last = 1;
    Base::KeyHeader(key_.at).last = 1;
    Arrive(&barriers_.full[stage_.at]);
    Arrive(&barriers_.key_copied[key_.at]);
    if (taken_ + 1 == l_.runs) *next_run_ = 0;
  }

  __device__ StageHeader NewHeader() const {
    return {this->segment_, this->unit_, this->split_, NewKeys(), 0};
  }
  __device__ bool Empty() const { return this->segment_.tokens == 0; }
  __device__ bool HasDecays() const { return !Form::kChannel && c_.decay != Decay::kNone; }

  // One lane: the header, and the state, which no kernel of this step writes.
  __device__ void CopyState(uint32_t stage) const {
    Base::Header(stage) = NewHeader();
    if (Empty() || this->fresh_) return;
    const uint32_t bytes = this->width_ * Form::kKey * Form::kNumber;
    ExpectBytes(&barriers_.full[stage], bytes);
    BulkCopy(Base::Stage(stage), this->Matrix(this->segment_.base_in), bytes,
             &barriers_.full[stage]);
  }

  // To L2: the decays by channel of the tail's rows, which KeyWarp reads a few rows at a time.
  __device__ void FetchDecays() const {
    if (!Form::kChannel || lane_ != 0 || Empty() || this->place_ == 0) return;
    FetchToL2(this->ChannelDecays(0), this->place_ * Form::kKey * 4);
  }

  // A lane for each row of the tail and for each of the token's.
  __device__ void CopyKeys() {
    AwaitKeyBuffer();
    std::byte* const keys = Base::Keys(key_.at);
    uint64_t* const copied = &barriers_.key_copied[key_.at];
    if (lane_ == 0) {
      Base::KeyHeader(key_.at) = NewHeader();
      const uint32_t numbers = this->place_ * 2 + (1 + l_.queries) * 4;
      ArriveExpecting(copied, Empty() ? 0 : numbers * Form::kKey);
    }
    key_.Advance(kKeyBuffers);
    if (Empty()) return;
    const size_t token = Base::Token();
    const uint32_t key = this->unit_ / c_.units_per_key;
    if (lane_ < this->place_) {
      BulkCopy(keys + lane_ * Form::kStride * 2, this->KeyRow(lane_), Form::kKey * 2, copied);
    } else if (lane_ == kChunk) {
      BulkCopy(keys + l_.token_k, c_.k + token * c_.k_stride + size_t{key} * Form::kKey,
               Form::kKey * 4, copied);
    } else if (lane_ == kChunk + 1) {
      const uint32_t query = c_.query_per_head ? this->unit_ * c_.unit_heads : key;
      BulkCopy(keys + l_.token_q, c_.q + token * c_.q_stride + size_t{query} * Form::kKey,
               l_.queries * Form::kKey * 4, copied);
    }
  }

  // Everything else that the consumers read, by a lane for each part.
  __device__ void CopyNumbers() {
    std::byte* const stage = Base::Stage(stage_.at);
    uint64_t* const full = &barriers_.full[stage_.at];
    if (lane_ == 0) ArriveExpecting(full, Empty() ? 0 : NumberBytes());
    stage_.Advance(l_.stages);
    if (Empty()) return;
    if (lane_ < this->place_) {
      BulkCopy(stage + l_.v + lane_ * (l_.values + kPad) * 2, this->ValueRow(lane_),
               this->width_ * 2, full);
    } else if (lane_ == kChunk) {
      const size_t value = size_t{Base::ValueOf()} * c_.v_head_stride + this->first_;
      BulkCopy(stage + l_.token_v, c_.v + Base::Token() * c_.v_stride + value, this->width_ * 4,
               full);
    } else if (lane_ == kChunk + 1 && c_.skip != nullptr) {
      BulkCopy(stage + l_.skip, c_.skip + size_t{this->unit_} * c_.value_dim + this->first_,
               this->width_ * 4, full);
    } else if (lane_ == kChunk + 2 && HasDecays()) {
      const float* constant = c_.constant + this->unit_ * kChunk;
      BulkCopy(stage + l_.decay, c_.constant != nullptr ? constant : this->DecayRow(), kChunk * 4,
               full);
    } else if (lane_ > kChunk + 2) {
      CopyFours(stage, full);
    }
  }

  // Numbers of the unit, each with its neighbours: of 16 bytes.
  __device__ void CopyFours(std::byte* stage, uint64_t* full) const {
    const uint32_t four = this->unit_ / 4 * 4;
    if (lane_ == kChunk + 3 && HasDecays() && c_.constant == nullptr) {
      BulkCopy(stage + l_.step, c_.g + Base::Token() * c_.g_stride + four, 16, full);
    } else if (lane_ == kChunk + 4 && c_.rate != nullptr) {
      BulkCopy(stage + l_.rate, c_.rate + four, 16, full);
    } else if (lane_ == kChunk + 5 && c_.delta) {
      BulkCopy(stage + l_.beta, c_.beta + Base::Token() * c_.beta_stride + four, 16, full);
    }
  }

  // What CopyNumbers copies.
  __device__ uint32_t NumberBytes() const {
    const uint32_t row = this->width_ * 4;
    uint32_t bytes = this->place_ * this->width_ * 2 + row;
    if (c_.skip != nullptr) bytes += row;
    if (HasDecays()) bytes += kChunk * 4 + (c_.constant == nullptr ? 16 : 0);
    if (c_.rate != nullptr) bytes += 16;
    if (c_.delta) bytes += 16;
    return bytes;
  }

  uint32_t* const next_run_;
  Ring stage_, key_;
  // Of the piece: its segment, the pieces of its group before it, those of its run from it on.
  uint32_t at_ = 0, in_group_ = 0, left_ = 0;
  bool begins_run_ = false;
  bool keys_ahead_ = false;  // those of the next run have been copied
  uint32_t taken_ = 0;       // lane 0: how many runs were taken before the block's next one
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_
