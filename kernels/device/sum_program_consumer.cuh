// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warps of sum_program_stream.cu that read and fold states.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_CONSUMER_CUH_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_CONSUMER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sum_program_stream.cuh"

namespace rivulet::cuda {

// All warps go through the visits of a unit together. Each takes some tiles of 16 value columns,
// and computes the scores of a visit for itself, which takes less time than waiting for them. The
// order of every sum is that of sum_program.cu.
//
// A column is a read of the visit: lane 4g + t has its query where g is the column, and writes its
// results where t is.
template <typename Form>
class ProgramConsumer : public ProgramWork<Form> {
  using Base = ProgramWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;
  static constexpr uint32_t kKeyTiles = Form::kKeyTiles;
  static constexpr uint32_t kConsumers = Form::kConsumers;
  static constexpr uint32_t kTiles = Form::kSideBySide;
  static constexpr uint32_t kPart = Form::kKey + kPad;  // from high parts of a query to low ones

 public:
  __device__ ProgramConsumer(const SumProgramCall& call, const ProgramLayout& layout,
                             std::byte* memory)
      : Base(call, layout, memory), warp_(threadIdx.x / 32), g_(lane_ / 4), t_(lane_ % 4) {}

  __device__ void Run() {
    CopyTables();
    ClearZeros();
    Sync();
    TakeJob();
    AwaitLastKernel();  // it may still read what this warp writes
    for (Ring unit;; unit.Advance(kUnitBuffers)) {
      WaitBarrier(&barriers_.unit_full[unit.at], unit.parity);
      Base::TakeBuffer(unit.at);
      const UnitHeader header = Base::Header();
      if (header.last != 0) return;
      Base::Take(header.segment, header.unit, header.group);
      TakeSeenRows();
      Prepare();
      for (uint32_t v = 0; v < l_.visits; ++v) {
        Sync();  // for what the last visit wrote
        Visit(Base::Visits()[v]);
      }
      __syncwarp();
      if (lane_ == 0) Arrive(&barriers_.unit_empty[unit.at]);
    }
  }

 private:
  // Of the consumers.
  __device__ void Sync() const {
    asm volatile("bar.sync 1, %0;\n" ::"n"(kConsumers * 32) : "memory");
  }

  // To shared memory: lanes read different parts of them, which constant memory serves one after
  // the other.
  __device__ void CopyTables() const {
    Copy(Base::Visits(), l_.visit, l_.visits);
    Copy(Base::Jobs(), l_.job, l_.jobs);
  }
  __device__ void ClearZeros() const {
    if (threadIdx.x < 4) reinterpret_cast<uint32_t*>(this->memory_ + l_.zeros)[threadIdx.x] = 0;
  }
  template <typename T>
  __device__ void Copy(T* to, const T* from, uint32_t count) const {
    static_assert(sizeof(T) % 16 == 0);
    for (uint32_t i = threadIdx.x; i < count * (sizeof(T) / 16); i += kConsumers * 32) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
  }

  // --- what all visits need ----------------------------------------------------------------------

  // The four numbers that this thread begins with: all jobs' in order are shared out.
  __device__ void TakeJob() {
    four_ = threadIdx.x;
    SkipJobs(job_, four_);
  }
  __device__ void SkipJobs(uint32_t& job, uint32_t& four) const {
    while (job < l_.jobs && four >= Base::Jobs()[job].fours) {
      four -= Base::Jobs()[job].fours;
      ++job;
    }
  }

  // Puts the token's rows behind the tail's, and makes parts of the queries that are inputs.
  __device__ void Prepare() const {
    uint32_t job = job_, four = four_;
    while (job < l_.jobs) {
      const ProgramJob& of = Base::Jobs()[job];
      const float4 x = Base::template At<const float4>(of.from)[four];
      of.row_bytes != 0 ? KeepFour(of, four, x) : SplitFour(of, four, x);
      four += kConsumers * 32;
      SkipJobs(job, four);
    }
  }
  __device__ void KeepFour(const ProgramJob& of, uint32_t four, const float4& x) const {
    const uint2 rounded = {PackRounded(x.x, x.y), PackRounded(x.z, x.w)};
    Base::template At<uint2>(of.to + this->place_ * of.row_bytes)[four] = rounded;
    reinterpret_cast<uint2*>(this->TailRow(of.tail, of.tail_bytes, this->place_))[four] = rounded;
  }
  __device__ void SplitFour(const ProgramJob& of, uint32_t four, const float4& x) const {
    uint2 high, low;
    Split(x.x, x.y, high.x, low.x);
    Split(x.z, x.w, high.y, low.y);
    Base::template At<uint2>(of.to)[four] = high;
    Base::template At<uint2>(of.to + kPart * 2)[four] = low;
  }

