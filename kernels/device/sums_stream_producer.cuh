// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warp of sums_stream.cu that brings the numbers of a block's pieces.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sums_stream.cuh"

namespace rivulet::cuda {

// The state comes by a bulk copy, the rest by copies of 16 bytes of all lanes. What a lane copies
// of every piece is worked out once, and the divisions of each run and key are multiplications: the
// warp has about two microseconds for a piece, and no other warp hides the latency of its
// instructions.
//
// Runs are taken as blocks get to them (shared_work.cuh), since those of a row that folds take
// longer than others. The last runs are short, so that the blocks end at about the same time.
template <typename Form>
class Producer : public StreamWork<Form> {
  using Base = StreamWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;
  static constexpr uint32_t kKey = Form::kKey;

 public:
  __device__ Producer(const RecurCall& call, const StreamLayout& layout, std::byte* memory,
                      uint32_t* taken)
      : Base(call, layout, memory), runs_(taken) {
    ChooseValuesOfLane();
    ChooseNumberOfLane();
  }

  __device__ void Run() {
    FetchSegments(c_.rows);  // what RunAt reads would come late each time
    Take(RunAt(blockIdx.x));
    const uint32_t early = min(l_.stages, left_);
    for (uint32_t n = 0; n < early; ++n) {
      if (lane_ == 0) CopyState(n);
      if (NewKeys()) FetchDecays();
      NextPiece();
    }
    Take(RunAt(blockIdx.x));
    AwaitLastKernel();
    for (uint32_t n = 0; left_ > 0; ++n) {
      if (begins_run_) runs_.Ask();
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
      if (left_ == 0) Take(keys_ahead_ ? ahead_ : RunAt(runs_.Next()));
    }
    End();
  }

 private:
  // A piece of a run: its place, the pieces of its group before it, those of its run from it on. 0:
  // there is no such run, and the rest is undefined.
  struct Place {
    DeviceSegment segment;
    uint32_t at, unit, split, in_group, left;
  };

  // The first piece of a run.
  __device__ Place RunAt(uint32_t run) const {
    Place place = {};
    if (run >= l_.runs) return place;
    const bool is_long = run < l_.long_runs;
    const uint32_t piece =
        is_long ? run * l_.run : l_.long_runs * l_.run + (run - l_.long_runs) * l_.short_run;
    const uint32_t segment = Over(piece, l_.of_segment);
    const uint32_t rest = piece - segment * l_.of_segment.divisor;
    place.segment = c_.rows.segments[SegmentInTurn(c_.rows, segment)];
    place.at = segment;
    place.unit = Over(rest, l_.of_unit);
    place.split = rest - place.unit * l_.splits;
    place.in_group = rest - Over(rest, l_.of_group) * l_.group;
    place.left = min(is_long ? l_.run : l_.short_run, l_.pieces - piece);
    return place;
  }
  __device__ void Take(const Place& place) {
    left_ = place.left;
    at_ = place.at;
    in_group_ = place.in_group;
    begins_run_ = true;
    Base::Take(place.segment, place.unit, place.split);
  }

