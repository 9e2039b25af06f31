// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each segment with many blocks, where a sum is plain (IsPlainSum): keys of 128
// numbers, multiples of 64 value columns, decays by unit, no normaliser, and D only where outputs
// are gated.
//
// A block does what one of sums_decode_many.cuh does, with two fifths of its instructions, which
// are what so many blocks wait for. Sizes are constants, and places have 32 bits. A warp with bf16
// states reads 32 value columns instead of 16, so that scores and weights are computed half as
// often. A lane computes one exponential function instead of three. And it takes one number of the
// token's values, that of the column whose output it gates or solves for, so D and a delta rule
// need no second load of it.
//
// A block that prepares its rows asks for the older rows of the convolution before the wait for the
// kernel before. If it begins early, it also adds them up there. A later block has nothing to wait
// for, and asks for the token's numbers before it adds anything up.
//
// The order of every sum is that of sums.cu, so the bits are the same.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_DECODE_PLAIN_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_DECODE_PLAIN_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/row_convolution.cuh"
#include "kernels/device/shared_work.cuh"
#include "kernels/device/sums.cuh"
#include "kernels/device/sums_decode.cuh"

namespace rivulet::cuda {

// kPrepares: the kernel prepares its rows (UnpreparedRows), of gated outputs. Then it has two
// warps, one for the key and one for the query, and each lane has a value column.
template <bool kBf16State_, bool kDelta_, bool kPrepares_ = false>
struct PlainForm {
  static constexpr bool kBf16State = kBf16State_, kDelta = kDelta_, kPrepares = kPrepares_;
  static constexpr uint32_t kValues = kMostWarps * 16, kKeyTiles = kHeldTiles;
  static constexpr uint32_t kKey = kKeyTiles * 16;
  static constexpr uint32_t kKeyStride = kKey + kPad, kValueStride = kValues + kPad;
  static constexpr uint32_t kNumber = kBf16State ? 2 : 4;
  static constexpr uint32_t kTiles = kBf16State ? 2 : 1;  // of 16 value columns of a warp
  static constexpr uint32_t kThreads = kValues / (kTiles * 16) * 32;
  static constexpr int kResident = kBf16State ? 8 : 4;  // blocks that share a processor

  static size_t SharedBytes(const RecurCall& call) {
    const uint32_t queries = call.delta ? 1 : call.unit_heads;
    return sizeof(bf16) * ((kChunk + queries) * kKeyStride + kChunk * kValueStride);
  }
};

using PreparingPlainForm = PlainForm</*kBf16State=*/true, /*kDelta=*/false, /*kPrepares=*/true>;

// Blocks of the first `early` rows of the grid begin at once, the others when those have ended.
struct PlainGrid : DecodeGrid {
  uint32_t early;
};

template <typename Form>
class DecodePlain : public DecodeBlock {
  static constexpr bool kDelta = Form::kDelta, kPrepares = Form::kPrepares;
  static constexpr uint32_t kTiles = Form::kTiles, kKeyTiles = Form::kKeyTiles;
  static constexpr uint32_t kKeyStride = Form::kKeyStride, kValueStride = Form::kValueStride;
  static constexpr uint32_t kWarps = Form::kThreads / 32;
  static constexpr uint32_t kOutputs = 2 * kTiles;  // of four lanes, those with a value column
  using Sums = float[kTiles][4];
  using State = HeldTile<Form::kBf16State>;

 public:
  // `clock`: from the block's beginning.
  __device__ DecodePlain(const RecurCall& call, const PlainGrid& grid, const BlockClock& clock,
                         bf16* memory, const UnpreparedRows* rows = nullptr)
      : DecodeBlock(call, Form::kValues, PlaceOf(grid), threadIdx.x / 32 * kTiles),
        clock_(clock),
        grid_(grid),
        k_(memory),
        v_(k_ + kChunk * kKeyStride),
        q_(v_ + kChunk * kValueStride),
        place_(static_cast<uint32_t>(segment_.position % kChunk)),
        fresh_(segment_.position < kChunk),
        tail_(c_.slots.tails + Bytes(segment_.tail, c_.slots.tail_stride)),
        base_(c_.slots.bases + Bytes(segment_.base_in, c_.slots.base_stride)),
        rows_(rows) {}

