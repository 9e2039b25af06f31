// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warps of sums_stream.cu that read and fold states.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_STREAM_CONSUMER_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_STREAM_CONSUMER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/gated_outputs.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/sums_stream.cuh"

namespace rivulet::cuda {

// Each warp takes kTiles · 16 value columns of every piece of its block. The order of every sum is
// that of sums.cu.
template <typename Form>
class Consumer : public StreamWork<Form> {
  using Base = StreamWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;
  static constexpr uint32_t kKey = Form::kKey, kStride = Form::kStride;
  static constexpr uint32_t kTiles = Form::kTiles;
  using State = HeldTile<Form::kBf16State>;

 public:
  __device__ Consumer(const RecurCall& call, const StreamLayout& layout, std::byte* memory)
      : Base(call, layout, memory),
        first_tile_(threadIdx.x / 32 * kTiles),
        g_(lane_ / 4),
        t_(lane_ % 4),
        dv_(layout.values + kPad) {}

  __device__ void Run() {
    AwaitLastKernel();  // it may still read what this warp writes
    for (Ring stage;; stage.Advance(l_.stages)) {
      WaitBarrier(&barriers_.full[stage.at], stage.parity);
      const StageHeader header = Base::Header(stage.at);
      if (header.last != 0) return;
      if (header.new_keys != 0) TakeKeys();
      Base::Take(header);
      stage_ = Base::Stage(stage.at);
      TakeGateFactor();
      if (this->segment_.tokens != 0) RunPiece();
      Release(&barriers_.empty[stage.at]);
    }
  }

 private:
  __device__ void Release(uint64_t* barrier) const {
    __syncwarp();
    if (lane_ == 0) Arrive(barrier);
  }
  template <typename T>
  __device__ T* KeysAt(uint32_t offset) const {
    return reinterpret_cast<T*>(keys_ + offset);
  }
  template <typename T>
  __device__ T* StageAt(uint32_t offset) const {
    return reinterpret_cast<T*>(stage_ + offset);
  }
  __device__ float NumberOf(uint32_t offset) const {
    return StageAt<float>(offset)[this->unit_ % 4];
  }
  // The first value column of the warp's tile c, and whether the piece has it.
  __device__ uint32_t Column(uint32_t c) const { return (first_tile_ + c) * 16; }
  __device__ bool Has(uint32_t c) const { return Column(c) < this->width_; }
  __device__ bf16* Values() const { return StageAt<bf16>(l_.v); }
  __device__ State Tile(uint32_t c, uint32_t kt) const {
    State tile;
    tile.Load(stage_, (first_tile_ + c) * Form::kKeyTiles + kt);
    return tile;
  }

  __device__ void TakeGateFactor() {
    if (Form::kChannel || c_.gated.gate_factors == nullptr) return;
    gate_factor_ = ReadLate(c_.gated.gate_factors + Base::Token());
  }

  __device__ void TakeKeys() {
    if (keys_ != nullptr) {
      Release(&barriers_.key_empty[key_.at]);
      key_.Advance(kKeyBuffers);
    }
    WaitBarrier(&barriers_.key_full[key_.at], key_.parity);
    keys_ = Base::Keys(key_.at);
    const bool present = g_ < l_.columns;
    const bf16* q = KeysAt<bf16>(l_.q) + g_ * kStride + 2 * t_;
#pragma unroll
    for (uint32_t kt = 0; kt < Form::kKeyTiles; ++kt) {
      query_[kt][0] = Two(q + kt * 16, present);
      query_[kt][1] = Two(q + kt * 16 + 8, present);
    }
    if constexpr (Form::kChannel) {
      const bf16* score = KeysAt<bf16>(l_.scores) + g_ * (kChunk + kPad) + 2 * t_;
      channel_scores_ = {Two(score, present), Two(score + 8, present)};
    } else {
      const float4 score = KeysAt<float4>(l_.scores)[lane_];
      score_[0] = score.x, score_[1] = score.y, score_[2] = score.z, score_[3] = score.w;
    }
  }

  __device__ void RunPiece() {
    TakeRowBits();
    if constexpr (!Form::kChannel) TakeDecays();
    Read();
    if (this->place_ + 1 == kChunk) Fold();
  }

  // --- the token's row ---------------------------------------------------------------------------