  // Counts where it could divide.
  __device__ void NextPiece() {
    begins_run_ = false;
    --left_;
    if (++in_group_ == l_.group) in_group_ = 0;
    uint32_t unit = this->unit_, split = this->split_ + 1;
    if (split == l_.splits) split = 0, ++unit;
    if (unit == c_.units) {
      unit = 0;
      if (++at_ < c_.rows.segment_count) {
        this->segment_ = c_.rows.segments[SegmentInTurn(c_.rows, at_)];
      }
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
    const Place here = {this->segment_, at_, this->unit_, this->split_, in_group_, left_};
    const bool begins_run = begins_run_;
    ahead_ = RunAt(runs_.Next());
    if (ahead_.left > 0) {
      Take(ahead_);
      FetchDecays();
      CopyKeys();
      keys_ahead_ = true;
      Take(here);
      begins_run_ = begins_run;
    }
  }

  __device__ void AwaitStage() const {
    if (!stage_.first_round) WaitBarrier(&barriers_.empty[stage_.at], stage_.parity ^ 1);
  }
  __device__ void AwaitKeyBuffer() const {
    if (!key_.first_round) WaitBarrier(&barriers_.key_empty[key_.at], key_.parity ^ 1);
  }

  // Tells the others that there is no more work.
  __device__ void End() {
    AwaitStage();
    AwaitKeyBuffer();
    if (lane_ == 0) Base::Header(stage_.at).last = Base::KeyHeader(key_.at).last = 1;
    ArriveWithCopies(&barriers_.full[stage_.at]);
    ArriveWithCopies(&barriers_.key_copied[key_.at]);
    if (lane_ == 0) runs_.End(l_.runs);
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
    const uint32_t bytes = this->width_ * kKey * Form::kNumber;
    ExpectBytes(&barriers_.full[stage], bytes);
    BulkCopy(Base::Stage(stage), this->Matrix(this->segment_.base_in), bytes,
             &barriers_.full[stage]);
  }

  // To L2: the decays by channel of the tail's rows, which KeyWarp reads a few rows at a time.
  __device__ void FetchDecays() const {
    if (!Form::kChannel || lane_ != 0 || Empty() || this->place_ == 0) return;
    FetchToL2(this->ChannelDecays(0), this->place_ * kKey * 4);
  }

  // Rows of the tail before the token's, of which a lane copies every (32 >> shift)-th: 16 bytes at
  // its number modulo 1 << shift, if there are so many.
  __device__ void CopyRows(std::byte* to, uint32_t to_stride, const bf16* from,
                           uint32_t from_stride, uint32_t shift, uint32_t eights) const {
    const uint32_t eight = lane_ & ((1u << shift) - 1), step = 32u >> shift;
    uint32_t row = lane_ >> shift;
    if (eight >= eights) return;
    to += row * to_stride + eight * 16;
    from += row * from_stride + eight * 8;
    for (; row < this->place_; row += step, to += step * to_stride, from += step * from_stride) {
      CopyAsync(to, from);
    }
  }
  __device__ void CopyFloats(std::byte* to, const float* from, uint32_t count) const {
    for (uint32_t i = lane_ * 4; i < count; i += 128) CopyAsync(to + i * 4, from + i);
  }
  __device__ void CopyKeys() {
    AwaitKeyBuffer();
    if (lane_ == 0) Base::KeyHeader(key_.at) = NewHeader();
    if (!Empty()) CopyKeyRows(Base::Keys(key_.at));
    ArriveWithCopies(&barriers_.key_copied[key_.at]);
    key_.Advance(kKeyBuffers);
  }
  __device__ void CopyKeyRows(std::byte* keys) const {
    constexpr uint32_t kShift = kKey == 64 ? 3 : kKey == 128 ? 4 : 5;
    static_assert(kKey == 8u << kShift);
    const size_t token = Base::Token();
    const uint32_t key = Base::KeyOf();
    const uint32_t query = c_.query_per_head ? this->unit_ * c_.unit_heads : key;
    CopyRows(keys, Form::kStride * 2, this->KeyRow(0), kKey, kShift, kKey / 8);
    CopyFloats(keys + l_.token_k, c_.k + token * c_.k_stride + size_t{key} * kKey, kKey);
    CopyFloats(keys + l_.token_q, c_.q + token * c_.q_stride + size_t{query} * kKey,
               l_.queries * kKey);
  }

  // Everything else that the consumers read.
  __device__ void CopyNumbers() {
    if (!Empty()) {
      std::byte* const stage = Base::Stage(stage_.at);
      CopyRows(stage + l_.v, (l_.values + kPad) * 2, this->ValueRow(0), c_.padded_value,
               l_.value_shift, this->width_ / 8);
      const size_t token = Base::Token();
      if (values_.from != nullptr && lane_ % 16 * 4 < this->width_) {
        const uint32_t unit =
            lane_ < 16 ? Base::ValueOf() * c_.v_head_stride : this->unit_ * c_.value_dim;
        CopyAsync(stage + values_.to,
                  values_.from + token * values_.stride + (unit + this->first_) * 4);
      }
      if (gates_.from != nullptr && lane_ % 16 * 4 < this->width_) {
        const uint32_t column = this->unit_ * c_.value_dim + this->first_;
        CopyAsync(stage + gates_.to, gates_.from + token * gates_.stride + column * 4);
      }
      if (number_.from != nullptr) {
        const bool of_tail = lane_ < kChunk / 4;
        const size_t row = of_tail ? this->segment_.tail : token;
        const uint32_t unit = of_tail ? this->unit_ * kChunk : this->unit_ / 4 * 4;
        CopyAsync(stage + number_.to, number_.from + row * number_.stride + unit * 4);
      }
    }
    ArriveWithCopies(&barriers_.full[stage_.at]);
    stage_.Advance(l_.stages);
  }

  // What a lane copies of each piece: 16 bytes at `from`, with so many bytes between rows.
  struct OfLane {
    const std::byte* from = nullptr;  // null: none
    size_t stride = 0;
    uint32_t to = 0;  // in a stage
  };
  // By half of the warp each: the token's values and their skip weights, and its gates and their
  // weights.
  __device__ void ChooseValuesOfLane() {
    static_assert(kMostConsumers * Form::kTiles * 16 <= 64, "a lane has one piece of each");
    const uint32_t i = lane_ % 16 * 4;
    if (lane_ < 16) {
      values_ = {reinterpret_cast<const std::byte*>(c_.v + i), c_.v_stride * sizeof(float),
                 l_.token_v + i * 4};
    } else if (c_.skip != nullptr) {
      values_ = {reinterpret_cast<const std::byte*>(c_.skip + i), 0, l_.skip + i * 4};
    }
    const GatedOutputs& gated = c_.gated;
    if (gated.gate == nullptr) return;
    if (lane_ < 16) {
      gates_ = {reinterpret_cast<const std::byte*>(gated.gate + i),
                gated.gate_stride * sizeof(float), l_.gate + i * 4};
    } else {
      gates_ = {reinterpret_cast<const std::byte*>(gated.weight + i), 0, l_.weight + i * 4};
    }
  }
  // The unit's decays by four lanes, and its numbers, each with its neighbours, by one.
  __device__ void ChooseNumberOfLane() {
    const bool cumulates = HasDecays() && c_.constant == nullptr;
    const auto of_token = [](const float* numbers, uint32_t stride, uint32_t to) {
      return OfLane{reinterpret_cast<const std::byte*>(numbers), stride * sizeof(float), to};
    };
    if (lane_ < kChunk / 4 && HasDecays()) {
      number_ = of_token(c_.constant + lane_ * 4, 0, l_.decay + lane_ * 16);
      if (cumulates) {
        number_.from = c_.slots.tails + c_.decay_offset + lane_ * 16;
        number_.stride = c_.slots.tail_stride;
      }
    } else if (lane_ == 4 && cumulates) {
      number_ = of_token(c_.g, c_.g_stride, l_.step);
    } else if (lane_ == 5 && c_.rate != nullptr) {
      number_ = of_token(c_.rate, 0, l_.rate);
    } else if (lane_ == 6 && c_.delta) {
      number_ = of_token(c_.beta, c_.beta_stride, l_.beta);
    }
  }

  WorkCounter runs_;
  OfLane values_, gates_, number_;
  Ring stage_, key_;
  // Of the piece: its segment, the pieces of its group before it, those of its run from it on.
  uint32_t at_ = 0, in_group_ = 0, left_ = 0;
  bool begins_run_ = false;
  bool keys_ahead_ = false;  // those of `ahead_`, the next run, have been copied
  Place ahead_;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_