  // Cumulative to the place; the border is place -1.
  __device__ float LogDecay(int place) const {
    return place < 0 ? 0.0f : Base::template At<float>(l_.decays)[place];
  }
  // From place s, or the border, to place a.
  __device__ float DecayBetween(float power, int s, int a) const {
    if (c_.decays == nullptr) return 1.0f;
    return expf(power * (LogDecay(a) - LogDecay(s)));
  }

  // --- a visit -----------------------------------------------------------------------------------

  __device__ void Visit(const VisitTable& visit) {
    reads_ = visit.reads;
    TakeQueries(visit);
    TakeTarget(visit);
    TakeDecays(visit);
    keys_ = Base::template At<std::byte>(visit.key);
    key_bytes_ = visit.key_bytes;
    values_ = Base::template At<std::byte>(visit.value) +
              (lane_ % 8 + (lane_ >= 16 ? 8 : 0)) * visit.value_bytes + lane_ / 8 % 2 * 16;
    const uint32_t groups = (visit.tiles + kConsumers - 1) / kConsumers;
    ReadGroups<true>(visit, 0, groups);
    for (uint32_t first = kTiles; first < groups; first += kTiles) {
      ReadGroups<false>(visit, first, groups);
    }
  }

  // Of 16 keys each, as right operands: high parts, low parts. Lane l gives the address of eight
  // numbers of column l % 8, or of 16 zero bytes if no read has the column.
  __device__ void TakeQueries(const VisitTable& visit) {
    const uint32_t column = lane_ % 8, part = lane_ / 16, half = lane_ / 8 % 2;
    const bool present = column < visit.reads;
    uint32_t at = SharedAddress(this->memory_ + l_.zeros);
    if (present) {
      at = SharedAddress(Base::template At<std::byte>(visit.targets[column].query)) +
           part * kPart * 2 + half * 16;
    }
#pragma unroll
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      uint32_t four[4];
      LoadMatrices(four, present ? at + kt * 32 : at);
      queries_[kt] = {four[0], four[1], four[2], four[3]};
    }
  }

  // Where the lane writes: read t of the visit, from value column g on.
  __device__ void TakeTarget(const VisitTable& visit) {
    writes_ = t_ < visit.reads;
    if (!writes_) return;
    const ProgramTarget& of = visit.targets[t_];
    target_ = {of.writes,
               of.ridge,
               of.add,
               Base::template At<float>(of.ridge_of) + g_,
               Base::template At<std::byte>(of.to),
               nullptr};
    if (of.writes == WritesTo::kRow) {
      target_.to += this->place_ * of.row_bytes;
      target_.device = this->TailRow(of.tail, of.tail_bytes, this->place_) + g_ * sizeof(bf16);
    } else if (of.writes == WritesTo::kOutput) {
      target_.device = reinterpret_cast<std::byte*>(this->Vector(c_.vectors[c_.out]) + g_);
    }
  }

  // The last place whose row the read sees.
  __device__ int LastPlace(const ProgramTarget& read) const {
    return static_cast<int>(this->place_ - read.strict);
  }

  // In lane s from row s to the last row that a read sees, in lane C from the border.
  __device__ void TakeDecays(const VisitTable& visit) {
    const int from = lane_ < kChunk ? static_cast<int>(lane_) : -1;
#pragma unroll
    for (uint32_t r = 0; r < kMostVisitReads; ++r) {
      decay_[r] = 1.0f;
      last_[r] = r < visit.reads ? LastPlace(visit.targets[r]) : -1;
      if (c_.decays == nullptr || r >= visit.reads || from > last_[r]) continue;
      decay_[r] = DecayBetween(visit.decay_power, from, last_[r]);
    }
  }