  __device__ void Run() {
    // All of the segment is read at once, not what is needed behind the branch later.
    asm volatile("" ::"l"(tail_), "l"(base_), "r"(place_));
    if (segment_.tokens == 0) return AwaitOthers();
    if constexpr (kPrepares) AskOlderRows();
    Hold();
    CopyTail();
    FindDecays();
    FindGate();
    FindToken();
    if (kPrepares && BeginsEarly()) StartRows();
    AwaitOthers();
    TakeToken();
    WaitForCopies<0>();
    __syncthreads();
    clock_.Stamp(BlockEvent::kLoaded);
    Read();
    if (place_ + 1 == kChunk || !Real()) Fold();
    clock_.Stamp(BlockEvent::kEnds);
  }

 private:
  __device__ bool Real() const { return IsReal(grid_); }
  __device__ void AwaitOthers() const {
    if (!Real()) return;
    AwaitLastKernel(grid_.rehearsing);
    clock_.Stamp(BlockEvent::kAwaited);
  }
  // Whether the kernel before has probably not ended when the block begins. Only speed depends on
  // it.
  __device__ bool BeginsEarly() const { return blockIdx.y < grid_.early; }

  // --- where numbers are: 32 bits for all but addresses (IsPlainSum) ---------------------------

  __device__ static uint64_t Bytes(uint32_t slot, size_t stride) {
    return uint64_t{slot} * static_cast<uint32_t>(stride);
  }
  // The warp's tiles of the state, from the beginning of its slot on.
  __device__ uint32_t Tiles() const {
    constexpr uint32_t kColumnBytes = Form::kKey * Form::kNumber;
    return static_cast<uint32_t>(c_.state_offset) +
           (unit_ * c_.padded_value + Column()) * kColumnBytes;
  }
  template <typename T>
  __device__ T* InTail(size_t plane, uint32_t index) const {
    return reinterpret_cast<T*>(tail_ + static_cast<uint32_t>(plane)) + index;
  }
  __device__ bf16* Keys(uint32_t place) const {
    return InTail<bf16>(c_.key_offset, (key_unit_ * kChunk + place) * Form::kKey);
  }
  __device__ bf16* Values(uint32_t place, uint32_t column) const {
    return InTail<bf16>(c_.value_offset, (value_unit_ * kChunk + place) * c_.padded_value + column);
  }
  __device__ float* Decays() const { return InTail<float>(c_.decay_offset, unit_ * kChunk); }
  // Of the token's row that a warp takes, a lane's four: row 0 is the key, the others are queries.
  __device__ const float* FourOf(uint32_t row) const {
    if (row == 0) return c_.k + (Token() * c_.k_stride + key_unit_ * Form::kKey + lane_ * 4);
    const bool per_head = !kPrepares && c_.query_per_head;
    const uint32_t query = per_head ? unit_ * c_.unit_heads + row - 1 : key_unit_;
    return c_.q + (Token() * c_.q_stride + query * Form::kKey + lane_ * 4);
  }
  __device__ const float* OwnValue() const {
    return c_.v + (Token() * c_.v_stride + value_unit_ * c_.v_head_stride + OwnColumn());
  }
  // In the convolution, of a row's four and of the lane's value.
  __device__ uint32_t ChannelOfFour(uint32_t row) const {
    return (row == 0 ? rows_->key_channel : rows_->query_channel) + key_unit_ * Form::kKey +
           lane_ * 4;
  }
  __device__ uint32_t ChannelOfValue() const {
    return rows_->value_channel + value_unit_ * c_.value_dim + OwnColumn();
  }

  __device__ uint32_t Queries() const { return kDelta ? 1 : columns_; }
  __device__ bool IsGated() const { return !kDelta && (kPrepares || Gates()); }  // CanGate
  // The lane's own value column, if it has one: g + 8 · (t % 2) of tile t / 2.
  __device__ bool HasColumn() const { return kOutputs == 4 || t_ < kOutputs; }
  __device__ uint32_t OwnColumn() const { return Column() + g_ + t_ * 8; }
  __device__ bf16* OwnValues() const { return v_ + warp_ * 16 + g_ + t_ % kOutputs * 8; }

