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
  static constexpr uint32_t kPart = Form::kKey + kPad;  // from high parts of a query to low ones

 public:
  __device__ ProgramConsumer(const SumProgramCall& call, const ProgramPlan& plan,
                             const ProgramLayout& layout, std::byte* memory)
      : Base(call, plan, layout, memory), warp_(threadIdx.x / 32), g_(lane_ / 4), t_(lane_ % 4) {}

  __device__ void Run() {
    AwaitLastKernel();  // it may still read what this warp writes
    for (Ring unit;; unit.Advance(kUnitBuffers)) {
      WaitBarrier(&barriers_.unit_full[unit.at], unit.parity);
      Base::TakeBuffer(unit.at);
      const UnitHeader header = Base::Header();
      if (header.last != 0) return;
      Base::Take(header.segment, header.unit, header.group);
      Prepare();
      for (uint32_t v = 0; v < this->plan_.visit_count; ++v) {
        Sync();  // for what the last visit wrote
        Visit(this->plan_.visits[v]);
      }
      __syncwarp();
      if (lane_ == 0) Arrive(&barriers_.unit_empty[unit.at]);
    }
  }

 private:
  // Of the consumers.
  __device__ void Sync() const { asm volatile("bar.sync 1, %0;\n" ::"n"(kConsumers * 32)); }

  // --- what all visits need ----------------------------------------------------------------------

  // Puts the token's rows behind the tail's, and makes parts of the queries that are inputs. A warp
  // takes every kConsumers-th of them.
  __device__ void Prepare() const {
    uint32_t job = 0;
    for (uint32_t r = 0; r < c_.row_count; ++r) {
      uint32_t column = 0;
      for (uint32_t i = 0; i < c_.rows_of[r].copies; ++i) {
        const uint32_t vector = c_.rows_of[r].copy[i];
        if (job++ % kConsumers == warp_) AppendCopy(r, vector, column);
        column += c_.vectors[vector].width;
      }
    }
#pragma unroll 1
    for (uint32_t v = 0; v < kMostProgramVectors; ++v) {
      if (l_.queries[v] == kAbsent || l_.vectors[v] == kAbsent) continue;
      if (job++ % kConsumers == warp_) SplitQuery(v);
    }
  }

  __device__ void AppendCopy(uint32_t r, uint32_t vector, uint32_t column) const {
    const float* from = Base::template At<float>(l_.vectors[vector]);
    bf16* const shared = Row(r, this->place_) + column;
    bf16* const tail = this->TailRow(c_.rows_of[r], this->place_) + column;
    for (uint32_t d = lane_ * 4; d < c_.vectors[vector].width; d += 128) {
      const float4 x = *reinterpret_cast<const float4*>(from + d);
      StoreFour(shared + d, x);
      StoreFour(tail + d, x);
    }
  }

  __device__ void SplitQuery(uint32_t vector) const {
    const float* from = Base::template At<float>(l_.vectors[vector]);
    bf16* const to = Base::template At<bf16>(l_.queries[vector]);
    for (uint32_t d = lane_ * 4; d < Form::kKey; d += 128) {
      const float4 x = *reinterpret_cast<const float4*>(from + d);
      uint2 high, low;
      Split(x.x, x.y, high.x, low.x);
      Split(x.z, x.w, high.y, low.y);
      *reinterpret_cast<uint2*>(to + d) = high;
      *reinterpret_cast<uint2*>(to + kPart + d) = low;
    }
  }

  __device__ bf16* Row(uint32_t row, uint32_t place) const {
    return Base::template At<bf16>(l_.rows[row]) + place * l_.row_stride[row];
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

  __device__ void Visit(const ProgramVisit& visit) {
    const ProgramSum& sum = c_.sums[visit.sum];
    TakeQueries(visit);
    TakeTarget(visit);
    TakeDecays(visit, sum);
    ScoreRows(visit, sum);
    values_ =
        Row(sum.value, lane_ % 8 + (lane_ >= 16 ? 8 : 0)) + sum.value_column + lane_ / 8 % 2 * 8;
    for (uint32_t tile = 0; tile < sum.padded_value / 16; ++tile) {
      if (stage_.at % kConsumers == warp_) {
        WaitBarrier(&barriers_.full[stage_.at], stage_.parity);
        VisitTile(sum, tile, Base::Stage(stage_.at));
        __syncwarp();
        if (lane_ == 0) Arrive(&barriers_.empty[stage_.at]);
      }
      stage_.Advance(l_.stages);
    }
  }

  // Of 16 keys each, as right operands: high parts, low parts.
  __device__ void TakeQueries(const ProgramVisit& visit) {
    const bool present = g_ < visit.read_count;
    const uint32_t vector = c_.reads[visit.reads[present ? g_ : 0]].query;
    const bf16* const query = Base::template At<bf16>(l_.queries[vector]) + 2 * t_;
#pragma unroll
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      const bf16* high = query + kt * 16;
      queries_[kt] = {Two(high, present), Two(high + 8, present), Two(high + kPart, present),
                      Two(high + kPart + 8, present)};
    }
  }

  // Where the lane writes: read t of the visit, from value column g on.
  __device__ void TakeTarget(const ProgramVisit& visit) {
    target_ = {};
    if (t_ >= visit.read_count) return;
    const uint32_t index = visit.reads[t_];
    const ProgramRead& read = c_.reads[index];
    target_.ridge = read.ridge, target_.add = read.add;
    if (read.ridge != 0.0f) target_.query = Base::template At<float>(l_.vectors[read.query]) + g_;
    if (read.to_row) {
      target_.high = Row(read.to, this->place_) + g_;
      target_.tail = this->TailRow(c_.rows_of[read.to], this->place_) + g_;
    } else if (read.to == c_.out) {
      target_.sum = Base::template At<float>(l_.out) + g_;
      if (index == l_.last_out) target_.out = this->Vector(c_.vectors[c_.out]) + g_;
    } else {
      target_.high = Base::template At<bf16>(l_.queries[read.to]) + g_;
    }
  }

  // The last place whose row read r of the visit sees.
  __device__ int LastPlace(const ProgramVisit& visit, uint32_t r) const {
    return static_cast<int>(this->place_) - (c_.reads[visit.reads[r]].strict ? 1 : 0);
  }

  // In lane s from row s to the last row that a read sees, in lane C from the border.
  __device__ void TakeDecays(const ProgramVisit& visit, const ProgramSum& sum) {
    const int from = lane_ < kChunk ? static_cast<int>(lane_) : -1;
    for (uint32_t r = 0; r < kMostVisitReads; ++r) {
      decay_[r] = 1.0f;
      if (c_.decays == nullptr || r >= visit.read_count) continue;
      const int last = LastPlace(visit, r);
      if (from <= last) decay_[r] = DecayBetween(sum.decay_power, from, last);
    }
  }

  // The scores of the chunk's rows with their decays, as a right operand.
  __device__ void ScoreRows(const ProgramVisit& visit, const ProgramSum& sum) {
    float score[4] = {};
    const uint32_t stride = l_.row_stride[sum.key];
    const bf16* const key = Row(sum.key, g_) + 2 * t_;
#pragma unroll
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      const bf16* k = key + kt * 16;
      const uint32_t keys[4] = {Two(k), Two(k + 8 * stride), Two(k + 8), Two(k + 8 * stride + 8)};
      MultiplyAdd(score, keys, queries_[kt].x, queries_[kt].y);
      MultiplyAdd(score, keys, queries_[kt].z, queries_[kt].w);
    }
    Weigh(visit, score);
    TakeScores(score);
  }

  // Columns 2t and 2t + 1 of rows g and g + 8; zero for rows that a read does not see.
  __device__ void Weigh(const ProgramVisit& visit, float (&score)[4]) const {
#pragma unroll
    for (uint32_t r = 0; r < kMostVisitReads; ++r) {
      const int last = r < visit.read_count ? LastPlace(visit, r) : -1;
      const float near = __shfl_sync(0xffffffffu, decay_[r], g_);
      const float far = __shfl_sync(0xffffffffu, decay_[r], g_ + 8);
      score[r] = t_ == 0 && static_cast<int>(g_) <= last ? score[r] * near : 0.0f;
      score[r + 2] = t_ == 0 && static_cast<int>(g_ + 8) <= last ? score[r + 2] * far : 0.0f;
    }
  }

  static __device__ uint32_t Bits(const __nv_bfloat162& two) {
    return *reinterpret_cast<const uint32_t*>(&two);
  }

  // As a lane's rows 2t, 2t + 1, 2t + 8 and 2t + 9 of column g, in parts.
  __device__ void TakeScores(const float (&score)[4]) {
    float x[4];
    TransposeScores(score, x);
    __nv_bfloat162 high[2], low[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      SplitTwice(x[2 * i], high[i].x, low[i].x);
      SplitTwice(x[2 * i + 1], high[i].y, low[i].y);
    }
    scores_ = {Bits(high[0]), Bits(high[1]), Bits(low[0]), Bits(low[1])};
  }

  __device__ void VisitTile(const ProgramSum& sum, uint32_t tile, const std::byte* stage) {
    float x[4] = {};
    if (!this->fresh_) ReadState(stage, x);
    if (c_.decays != nullptr) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) x[i] *= __shfl_sync(0xffffffffu, decay_[i % 2], kChunk);
    }
    uint32_t values[4];
    LoadValues(tile, values);
    MultiplyAdd(x, values, scores_.x, scores_.y);
    MultiplyAdd(x, values, scores_.z, scores_.w);
    WriteTile(tile, x);
    if (this->place_ + 1 == kChunk) Fold(sum, tile, stage, values);
  }

  __device__ void ReadState(const std::byte* stage, float (&x)[4]) const {
#pragma unroll
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      HeldTile<Form::kBf16State> state;
      state.Load(stage, kt);
      state.MultiplyParts(x, queries_[kt]);
    }
  }

  // As a left operand, zeros in the rows after the token's: their scores are zero, but zero times
  // anything is not zero.
  __device__ void LoadValues(uint32_t tile, uint32_t (&values)[4]) const {
    LoadTransposed(values, values_ + tile * 16);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t s = 2 * t_ + i / 2 * 8;
      if (s > this->place_) values[i] = 0;
      if (s == this->place_) values[i] &= 0xffffu;
    }
  }

  // Lane 4g has both columns: the second goes to lane 4g + 1.
  __device__ void WriteTile(uint32_t tile, const float (&x)[4]) const {
    const float second = __shfl_sync(0xffffffffu, x[1], lane_ / 4 * 4);
    const float second_far = __shfl_sync(0xffffffffu, x[3], lane_ / 4 * 4);
    float near = t_ == 0 ? x[0] : second, far = t_ == 0 ? x[2] : second_far;
    const uint32_t e = tile * 16;
    if (target_.query != nullptr) {
      near = fmaf(target_.ridge, target_.query[e], near);
      far = fmaf(target_.ridge, target_.query[e + 8], far);
    }
    if (target_.high != nullptr) {
      WriteRow(e, near);
      WriteRow(e + 8, far);
    } else if (target_.sum != nullptr) {
      WriteOutput(e, near);
      WriteOutput(e + 8, far);
    }
  }

  // To a row, or to a query in parts.
  __device__ void WriteRow(uint32_t e, float x) const {
    const bf16 high = __float2bfloat16_rn(x);
    target_.high[e] = high;
    if (target_.tail != nullptr) {
      target_.tail[e] = high;
    } else {
      target_.high[e + kPart] = __float2bfloat16_rn(Rest(x, high));
    }
  }

  // Another visit may have written what it adds to.
  __device__ void WriteOutput(uint32_t e, float x) const {
    if (target_.add != 0.0f) x = fmaf(target_.add, x, target_.sum[e]);
    if (target_.out != nullptr) {
      target_.out[e] = x;
    } else {
      target_.sum[e] = x;
    }
  }

  // --- fold --------------------------------------------------------------------------------------

  __device__ void Fold(const ProgramSum& sum, uint32_t tile, const std::byte* stage,
                       const uint32_t (&values)[4]) const {
    const int border = static_cast<int>(kChunk) - 1;
    const float weight = DecayBetween(sum.decay_power, -1, border);
    float weights[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      weights[i] =
          DecayBetween(sum.decay_power, static_cast<int>(2 * t_ + i % 2 + i / 2 * 8), border);
    }
    std::byte* const to =
        this->Matrix(sum, this->segment_.base_out) + size_t{tile} * Form::kTileBytes;
#pragma unroll 2
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      StateTile state = {};
      if (!this->fresh_) state = LoadTile<Form::kBf16State>(stage, kt);
      FoldTile(sum, kt, weight, weights, values, state);
      StoreTile<Form::kBf16State>(to, kt, state);
    }
  }

  __device__ void FoldTile(const ProgramSum& sum, uint32_t kt, float w, const float (&weights)[4],
                           const uint32_t (&values)[4], StateTile& s) const {
    uint32_t high[4], low[4];
    const bf16* row = Row(sum.key, lane_ % 8 + lane_ / 8 % 2 * 8);
    LoadTransposed(high, row + kt * 16 + lane_ / 16 * 8);
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

  // Where a lane writes one read; a null pointer: not there.
  struct Target {
    const float* query = nullptr;  // what the ridge multiplies
    bf16* high = nullptr;          // a row, or the high parts of a query
    bf16* tail = nullptr;          // the row in device memory
    float* sum = nullptr;          // the output so far
    float* out = nullptr;          // the output, complete
    float ridge = 0.0f, add = 0.0f;
  };

  const uint32_t warp_, g_, t_;
  Ring stage_;
  // Of the visit.
  Target target_;
  const bf16* values_ = nullptr;  // where the lane loads value columns of a tile
  uint4 queries_[kKeyTiles];
  uint4 scores_;  // high parts, low parts
  float decay_[kMostVisitReads];
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_CONSUMER_CUH_
