// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warp of sums_stream.cu that decides what its block does, and brings the states.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sums_stream.cuh"

namespace rivulet::cuda {

// It takes pieces one after the other, asks for their states as soon as the ring has room, and
// describes them to the warps that bring everything else (NumberWarp, KeyWarp). A block has about
// two microseconds for a piece, so it does nothing else.
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
      : Base(call, layout, memory), runs_(taken, layout.runs, layout.given) {}

  __device__ void Run() {
    Take(RunAt(blockIdx.x));
    BeginFirstPieces();
    AwaitLastKernel();  // until then that kernel may use the counter
    runs_.Ask();
    while (left_ > 0 || TakeNextRun()) {
      AwaitStage();
      BeginPiece();
      BeginKeysAhead();
      NextPiece();
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

  __device__ bool TakeNextRun() {
    Take(keys_ahead_ ? ahead_ : RunAt(runs_.Next()));
    if (left_ == 0) return false;
    runs_.Ask();
    return true;
  }

  // As many as the ring has room for. Segments are brought into L1 after their states have been
  // asked for.
  __device__ void BeginFirstPieces() {
    for (uint32_t pieces = min(l_.stages, left_); pieces > 0; --pieces) {
      BeginPiece();
      if (pieces == 1) {
        FetchSegments(c_.rows);  // what RunAt reads would come late each time
        BeginKeysAhead();
      }
      NextPiece();
    }
  }

  // The state is asked for first. There is room for the piece. The lanes meet, since one that fell
  // behind could miss a whole phase of a barrier that it waits for: lane 0 alone moves the rings
  // on.
  __device__ void BeginPiece() {
    __syncwarp();
    if (lane_ == 0) CopyState();
    if (NewKeys() && !keys_ahead_) BeginKeys();
    keys_ahead_ = keys_ahead_ && !begins_run_;
    if (lane_ == 0) Arrive(&barriers_.begun[stage_.at]);
    stage_.Advance(l_.stages);
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

  // Whether the next keys that are needed are those of the next run, and there is room for them: in
  // the first round, or when the consumers have begun with this run. Not at the first piece of a
  // longer run, since which run comes next may have been asked for only then and would be waited
  // for.
  __device__ bool MayBeginKeysAhead() const {
    if (!runs_.KnowsNext() || keys_ahead_) return false;
    if ((begins_run_ && left_ > 1) || in_group_ + left_ > l_.group) return false;
    bool free = key_.first_round;
    if (!free && lane_ == 0) free = TestBarrier(&barriers_.key_empty[key_.at], key_.parity ^ 1);
    return __shfl_sync(0xffffffffu, free, 0);
  }

  // So that they are prepared when the consumers come to them.
  __device__ void BeginKeysAhead() {
    if (!MayBeginKeysAhead()) return;
    const Place here = {this->segment_, at_, this->unit_, this->split_, in_group_, left_};
    const bool begins_run = begins_run_;
    ahead_ = RunAt(runs_.Next());
    if (ahead_.left > 0) {
      Take(ahead_);
      BeginKeys();
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
    if (lane_ != 0) return;
    Base::Header(stage_.at).last = Base::KeyHeader(key_.at).last = 1;
    Arrive(&barriers_.full[stage_.at]);
    Arrive(&barriers_.begun[stage_.at]);
    Arrive(&barriers_.key_begun[key_.at]);
    runs_.End();
  }

  __device__ StageHeader NewHeader() const {
    return {this->segment_, this->unit_, this->split_, NewKeys(), 0};
  }

  // One lane: the header, and the state, which no kernel of this step writes.
  __device__ void CopyState() const {
    Base::Header(stage_.at) = NewHeader();
    uint64_t* const full = &barriers_.full[stage_.at];
    if (Base::Empty() || this->fresh_) return Arrive(full);
    const uint32_t bytes = this->width_ * kKey * Form::kNumber;
    ArriveExpecting(full, bytes);
    BulkCopy(Base::Stage(stage_.at), this->Matrix(this->segment_.base_in), bytes, full);
  }

  __device__ void BeginKeys() {
    FetchDecays();
    AwaitKeyBuffer();
    if (lane_ == 0) {
      Base::KeyHeader(key_.at) = NewHeader();
      Arrive(&barriers_.key_begun[key_.at]);
    }
    key_.Advance(kKeyBuffers);
  }

  // To L2: the decays by channel of the tail's rows, which KeyWarp reads a few rows at a time.
  __device__ void FetchDecays() const {
    if (!Form::kChannel || lane_ != 0 || Base::Empty() || this->place_ == 0) return;
    FetchToL2(this->ChannelDecays(0), this->place_ * kKey * 4);
  }

  WorkCounter runs_;
  Ring stage_, key_;
  // Of the piece: its segment, the pieces of its group before it, those of its run from it on.
  uint32_t at_ = 0, in_group_ = 0, left_ = 0;
  bool begins_run_ = false;
  bool keys_ahead_ = false;  // those of `ahead_`, the next run, have been described
  Place ahead_;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_STREAM_PRODUCER_CUH_