  // --- before the kernel before has ended --------------------------------------------------------

  // A rehearsal loads no state: it multiplies what the registers happen to hold.
  __device__ void Hold() {
    const std::byte* tiles = base_ + Tiles();
    const bool loads = !fresh_ && Real();
#pragma unroll
    for (uint32_t i = 0; i < kTiles * kKeyTiles; ++i) {
      if (loads) held_[i / kKeyTiles][i % kKeyTiles].Load(tiles, i);
    }
  }

  // Keys and values before the token's. Scores of rows after it are not used, so keys need no zeros
  // there; values do, since zero times anything is not zero.
  __device__ void CopyTail() const {
    CopyRows<Form::kKey, kKeyStride, false>(k_, Keys(0), Form::kKey);
    CopyRows<Form::kValues, kValueStride, true>(v_, Values(0, split_ * Form::kValues),
                                                c_.padded_value);
    CommitCopies();
  }
  template <uint32_t kWidth, uint32_t kStride, bool kZeros>
  __device__ void CopyRows(bf16* to, const bf16* from, uint32_t from_stride) const {
    constexpr uint32_t kEights = kWidth / 8, kAtOnce = Form::kThreads / kEights;  // rows
    const uint32_t first = threadIdx.x / kEights, column = threadIdx.x % kEights * 8;
    const uint32_t count = Real() ? place_ : 0;
    to += first * kStride + column;
    from += first * from_stride + column;
    uint32_t shared = SharedAddress(to);
    asm volatile("" : "+l"(from), "+r"(shared));  // worked out once, not under each condition
#pragma unroll
    for (uint32_t row = 0; row < kChunk; row += kAtOnce) {
      if (first + row < count) {
        CopyAsync(shared + row * kStride * 2, from + row * from_stride);
      }
      if (kZeros && first + row > place_) {
        *reinterpret_cast<uint4*>(to + row * kStride) = {0, 0, 0, 0};
      }
    }
  }

  __device__ void FindDecays() {
    if (kPrepares && rows_->step_bias != nullptr) step_bias_ = rows_->step_bias[unit_];
    if (TakesOwnDecay()) {
      if (c_.rate != nullptr) rate_ = c_.rate[unit_];
      if (lane_ < place_) decay_ = Decays()[lane_];
    } else if (c_.constant != nullptr && lane_ < kChunk) {
      decay_ = c_.constant[unit_ * kChunk + lane_];
    }
  }

  // D and the norm's weight, which no kernel writes.
  __device__ void FindGate() {
    if (!IsGated() || !HasColumn()) return;
    if (c_.skip != nullptr) skip_ = c_.skip[GatedColumn()];
    norm_weight_ = c_.gated.weight[GatedColumn()];
  }

  // Where the numbers are that are read behind the wait.
  __device__ void FindToken() {
    four_at_ = FourOf(threadIdx.x / 32);
    value_at_ = OwnValue();
    step_at_ = c_.g + (Token() * c_.g_stride + unit_);
    gate_at_ = c_.gated.gate + (Token() * c_.gated.gate_stride + GatedColumn());
    asm volatile("" : "+l"(four_at_), "+l"(value_at_), "+l"(step_at_), "+l"(gate_at_));
  }
  // Each row of the token is taken by a warp.
  __device__ bool TakesRow() const { return kPrepares || threadIdx.x / 32 <= Queries(); }
  __device__ bool TakesOwnDecay() const { return kPrepares || TakesDecay(); }
  // Adds up what the convolution takes from older rows.
  __device__ void StartRows() {
    four_.Start(Convolution(), ChannelOfFour(threadIdx.x / 32));
    number_.Start(Convolution(), ChannelOfValue());
  }
  __device__ void AskOlderRows() {
    static_assert(kWarps == 2 && kOutputs == 4);
    number_.Ask(Convolution(), ChannelOfValue());
    four_.Ask(Convolution(), ChannelOfFour(threadIdx.x / 32));
  }
  __device__ RowConvolution Convolution() const { return {*rows_, c_, segment_, tail_, base_}; }