  __device__ void TakeDecays() {
    decay_ = 0.0f;
    if (c_.decay == Decay::kNone) return;
    const uint32_t place = this->place_;
    const float* rows = StageAt<float>(l_.decay);
    if (c_.constant != nullptr) {
      if (lane_ < kChunk) decay_ = rows[lane_];
      return;
    }
    if (lane_ < place) decay_ = rows[lane_];
    const float step = NumberOf(l_.step);
    const float g = c_.rate == nullptr ? step : NumberOf(l_.rate) * step;
    float sum = place == 0 ? 0.0f : rows[place - 1];
    sum += g;
    if (lane_ != place) return;
    decay_ = sum;
    if (this->split_ == 0 && first_tile_ == 0) this->DecayRow()[place] = sum;
  }

  // --- read --------------------------------------------------------------------------------------

  __device__ float DecayAt(uint32_t place) const { return __shfl_sync(0xffffffffu, decay_, place); }

  // Tiles that the piece does not have are read like others: without branches, loads run ahead of
  // the products, and the tiles' chains side by side.
  __device__ void Read() {
    float sum[kTiles][4] = {};
    if (!this->fresh_) {
#pragma unroll
      for (uint32_t kt = 0; kt < Form::kKeyTiles; ++kt) {
#pragma unroll
        for (uint32_t c = 0; c < kTiles; ++c) {
          Tile(c, kt).Multiply(sum[c], query_[kt][0], query_[kt][1]);
        }
      }
    }
    float score[4] = {};
    uint2 p = channel_scores_;
    if constexpr (!Form::kChannel) {
      Weigh(sum, score);
      p = TransposedScores(score, g_ < l_.columns && !(c_.delta && g_ == 0));
    }
    uint32_t token[kTiles];
    c_.delta ? Solve(score, sum, token) : TakeTokenValues(token);
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) {
      TakeValues(c, token[c]);
      MultiplyAdd(sum[c], values_[c], p.x, p.y);
    }
    KeepValues(token);
    if (!Form::kChannel && c_.gated.gate != nullptr) return WriteGated(sum);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) Write(2 * t_ + i, i, sum);
  }

  // The decays of what was read from the state, and of the scores.
  __device__ void Weigh(float (&sum)[kTiles][4], float (&score)[4]) const {
    const float decay = DecayAt(this->place_), weight = expf(decay);
    const float near = expf(decay - DecayAt(g_)), far = expf(decay - DecayAt(g_ + 8));
    const bool near_seen = g_ <= this->place_, far_seen = g_ + 8 <= this->place_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      score[i] = near_seen ? score_[i] * near : 0.0f;
      score[i + 2] = far_seen ? score_[i + 2] * far : 0.0f;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4 * kTiles; ++i) sum[i / 4][i % 4] *= weight;
  }

  // Lane (g, t) has the number of value column g + 8 · (t % 2) of tile t / 2, or of the only tile:
  // what lane t = 0 has as the first query's.
  __device__ uint32_t TileOfLane() const { return t_ / 2 % kTiles; }
  __device__ uint32_t ColumnOfLane() const { return Column(TileOfLane()) + g_ + t_ % 2 * 8; }
  __device__ float NumberOfLane(const float (&sum)[kTiles][4]) const {
    float x = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < 2 * kTiles; ++i) {
      const float number = __shfl_sync(0xffffffffu, sum[i / 2][i % 2 * 2], g_ * 4);
      if (t_ % (2 * kTiles) == i) x = number;
    }
    return x;
  }

  // (k·k_s) e^{c - c_s} of rows 8 · half on, in every lane; `score`: the lane's scores of rows g
  // and g + 8.
  __device__ void KeyScores(const float (&score)[4], uint32_t half, float (&of)[8]) const {
#pragma unroll
    for (uint32_t s = 0; s < 8; ++s) {
      of[s] = Form::kChannel ? KeysAt<float>(l_.key_scores)[half * 8 + s]
                             : __shfl_sync(0xffffffffu, score[2 * half], s * 4);
    }
  }

  // u = β (v - k S̄ - Σ_{s<place} (k·k_s) e^{c - c_s} u_s), of value columns g and g + 8 of each
  // tile as a pair. Column 0 of `sum` is k S̄. A lane solves for one value column.
  __device__ void Solve(const float (&score)[4], const float (&sum)[kTiles][4],
                        uint32_t (&token)[kTiles]) const {
    const uint32_t e = ColumnOfLane(), place = this->place_;
    const bf16* const column = Values() + e;
    float u = StageAt<float>(l_.token_v)[e] - NumberOfLane(sum);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (half * 8 >= place) break;
      float key_score[8];
      KeyScores(score, half, key_score);
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t s = half * 8 + i;
        const float next = fmaf(-key_score[i], __bfloat162float(column[s * dv_]), u);
        u = s < place ? next : u;
      }
    }
    u *= NumberOf(l_.beta);
    const uint32_t solved = PackRounded(u, __shfl_xor_sync(0xffffffffu, u, 1));
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) {
      token[c] = __shfl_sync(0xffffffffu, solved, g_ * 4 + 2 * c);
    }
  }

  // The token's values of value columns g and g + 8 of each tile, as a pair.
  __device__ void TakeTokenValues(uint32_t (&token)[kTiles]) const {
    const float step = c_.times_step ? NumberOf(l_.step) : 1.0f;
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) {
      const float* value = StageAt<float>(l_.token_v) + Column(c) + g_;
      float near = value[0], far = value[8];
      if (c_.times_step) near *= step, far *= step;
      token[c] = PackRounded(near, far);
    }
  }

  // The values of tile c as a left operand: those of the tail, the token's, and zeros in the rows
  // after it: their scores are zero, but zero times anything is not zero.
  __device__ void TakeValues(uint32_t c, uint32_t token) {
    LoadTransposed(values_[c], Values() + (lane_ % 8 + (lane_ >= 16 ? 8 : 0)) * dv_ + Column(c) +
                                   lane_ / 8 % 2 * 8);
    const uint32_t own[2] = {__byte_perm(token, 0, 0x1010), __byte_perm(token, 0, 0x3232)};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const RowBits& rows = rows_[i / 2];
      values_[c][i] = (values_[c][i] & rows.seen) | (own[i % 2] & rows.own);
    }
  }
  __device__ void TakeRowBits() {
    const uint32_t place = this->place_;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = 2 * t_ + half * 8;
      rows_[half] = {row + 1 < place ? ~0u
                     : row < place   ? 0xffffu
                                     : 0,
                     row == place       ? 0xffffu
                     : row + 1 == place ? 0xffff0000u
                                        : 0};
    }
  }
  __device__ void KeepValues(const uint32_t (&token)[kTiles]) const {
    if (t_ != 0 || !Base::KeepsValue()) return;
    auto* const row = reinterpret_cast<uint16_t*>(this->ValueRow(this->place_)) + Column(0) + g_;
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) {
      if (!Has(c)) break;
      row[c * 16] = static_cast<uint16_t>(token[c]);
      row[c * 16 + 8] = static_cast<uint16_t>(token[c] >> 16);
    }
  }

  // The outputs of a query's column, numbers i and 2 + i of each tile: of value columns g and
  // g + 8.
  __device__ void Write(uint32_t column, uint32_t i, const float (&sum)[kTiles][4]) const {
    if (column >= l_.columns || (c_.delta && column == 0)) return;
    const uint32_t head = c_.delta ? this->unit_ : this->unit_ * c_.unit_heads + column;
    const uint32_t e = Column(0) + g_;
    float* const to =
        c_.out.data + Base::Token() * c_.out.stride + (head * c_.padded_value + this->first_ + e);
    const float *skip = StageAt<float>(l_.skip) + e, *value = StageAt<float>(l_.token_v) + e;
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) {
      if (!Has(c)) break;
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t at = c * 16 + half * 8;
        const float x = sum[c][2 * half + i];
        to[at] = c_.skip == nullptr ? x : fmaf(skip[at], value[at], x);
      }
    }
  }

  // Gates the outputs, of which a lane has one, and stores them. There is one query.
  __device__ void WriteGated(const float (&sum)[kTiles][4]) const {
    float x = NumberOfLane(sum);
    const uint32_t e = ColumnOfLane();
    if (c_.skip != nullptr) x = fmaf(StageAt<float>(l_.skip)[e], StageAt<float>(l_.token_v)[e], x);
    x *= Silu(gate_factor_ * StageAt<float>(l_.gate)[e]);
    const float squares = SquaresOf<4, 1>(x, t_ % 2 == 1);
    if (t_ >= 2 * kTiles || !Has(TileOfLane())) return;
    const auto token = static_cast<uint32_t>(Base::Token());
    const uint32_t column = this->unit_ * c_.value_dim + this->first_ + e;
    StoreOperand(c_.gated.y, token, column, x * StageAt<float>(l_.weight)[e]);
    if (g_ == 0 && t_ % 2 == 0) StoreSquares(c_.gated, token, column, squares);
  }

  // --- fold --------------------------------------------------------------------------------------

  // What the old state, and rows 2t, 2t + 1, 2t + 8 and 2t + 9 of the tail, have decayed to at the
  // border; of decays by unit.
  struct FoldWeights {
    float state, rows[4];
  };
  __device__ FoldWeights WeightsOfFold() const {
    FoldWeights weights;
    const float last = DecayAt(kChunk - 1);
    weights.state = expf(last);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      weights.rows[i] = expf(last - DecayAt(2 * t_ + i % 2 + i / 2 * 8));
    }
    return weights;
  }

  // Keys of 16 numbers from kt · 16 on, with their decays, as the right operand of two products.
  __device__ void LoadKeys(uint32_t kt, const FoldWeights& weights, uint32_t (&k)[4]) const {
    LoadTransposed(
        k, KeysAt<bf16>(0) + (lane_ % 8 + lane_ / 8 % 2 * 8) * kStride + kt * 16 + lane_ / 16 * 8);
    if constexpr (!Form::kChannel) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const float* const near = &weights.rows[i % 2 * 2];
        k[i] = PackRounded(FirstOf(k[i]) * near[0], SecondOf(k[i]) * near[1]);
      }
    }
  }

  __device__ void Fold() const {
    const FoldWeights weights = Form::kChannel ? FoldWeights{} : WeightsOfFold();
    std::byte* const to = this->Matrix(this->segment_.base_out);
#pragma unroll 2
    for (uint32_t kt = 0; kt < Form::kKeyTiles; ++kt) {
      uint32_t k[4];
      LoadKeys(kt, weights, k);
      float w[4] = {weights.state, weights.state, weights.state, weights.state};
      if constexpr (Form::kChannel) {
        const float* decay = KeysAt<float>(l_.state_decay) + kt * 16 + 2 * t_;
        w[0] = decay[0], w[1] = decay[1], w[2] = decay[8], w[3] = decay[9];
      }
#pragma unroll
      for (uint32_t c = 0; c < kTiles; ++c) {
        if (Has(c)) FoldTile(c, kt, w, k, to);
      }
    }
  }

  __device__ void FoldTile(uint32_t c, uint32_t kt, const float (&w)[4], const uint32_t (&k)[4],
                           std::byte* to) const {
    StateTile s = {};
    if (!this->fresh_) s = Tile(c, kt).Numbers();
    float near[4] = {s.upper.x * w[0], s.upper.y * w[1], s.lower.x * w[0], s.lower.y * w[1]};
    float far[4] = {s.upper.z * w[2], s.upper.w * w[3], s.lower.z * w[2], s.lower.w * w[3]};
    MultiplyAdd(near, values_[c], k[0], k[1]);
    MultiplyAdd(far, values_[c], k[2], k[3]);
    StoreTile<Form::kBf16State>(
        to, (first_tile_ + c) * Form::kKeyTiles + kt,
        {{near[0], near[1], far[0], far[1]}, {near[2], near[3], far[2], far[3]}});
  }

  const uint32_t first_tile_, g_, t_, dv_;
  std::byte *stage_ = nullptr, *keys_ = nullptr;
  Ring key_;
  float decay_ = 0.0f;        // cumulative, of row `lane`
  float gate_factor_ = 1.0f;  // of the token
  uint32_t query_[Form::kKeyTiles][2];
  float score_[4] = {};            // of decays by unit: before their decays
  uint2 channel_scores_ = {0, 0};  // of decays by channel: as a right operand
  // Of rows 2t and 2t + 1, and of those eight rows later: the bits of a pair that are of the tail's
  // rows, and of the token's.
  struct RowBits {
    uint32_t seen, own;
  };
  RowBits rows_[2];
  uint32_t values_[kTiles][4];  // the piece's values as left operands
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_STREAM_CONSUMER_CUH_