  // A tile of each of kTiles groups from `first` on, if there are so many: with kScores also the
  // scores of the chunk's rows, whose products run beside those of the tiles.
  template <bool kScores>
  __device__ void ReadGroups(const VisitTable& visit, uint32_t first, uint32_t groups) {
    const uint32_t count = min(kTiles, groups - first);
    const std::byte* stages[kTiles];
    Ring ring = stages_;
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
      if (i > 0 && i < count) ring.Advance(l_.groups);
      stages[i] = Base::Stage(StageOf(ring));
      WaitBarrier(&barriers_.full[CopyOf(ring)], ring.parity);
    }
    float x[kTiles][4] = {};
    ReadStates<kScores>(stages, x);
    uint32_t values[kTiles][4];
    ReadRows(visit, first, values, x);
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
      const uint32_t tile = (first + i) * kConsumers + warp_;
      if (i >= count || tile >= visit.tiles) continue;
      WriteTile(tile, x[i]);
      if (this->place_ + 1 == kChunk) Fold(visit, tile, stages[i], values[i]);
    }
    Release(count);
  }

  __device__ uint32_t StageOf(const Ring& ring) const { return ring.at * kConsumers + warp_; }
  __device__ uint32_t CopyOf(const Ring& ring) const {
    return ring.at * Form::kCopies + warp_ / Form::kCopyTiles;
  }

  __device__ void Release(uint32_t count) {
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
      if (i >= count) continue;
      if (lane_ == 0) Arrive(&barriers_.empty[CopyOf(stages_)]);
      stages_.Advance(l_.groups);
    }
  }

  template <bool kScores>
  __device__ void ReadStates(const std::byte* const (&stages)[kTiles], float (&x)[kTiles][4]) {
    float score[4] = {};
    const uint32_t key = SharedAddress(keys_) + lane_ % 16 * key_bytes_ + lane_ / 16 * 16;
#pragma unroll
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      if (kScores) {
        uint32_t keys[4];
        LoadMatrices(keys, key + kt * 32);
        MultiplyAdd(score, keys, queries_[kt].x, queries_[kt].y);
        MultiplyAdd(score, keys, queries_[kt].z, queries_[kt].w);
      }
#pragma unroll
      for (uint32_t i = 0; i < kTiles; ++i) {
        HeldTile<Form::kBf16State> state;
        state.Load(stages[i], kt);
        state.MultiplyParts(x[i], queries_[kt]);
      }
    }
    if (kScores) {
      Weigh(score);
      scores_ = TransposedParts(score);
    }
    DecayReads(x);
  }

  // Sums of a unit that has just begun have no state: what is in the stages is not used.
  __device__ void DecayReads(float (&x)[kTiles][4]) const {
    const float decays[2] = {__shfl_sync(0xffffffffu, decay_[0], kChunk),
                             __shfl_sync(0xffffffffu, decay_[1], kChunk)};
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) x[i][j] = this->fresh_ ? 0.0f : x[i][j] * decays[j % 2];
    }
  }

  // Columns 2t and 2t + 1 of rows g and g + 8; zero for rows that a read does not see. Columns
  // without a read may have any numbers, since nothing reads what comes of them.
  __device__ void Weigh(float (&score)[4]) const {
#pragma unroll
    for (uint32_t r = 0; r < kMostVisitReads; ++r) {
      if (r >= reads_) break;
      const float near = __shfl_sync(0xffffffffu, decay_[r], g_);
      const float far = __shfl_sync(0xffffffffu, decay_[r], g_ + 8);
      score[r] = t_ == 0 && static_cast<int>(g_) <= last_[r] ? score[r] * near : 0.0f;
      score[r + 2] = t_ == 0 && static_cast<int>(g_ + 8) <= last_[r] ? score[r + 2] * far : 0.0f;
    }
  }

  // Adds the rows' values times their scores; a tile that there is not is read as the last one.
  __device__ void ReadRows(const VisitTable& visit, uint32_t first, uint32_t (&values)[kTiles][4],
                           float (&x)[kTiles][4]) const {
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
      LoadValues(min((first + i) * kConsumers + warp_, visit.tiles - 1), values[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) MultiplyAdd(x[i], values[i], scores_.x, scores_.y);
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) MultiplyAdd(x[i], values[i], scores_.z, scores_.w);
  }

  // As a left operand, zeros in the rows after the token's: their scores are zero, but zero times
  // anything is not zero.
  __device__ void LoadValues(uint32_t tile, uint32_t (&values)[4]) const {
    LoadTransposed(values, reinterpret_cast<const bf16*>(values_) + tile * 16);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) values[i] &= seen_[i / 2];
  }
  // Of rows 2t and 2t + 1, and of those eight rows later.
  __device__ void TakeSeenRows() {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t s = 2 * t_ + half * 8;
      seen_[half] = s < this->place_ ? ~0u : s == this->place_ ? 0xffffu : 0;
    }
  }

  // Lane 4g has both columns: the second goes to lane 4g + 1.
  __device__ void WriteTile(uint32_t tile, const float (&x)[4]) const {
    const float second = __shfl_sync(0xffffffffu, x[1], lane_ / 4 * 4);
    const float second_far = __shfl_sync(0xffffffffu, x[3], lane_ / 4 * 4);
    if (!writes_) return;
    float near = t_ == 0 ? x[0] : second, far = t_ == 0 ? x[2] : second_far;
    const uint32_t e = tile * 16;
    if (target_.ridge != 0.0f) {
      near = fmaf(target_.ridge, target_.query[e], near);
      far = fmaf(target_.ridge, target_.query[e + 8], far);
    }
    if (target_.writes == WritesTo::kRow || target_.writes == WritesTo::kQuery) {
      WriteRow(e, near);
      WriteRow(e + 8, far);
    } else {
      WriteOutput(e, near);
      WriteOutput(e + 8, far);
    }
  }

  // To a row, or to a query in parts.
  __device__ void WriteRow(uint32_t e, float x) const {
    auto* const to = reinterpret_cast<bf16*>(target_.to) + g_ + e;
    const bf16 high = __float2bfloat16_rn(x);
    *to = high;
    if (target_.writes == WritesTo::kRow) {
      reinterpret_cast<bf16*>(target_.device)[e] = high;
    } else {
      to[kPart] = __float2bfloat16_rn(Rest(x, high));
    }
  }

  // Another visit may have written what it adds to.
  __device__ void WriteOutput(uint32_t e, float x) const {
    auto* const to = reinterpret_cast<float*>(target_.to) + g_ + e;
    if (target_.add != 0.0f) x = fmaf(target_.add, x, *to);
    if (target_.writes == WritesTo::kOutput) {
      reinterpret_cast<float*>(target_.device)[e] = x;
    } else {
      *to = x;
    }
  }

  // --- fold --------------------------------------------------------------------------------------

  __device__ void Fold(const VisitTable& visit, uint32_t tile, const std::byte* stage,
                       const uint32_t (&values)[4]) const {
    const int border = static_cast<int>(kChunk) - 1;
    const float weight = DecayBetween(visit.decay_power, -1, border);
    float weights[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const auto row = static_cast<int>(2 * t_ + i % 2 + i / 2 * 8);
      weights[i] = DecayBetween(visit.decay_power, row, border);
    }
    std::byte* const to =
        this->State(visit, this->segment_.base_out) + size_t{tile} * Form::kTileBytes;
#pragma unroll 2
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      StateTile state = {};
      if (!this->fresh_) state = LoadTile<Form::kBf16State>(stage, kt);
      FoldTile(kt, weight, weights, values, state);
      StoreTile<Form::kBf16State>(to, kt, state);
    }
  }

  __device__ void FoldTile(uint32_t kt, float w, const float (&weights)[4],
                           const uint32_t (&values)[4], StateTile& s) const {
    uint32_t high[4], low[4];
    const std::byte* const row = keys_ + lane_ % 16 * key_bytes_ + lane_ / 16 * 16;
    LoadTransposed(high, reinterpret_cast<const bf16*>(row) + kt * 16);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const float* const near = &weights[i % 2 * 2];
      Split(FirstOf(high[i]) * near[0], SecondOf(high[i]) * near[1], high[i], low[i]);
    }
    FoldedTile folded(s, {w, w, w, w});
    folded.Add(values, high);
    folded.Add(values, low);
    s = folded.Tile();
  }

  // Where a lane writes one read.
  struct Target {
    WritesTo writes;
    float ridge, add;
    const float* query;  // what the ridge multiplies
    std::byte* to;       // in the unit's buffer
    std::byte* device;   // the tail's row, or the output
  };

  const uint32_t warp_, g_, t_;
  uint32_t job_ = 0, four_ = 0;
  Ring stages_;
  uint32_t seen_[2];  // of the unit: the bits of pairs of rows that there are
  // Of the visit.
  uint32_t reads_;
  Target target_;
  bool writes_;
  const std::byte* keys_ = nullptr;    // row of place 0
  const std::byte* values_ = nullptr;  // where the lane loads value columns of a tile
  uint32_t key_bytes_;
  uint4 queries_[kKeyTiles];
  uint4 scores_;  // with their decays, as a right operand: high parts, low parts
  float decay_[kMostVisitReads];
  int last_[kMostVisitReads];  // the last place whose row a read sees
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_CONSUMER_CUH_