  // --- the token's row ---------------------------------------------------------------------------

  // Everything is asked for before anything is used.
  __device__ void TakeToken() {
    const bool decays = TakesOwnDecay();
    const uint32_t row = threadIdx.x / 32;
    float step = decays ? ReadLate(step_at_) : 0.0f;
    if (kDelta) beta_ = ReadLate(c_.beta + (Token() * c_.beta_stride + unit_));
    float4 x;
    if (TakesRow()) x = ReadLate(reinterpret_cast<const float4*>(four_at_));
    if (HasColumn()) value_ = ReadLate(value_at_);
    TakeGate();
    if constexpr (kPrepares) {
      if (!BeginsEarly()) StartRows();
      step = StepOf(*rows_, step, step_bias_);
    }
    if (TakesRow()) StoreRow(row, x);
    if (!kDelta && HasColumn()) TakeValue(step);
    if constexpr (!kPrepares) TakeMoreRows();  // rows that it prepares are as many as warps
    WeightRows(decays, step);
  }
  __device__ void TakeMoreRows() const {
#pragma unroll 1
    for (uint32_t row = threadIdx.x / 32 + kWarps; row <= Queries(); row += kWarps) {
      StoreRow(row, ReadLate(reinterpret_cast<const float4*>(FourOf(row))));
    }
  }
  __device__ void TakeGate() {
    if (!IsGated() || !HasColumn()) return;
    gate_ = ReadLate(gate_at_);
    if (c_.gated.gate_factors != nullptr) gate_ *= ReadLate(c_.gated.gate_factors + Token());
  }

  __device__ void StoreRow(uint32_t row, float4 x) const {
    const bool keeps = KeepsKey() && Real();
    if constexpr (kPrepares) {
      const float4 now = AsRow(x);
      x = four_.Finish(now);
      if (keeps) Convolution().Keep(ChannelOfFour(row), now);
    }
    StoreFour((row == 0 ? k_ + place_ * kKeyStride : q_ + (row - 1) * kKeyStride) + lane_ * 4, x);
    if (row == 0 && keeps) StoreFour(Keys(place_) + lane_ * 4, x);
  }
  __device__ void TakeValue(float step) {
    if constexpr (kPrepares) {
      const float now = AsRow(value_);
      value_ = number_.Finish(now);
      if (KeepsValues() && Real()) Convolution().Keep(ChannelOfValue(), now);
    }
    StoreValue(c_.times_step ? value_ * step : value_);
  }
  __device__ void StoreValue(float x) const {
    const bf16 stored = __float2bfloat16_rn(x);
    OwnValues()[place_ * kValueStride] = stored;
    if (KeepsValues() && Real()) *Values(place_, OwnColumn()) = stored;
  }

  // weight_: e^{c - c_s} in lane s of the first C, e^c in the others, where c is the token's
  // cumulative decay and c_s that of row s.
  __device__ void WeightRows(bool decays, float step) {
    float now = __shfl_sync(0xffffffffu, decay_, decays ? max(place_, 1u) - 1 : place_);
    if (decays) {
      if (place_ == 0) now = 0.0f;
      now += rate_ * step;
      if (lane_ == place_) {
        decay_ = now;
        if (split_ == 0 && warp_ == 0 && Real()) Decays()[place_] = now;
      }
    }
    weight_ = expf(now - decay_);
  }
  __device__ float WeightOf(uint32_t row) const { return __shfl_sync(0xffffffffu, weight_, row); }
  __device__ float WeightOfState() const { return WeightOf(kChunk); }

  // --- read --------------------------------------------------------------------------------------

  // What column g is multiplied by: a query, or the key of a delta rule. Columns that no query has
  // read the last one, and nothing uses what comes of them.
  __device__ const bf16* ColumnRow(uint32_t g) const {
    if (kDelta) return g == 0 ? k_ + place_ * kKeyStride : q_;
    return q_ + min(g, columns_ - 1) * kKeyStride;
  }

  __device__ void Read() {
    const uint32_t keys =
        SharedAddress(k_ + (lane_ % 8 + lane_ / 8 % 2 * 8) * kKeyStride + lane_ / 16 * 8);
    const uint32_t queries = SharedAddress(ColumnRow(lane_ % 8) + lane_ / 8 * 8);
    float score[4] = {};
    Sums sum = {};
    uint32_t two[4];  // tiles of a query
#pragma unroll
    for (uint32_t kt = 0; kt < kKeyTiles; ++kt) {
      if (kt % 2 == 0) LoadMatrices(two, queries + kt * 32);
      const uint32_t b0 = two[kt % 2 * 2], b1 = two[kt % 2 * 2 + 1];
      uint32_t k[4];
      LoadMatrices(k, keys + kt * 32);
      MultiplyAdd(score, k, b0, b1);
      if (fresh_) continue;
#pragma unroll
      for (uint32_t c = 0; c < kTiles; ++c) held_[c][kt].Multiply(sum[c], b0, b1);
    }
    Finish(score, sum);
  }

  __device__ void Finish(float (&score)[4], Sums& sum) {
    const float weight = WeightOfState(), near = WeightOf(g_), far = WeightOf(g_ + 8);
    const bool near_seen = g_ <= place_, far_seen = g_ + 8 <= place_;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      score[i] = near_seen ? score[i] * near : 0.0f;
      score[i + 2] = far_seen ? score[i + 2] * far : 0.0f;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4 * kTiles; ++i) sum[i / 4][i % 4] *= weight;
    if constexpr (kDelta) Solve(score, sum);
    const uint2 p = TransposedScores(score, true);
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) {
      uint32_t v[4];
      LoadValues(c, v);
      MultiplyAdd(sum[c], v, p.x, p.y);
    }
    IsGated() ? Gate(sum) : Write(sum);
  }
  // Of tile c, as a left operand.
  __device__ void LoadValues(uint32_t c, uint32_t (&v)[4]) const {
    LoadTransposed(v, v_ + (lane_ % 8 + (lane_ >= 16 ? 8 : 0)) * kValueStride + (warp_ + c) * 16 +
                          lane_ / 8 % 2 * 8);
  }

  // u = β (v - k S̄ - Σ_{s<place} (k·k_s) e^{c - c_s} u_s) of the lane's column. Column 0 of `sum`
  // is k S̄. The rows of so many tokens are loaded before the first is used.
  __device__ void Solve(const float (&score)[4], const Sums& sum) const {
    constexpr uint32_t kAtOnce = 4;
    float u = value_ - OwnOutput(sum);
    const bf16* const column = OwnValues();
#pragma unroll 1
    for (uint32_t first = 0; first < place_; first += kAtOnce) {
      float weights[kAtOnce], rows[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t s = first + i;
        weights[i] = __shfl_sync(0xffffffffu, first < 8 ? score[0] : score[2], s % 8 * 4);
        rows[i] = __bfloat162float(column[s * kValueStride]);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i < place_) u = fmaf(-weights[i], rows[i], u);
      }
    }
    if (HasColumn()) StoreValue(beta_ * u);
    __syncwarp();
  }

  // What lane t = 0 has in the lane's own column.
  __device__ float OwnOutput(const Sums& sum) const {
    float x = sum[0][0];
#pragma unroll
    for (uint32_t i = 1; i < kOutputs; ++i) {
      const float number = __shfl_sync(0xffffffffu, sum[i / 2][i % 2 * 2], g_ * 4);
      if (t_ == i) x = number;
    }
    return x;
  }

  __device__ void Gate(const Sums& sum) const {
    float x = OwnOutput(sum);
    if (c_.skip != nullptr) x = fmaf(skip_, value_, x);
    x *= Silu(gate_);
    const float squares = SquaresOf<4, 1>(x, t_ % 2 == 1);
    asm volatile("" ::"f"(squares), "f"(norm_weight_));  // in a rehearsal, too
    if (!HasColumn() || !Real()) return;
    const uint32_t column = GatedColumn();
    StoreOperand(c_.gated.y, Token(), column, x * norm_weight_);
    if (g_ == 0 && t_ % 2 == 0) StoreSquares(c_.gated, Token(), column, squares);
  }

  // The first column of a delta rule is its key, which has no output.
  __device__ void Write(const Sums& sum) const {
    constexpr int kFirst = kDelta ? 1 : 0;
    const size_t head = kDelta ? unit_ : unit_ * c_.unit_heads;
    float* const to =
        c_.out.data + size_t{Token()} * c_.out.stride + head * c_.padded_value + Column() + g_;
#pragma unroll
    for (uint32_t i = 0; i < 4 * kTiles; ++i) {
      const float x = sum[i / 4][i % 4];
      asm volatile("" ::"f"(x));  // computed in a rehearsal, too
      const int output = static_cast<int>(2 * t_ + i % 2) - kFirst;
      if (output < 0 || output >= static_cast<int>(columns_) - kFirst || !Real()) continue;
      to[output * c_.padded_value + i / 2 * 8] = x;
    }
  }

  // --- fold --------------------------------------------------------------------------------------

  // A loop, through whose first tiles all tiles pass: long code would be waited for, as in
  // DecodeUnit::FoldState. At the border weight_ is what the fold weights rows and state by.
  __device__ void Fold() {
    constexpr uint32_t kAtOnce = 2;
    float rows[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) rows[i] = WeightOf(2 * t_ + i % 2 + i / 2 * 8);
    const float state = WeightOfState();
    uint32_t v[kTiles][4];
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) LoadValues(c, v[c]);
    std::byte* const slot = c_.slots.bases + Bytes(segment_.base_out, c_.slots.base_stride);
    std::byte* const to = Real() ? slot + Tiles() : nullptr;
#pragma unroll 1
    for (uint32_t kt = 0; kt < kKeyTiles; kt += kAtOnce) {
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) FoldTiles(kt + i, i, v, state, rows, to);
#pragma unroll
      for (uint32_t i = 0; i + kAtOnce < kKeyTiles; ++i) {
#pragma unroll
        for (uint32_t c = 0; c < kTiles; ++c) held_[c][i] = held_[c][i + kAtOnce];
      }
    }
  }
  // Of 16 keys, whose tiles are held as number `held`. rows: the weights of rows 2t, 2t + 1, 2t + 8
  // and 2t + 9.
  __device__ void FoldTiles(uint32_t kt, uint32_t held, const uint32_t (&v)[kTiles][4], float state,
                            const float (&rows)[4], std::byte* to) const {
    uint32_t k[4];
    LoadTransposed(k, k_ + (lane_ % 8 + lane_ / 8 % 2 * 8) * kKeyStride + kt * 16 + lane_ / 16 * 8);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const float* const near = &rows[i % 2 * 2];
      k[i] = PackRounded(FirstOf(k[i]) * near[0], SecondOf(k[i]) * near[1]);
    }
#pragma unroll
    for (uint32_t c = 0; c < kTiles; ++c) {
      StateTile s = {};
      if (!fresh_) s = held_[c][held].Numbers();
      FoldedTile folded(s, {state, state, state, state});
      folded.Add(v[c], k);
      if (to != nullptr) StoreTile<Form::kBf16State>(to, c * kKeyTiles + kt, folded.Tile());
    }
  }

  const BlockClock clock_;
  const PlainGrid& grid_;
  bf16 *const k_, *const v_, *const q_;  // [C, Dp + pad], [C, 64 + pad], [queries, Dp + pad]
  const uint32_t place_;
  const bool fresh_;
  std::byte *const tail_, *const base_;  // the segment's slots
  float decay_ = 0.0f;                   // cumulative, of row `lane`
  float rate_ = 1.0f, weight_ = 1.0f, beta_ = 0.0f;
  // Of the lane's column: the token's value and gate, D and the norm's weight.
  float value_ = 0.0f, gate_ = 0.0f, skip_ = 0.0f, norm_weight_ = 0.0f;
  // Where the token's are: the four of the warp's row, value, step and gate (FindToken).
  const float *four_at_, *value_at_, *step_at_, *gate_at_;
  State held_[kTiles][kKeyTiles];
  const UnpreparedRows* const rows_;  // null: all are prepared
  ConvolvedFour four_;
  ConvolvedNumber number_;
  float step_bias_ = 0.0f;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_DECODE_PLAIN_CUH_
