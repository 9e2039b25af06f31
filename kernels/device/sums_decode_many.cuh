// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each segment with many blocks: the work of a block of sums_decode.cu, which has up
// to 64 value columns of one unit.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_DECODE_MANY_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_DECODE_MANY_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/rehearsal.cuh"
#include "kernels/device/row_convolution.cuh"
#include "kernels/device/shared_work.cuh"
#include "kernels/device/sums.cuh"
#include "kernels/device/sums_decode.cuh"

namespace rivulet::cuda {

// Keys, queries and values are copied in fours and eights.
struct DecodeUnitGrid : DecodeGrid {
  Divisor of_query;            // fours
  Divisor of_keys, of_values;  // eights
};

// What one thread copies of the token's row: four neighbours of a query, the key or the values.
struct Four {
  const float* from = nullptr;  // null: nothing
  bf16* to = nullptr;
  bf16* row = nullptr;  // of the tail; null: not kept
  bool scaled = false;  // by the step Δ
  // Of rows that the kernel prepares:
  float* unscaled = nullptr;  // in shared memory, for D; null: not a value
  bool keeps_input = false;   // of the convolution
};

// kPrepares: the kernel prepares its rows (UnpreparedRows), of gated outputs.
template <bool kBf16State, bool kNormaliser, bool kDelta, bool kPrepares = false>
class DecodeUnit : public DecodeBlock {
 public:
  __device__ DecodeUnit(const RecurCall& call, const DecodeUnitGrid& grid, bf16* memory,
                        const UnpreparedRows* rows = nullptr)
      : DecodeBlock(call, blockDim.x / 2, PlaceOf(grid)),
        grid_(grid),
        dk_(call.padded_key + kPad),
        dv_(values_ + kPad),
        k_(memory),
        q_(k_ + kChunk * dk_),
        v_(q_ + columns_ * dk_),
        z_(reinterpret_cast<float*>(v_ + kChunk * dv_)),
        rows_(rows) {}

  __host__ __device__ static size_t SharedBytes(uint32_t padded_key, uint32_t columns,
                                                uint32_t values) {
    return sizeof(bf16) *
               (size_t{kChunk + columns} * (padded_key + kPad) + size_t{kChunk} * (values + kPad)) +
           (kNormaliser ? padded_key * sizeof(float) : 0) +
           (kPrepares ? values * sizeof(float) : 0);
  }

  __device__ void Run(uint32_t ahead) {
    if (segment_.tokens == 0) return AwaitOthers();
    Begin();
    Hold();
    if (Real()) {
      CopyKeys();
      CopyValues();
      CopyNormaliser();
      CommitCopies();
      if (threadIdx.x == 0) FetchForLater(ahead);
    }
    const bool decays = TakesDecay();
    FindDecays(decays);
    FindSkip();
    FindItem();
    if constexpr (kPrepares) StartItem(item_);
    AwaitOthers();
    TakeToken(decays);
    WaitForCopies<0>();
    __syncthreads();
    if (active_) Read();
    if (place_ + 1 == kChunk || !Real()) Fold();
  }

 private:
  static constexpr int kTiles = kHeldTiles;  // of 16 keys that a warp holds in registers
  static constexpr uint32_t kNumber = kBf16State ? 2 : 4;
  static constexpr bool kGates = !kNormaliser && !kDelta;  // CanGate

  __device__ float* Normaliser(uint32_t slot) const {
    return NormaliserAt(c_, slot, unit_ * splits_ + split_);
  }

  __device__ bool Real() const { return IsReal(grid_); }
  __device__ void AwaitOthers() const {
    if (Real()) AwaitLastKernel(grid_.rehearsing);
  }
  __device__ bool IsGated() const { return kPrepares || (kGates && Gates()); }

  // --- before the kernel before has ended --------------------------------------------------------

  __device__ void Begin() {
    place_ = static_cast<uint32_t>(segment_.position % kChunk);
    fresh_ = Real() && segment_.position < kChunk;
    active_ = Column() < c_.padded_value;
  }

  // A rehearsal loads no state: it multiplies what the registers happen to hold. Each load has its
  // own condition. Behind a branch around all of them the compiler would wait for the segment once
  // more, and with that for the state, whose loads share a counter with it.
  __device__ void Hold() {
    const std::byte* matrix = Matrix(segment_.base_in, kNumber);
    const uint32_t tiles = fresh_ || !active_ || !Real() ? 0 : key_tiles_;
#pragma unroll
    for (uint32_t kt = 0; kt < kTiles; ++kt) {
      if (kt < tiles) held_[kt].Load(matrix, Tile(kt));
    }
  }

  // The first `ahead` blocks ask for the state of the block that comes so much later and may have
  // to wait for room on a processor.
  __device__ void FetchForLater(uint32_t ahead) const {
    const uint32_t block = blockIdx.x + (blockIdx.y - grid_.rehearsing) * gridDim.x;
    const uint32_t later = block + ahead, row = later / gridDim.x;
    if (block >= ahead || row >= gridDim.y - grid_.rehearsing) return;
    FetchState(later - row * gridDim.x, row, kNumber);
  }

  // Rows before the token's, and zeros after it: their scores are masked, but zero times anything
  // is not zero.
  __device__ void CopyKeys() const { CopyRows(k_, dk_, grid_.of_keys, KeyRow(0), c_.padded_key); }
  // Of the last block of a unit some may not be there.
  __device__ void CopyValues() const {
    const uint32_t first = split_ * values_;
    CopyRows(v_, dv_, grid_.of_values, ValueRow(0) + first, c_.padded_value,
             c_.padded_value - first);
  }
  __device__ void CopyNormaliser() const {
    if (!kNormaliser || fresh_) return;
    const float* z = Normaliser(segment_.base_in);
    for (uint32_t i = threadIdx.x; i < c_.padded_key / 4; i += blockDim.x) {
      CopyAsync(z_ + i * 4, z + i * 4);
    }
  }

  // Rows of `eights` times 8 numbers, of which the first `width` are there.
  __device__ void CopyRows(bf16* to, uint32_t stride, const Divisor& eights, const bf16* rows,
                           uint32_t row_stride, uint32_t width = ~0u) const {
    for (uint32_t i = threadIdx.x; i < kChunk * eights.divisor; i += blockDim.x) {
      const uint32_t s = Over(i, eights), column = (i - s * eights.divisor) * 8;
      if (column >= width) continue;
      if (s < place_) CopyAsync(to + s * stride + column, rows + s * row_stride + column);
      if (s > place_) *reinterpret_cast<uint4*>(to + s * stride + column) = {0, 0, 0, 0};
    }
  }

  __device__ void FindDecays(bool decays) {
    if (decays && c_.rate != nullptr) rate_ = c_.rate[unit_];
    if (kPrepares && rows_->step_bias != nullptr) step_bias_ = rows_->step_bias[unit_];
    if (lane_ < kChunk) {
      if (c_.constant != nullptr) decay_ = c_.constant[unit_ * kChunk + lane_];
      if (decays && lane_ < place_) decay_ = DecayRow()[lane_];
    }
  }

  // D and weights, which no kernel writes.
  __device__ void FindSkip() {
    if (active_ && IsGated() && t_ < 2) {
      if (c_.skip != nullptr) skip_[0] = c_.skip[GatedColumn()];
      skip_[1] = c_.gated.weight[GatedColumn()];
    }
    if (IsGated() || c_.skip == nullptr || 2 * t_ >= columns_) return;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t e = Column() + g_ + half * 8;
      if (e < c_.value_dim) skip_[half] = c_.skip[unit_ * c_.value_dim + e];
    }
  }
  // The thread's first four of the token's row.
  __device__ void FindItem() {
    if (threadIdx.x < Items()) item_ = ItemAt(threadIdx.x);
  }

  // --- rows that the kernel prepares -------------------------------------------------------------

  // The values that D multiplies, fp32 [values].
  __device__ float* Unscaled() const { return z_; }
  __device__ RowConvolution Convolution() const { return {*rows_, c_, segment_}; }
  __device__ void StartItem(const Four& item) {
    if (item.from != nullptr) {
      const uint32_t channel = Convolution().Channel(item.from);
      convolved_.Ask(Convolution(), channel), convolved_.Start(Convolution(), channel);
    }
  }
  // Numbers x of an item that was started, as they are in the projection.
  __device__ void PrepareItem(const Four& item, float4 x, float step) const {
    const float4 now = AsRow(x);
    x = convolved_.Finish(now);
    if (item.unscaled != nullptr) StoreFour(item.unscaled, x);
    StoreItem(item, x, step);
    if (item.keeps_input && Real()) {
      Convolution().Keep(Convolution().Channel(item.from), now);
    }
  }

  // --- the token's row ---------------------------------------------------------------------------

  // Item i of the token's row: fours of the key, then of the queries, then of this block's values.
  __device__ Four ItemAt(uint32_t i) const {
    const uint32_t fours = c_.padded_key / 4;
    if (i < fours) {
      const bool keeps = KeepsKey();
      return {Key() + i * 4,
              k_ + place_ * dk_ + i * 4,
              keeps ? KeyRow(place_) + i * 4 : nullptr,
              false,
              nullptr,
              keeps};
    }
    i -= fours;
    if (i < columns_ * fours) {
      const uint32_t column = Over(i, grid_.of_query), d = (i - column * fours) * 4;
      const float* from = kDelta ? (column == 0 ? Key() : Query(0)) : Query(column);
      return {from + d, q_ + column * dk_ + d, nullptr, false, nullptr, KeepsKey()};
    }
    return kDelta ? Four() : ValuesAt(i - columns_ * fours);
  }
  // Item i of this block's values.
  __device__ Four ValuesAt(uint32_t i) const {
    const uint32_t first = split_ * values_, width = min(values_, c_.padded_value - first);
    if (i >= width / 4) return {};
    const bool keeps = KeepsValues();
    return {Value() + first + i * 4,
            v_ + place_ * dv_ + i * 4,
            keeps ? ValueRow(place_) + first + i * 4 : nullptr,
            c_.times_step,
            kPrepares ? Unscaled() + i * 4 : nullptr,
            keeps};
  }

  __device__ static float4 ReadItem(const Four& item) {
    return ReadLate(reinterpret_cast<const float4*>(item.from));
  }
  __device__ void StoreItem(const Four& item, float4 x, float step) const {
    if (item.scaled) x.x *= step, x.y *= step, x.z *= step, x.w *= step;
    StoreFour(item.to, x);
    if (item.row != nullptr && Real()) StoreFour(item.row, x);
  }

  __device__ uint32_t Items() const { return c_.padded_key / 4 * (1 + columns_) + values_ / 4; }

  __device__ void TakeToken(bool decays) {
    float step = TakeStep(decays);
    if (kDelta) beta_ = ReadLate(c_.beta + size_t{Token()} * c_.beta_stride + unit_);
    TakeSkip();
    TakeValues();
    if constexpr (kPrepares) {
      float4 x;
      if (item_.from != nullptr) x = ReadItem(item_);
      step = PreparedStep(step);  // after all that the thread asks for
      if (item_.from != nullptr) PrepareItem(item_, x, step);
    } else {
      if (item_.from != nullptr) StoreItem(item_, ReadItem(item_), step);
    }
#pragma unroll 1  // most threads have no more
    for (uint32_t i = threadIdx.x + blockDim.x; i < Items(); i += blockDim.x) {
      const Four item = ItemAt(i);
      if (item.from != nullptr) TakeItem(item, step);
    }
    if (decays) AddDecay(step);
  }
  __device__ void TakeItem(const Four& item, float step) {
    if constexpr (kPrepares) {
      const float4 x = ReadItem(item);
      StartItem(item);
      PrepareItem(item, x, step);
    } else {
      StoreItem(item, ReadItem(item), step);
    }
  }

  __device__ float TakeStep(bool decays) const {
    return decays ? ReadLate(c_.g + size_t{Token()} * c_.g_stride + unit_) : 0.0f;
  }
  // Rows that a kernel prepares have decays (CanPrepare).
  __device__ float PreparedStep(float g) const { return StepOf(*rows_, g, step_bias_); }
  __device__ void AddDecay(float step) {
    const float last = __shfl_sync(0xffffffffu, decay_, place_ == 0 ? 0 : place_ - 1);
    float sum = place_ == 0 ? 0.0f : last;
    sum += rate_ * step;
    if (lane_ == place_) {
      decay_ = sum;
      if (split_ == 0 && warp_ == 0 && Real()) DecayRow()[place_] = sum;
    }
  }

  // What D is multiplied with in the two value columns that the lane writes; of gated outputs in
  // one, and its gate.
  __device__ void TakeSkip() {
    if (active_ && IsGated() && t_ < 2) {
      if (!kPrepares) skipped_[0] = ReadLate(Value() + Column() + g_ + t_ * 8);
      skipped_[1] = ReadLate(GateAt());
    }
    if (IsGated() || c_.skip == nullptr || 2 * t_ >= columns_) return;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t e = Column() + g_ + half * 8;
      if (e < c_.value_dim) skipped_[half] = ReadLate(Value() + e);
    }
  }

  // What a delta rule starts from, of the two value columns that the lane solves for.
  __device__ void TakeValues() {
    if constexpr (kDelta) {
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t e = Column() + g_ + half * 8;
        if (e < c_.value_dim) values_now_[half] = ReadLate(Value() + e);
      }
    }
  }

  // --- read --------------------------------------------------------------------------------------

  __device__ float DecayAt(uint32_t place) const { return __shfl_sync(0xffffffffu, decay_, place); }

  __device__ void Read() {
    float score[4] = {}, sum[4] = {};
    const uint32_t keys =
        SharedAddress(k_ + (lane_ % 8 + lane_ / 8 % 2 * 8) * dk_ + lane_ / 16 * 8);
#pragma unroll
    for (uint32_t kt = 0; kt < kTiles; ++kt) {
      if (kt >= key_tiles_) continue;
      const bool present = g_ < columns_;
      const bf16* query = q_ + g_ * dk_ + kt * 16 + 2 * t_;
      const uint32_t b0 = Two(query, present), b1 = Two(query + 8, present);
      uint32_t k[4];
      LoadMatrices(k, keys + kt * 32);
      MultiplyAdd(score, k, b0, b1);
      if (!fresh_) held_[kt].Multiply(sum, b0, b1);
    }
    Finish(score, sum);
  }

  // From the scores and reads as they are.
  __device__ void Finish(float (&score)[4], float (&sum)[4]) {
    const float decay = DecayAt(place_), weight = expf(decay);
    const float near = expf(decay - DecayAt(g_)), far = expf(decay - DecayAt(g_ + 8));
    const bool near_seen = g_ <= place_, far_seen = g_ + 8 <= place_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] *= weight;
      sum[i + 2] *= weight;
      score[i] = near_seen ? score[i] * near : 0.0f;
      score[i + 2] = far_seen ? score[i + 2] * far : 0.0f;
    }
    if constexpr (kDelta) {
      Solve(sum, [&](uint32_t s) {
        const float near = __shfl_sync(0xffffffffu, score[0], s % 8 * 4);
        const float far = __shfl_sync(0xffffffffu, score[2], s % 8 * 4);
        return s < 8 ? near : far;
      });
    }
    uint32_t v[4];
    LoadTransposed(v,
                   v_ + (lane_ % 8 + (lane_ >= 16 ? 8 : 0)) * dv_ + warp_ * 16 + lane_ / 8 % 2 * 8);
    const uint2 p = TransposedScores(score, g_ < columns_ && !(kDelta && g_ == 0));
    MultiplyAdd(sum, v, p.x, p.y);
    if constexpr (kNormaliser) Divide(weight, p, sum);
    if (IsGated()) {
      if (kPrepares && t_ < 2) skipped_[0] = Unscaled()[warp_ * 16 + g_ + t_ * 8];
      const float x = WithSkip(0, OwnOutput(sum[0], sum[2]));
      return WriteGated(x, skipped_[1], skip_[1], Real());
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) Write(2 * t_ + i % 2, i / 2, sum[i]);
  }

  // By the normaliser's reads, which are in the order of sums.cu.
  __device__ void Divide(float weight, uint2 p, float (&sum)[4]) const {
    float n[4] = {};
    for (uint32_t kt = 0; kt < (fresh_ ? 0 : key_tiles_); ++kt) {
      uint32_t high[4], low[4];
      SplitRows(z_ + kt * 16 + 2 * t_, high, low);
      const bf16* query = q_ + g_ * dk_ + kt * 16 + 2 * t_;
      const bool present = g_ < columns_;
      const uint32_t b0 = Two(query, present), b1 = Two(query + 8, present);
      MultiplyAdd(n, high, b0, b1);
      MultiplyAdd(n, low, b0, b1);
    }
    n[0] *= weight, n[1] *= weight;
    MultiplyAdd(n, {kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes}, p.x, p.y);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) sum[i] = Divided(c_, sum[i], n[i % 2]);
  }

  // u = β (v - k S̄ - Σ_{s<place} score(s) u_s), score(s) = (k·k_s) e^{c - c_s}. Lanes of column 0
  // have k S̄ of value columns g and g + 8.
  template <typename Score>
  __device__ void Solve(const float (&sum)[4], Score&& score) {
    float u[2] = {values_now_[0] - sum[0], values_now_[1] - sum[2]};
    bf16* column = v_ + warp_ * 16 + g_;
    // The rows of so many tokens are loaded before the first is used; those from `place_` on are
    // not.
    constexpr uint32_t kAtOnce = 4;
    for (uint32_t first = 0; first < place_; first += kAtOnce) {
      float weights[kAtOnce], rows[kAtOnce][2];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        weights[i] = -score(first + i);
        rows[i][0] = __bfloat162float(column[(first + i) * dv_]);
        rows[i][1] = __bfloat162float(column[(first + i) * dv_ + 8]);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i >= place_) continue;
        u[0] = fmaf(weights[i], rows[i][0], u[0]);
        u[1] = fmaf(weights[i], rows[i][1], u[1]);
      }
    }
    if (t_ == 0) {
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const bf16 stored = __float2bfloat16_rn(beta_ * u[half]);
        column[place_ * dv_ + half * 8] = stored;
        if (Real()) ValueRow(place_)[Column() + g_ + half * 8] = stored;
      }
    }
    __syncwarp();
  }

  __device__ float WithSkip(uint32_t half, float x) const {
    return c_.skip != nullptr ? fmaf(skip_[half], skipped_[half], x) : x;
  }

  __device__ void Write(uint32_t column, uint32_t half, float x) {
    if (column >= columns_ || (kDelta && column == 0)) return;
    const uint32_t head = kDelta ? unit_ : unit_ * c_.unit_heads + column;
    const uint32_t e = Column() + g_ + half * 8;
    if (e < c_.value_dim) x = WithSkip(half, x);
    float* to = c_.out.data + size_t{Token()} * c_.out.stride + size_t{head} * c_.padded_value + e;
    asm volatile("" ::"f"(x));  // computed in a rehearsal, too
    if (Real()) *to = x;
  }

  // --- fold --------------------------------------------------------------------------------------

  __device__ void Fold() {
    __syncthreads();
    WeightKeys();
    const float weight = expf(DecayAt(kChunk - 1));
    __syncthreads();
    if (kNormaliser && Real()) {
      FoldNormaliser<1>(c_, k_, dk_, weight, fresh_, z_, Normaliser(segment_.base_out));
    }
    FoldState(weight);
  }

  __device__ void WeightKeys() const {
    const uint32_t s = threadIdx.x % kChunk, first = threadIdx.x / kChunk * 8;
    const float weight = expf(DecayAt(kChunk - 1) - DecayAt(s));
    const auto weighted = [weight](uint32_t two) {
      return PackRounded(FirstOf(two) * weight, SecondOf(two) * weight);
    };
#pragma unroll 1
    for (uint32_t i = first; i < c_.padded_key; i += blockDim.x / kChunk * 8) {
      uint4* const k = reinterpret_cast<uint4*>(k_ + s * dk_ + i);
      *k = {weighted(k->x), weighted(k->y), weighted(k->z), weighted(k->w)};
    }
  }

  // A loop, through whose first tiles all tiles pass: without it the code is so long that a block
  // which folds waits 3 to 7 microseconds for instructions.
  __device__ void FoldState(float weight) {
    if (!active_) return;
    uint32_t v[4];
    LoadTransposed(v,
                   v_ + (lane_ % 8 + (lane_ >= 16 ? 8 : 0)) * dv_ + warp_ * 16 + lane_ / 8 % 2 * 8);
    // Null: this is a rehearsal.
    std::byte* const to = Real() ? Matrix(segment_.base_out, kNumber) : nullptr;
#pragma unroll 1
    for (uint32_t kt = 0; kt < key_tiles_; kt += 2) {
      FoldTile(kt, held_[0], v, weight, to);
      if (kt + 1 < key_tiles_) FoldTile(kt + 1, held_[1], v, weight, to);
#pragma unroll
      for (uint32_t i = 0; i + 2 < kTiles; ++i) held_[i] = held_[i + 2];
    }
  }
  __device__ void FoldTile(uint32_t kt, const HeldTile<kBf16State>& tile, const uint32_t (&v)[4],
                           float weight, std::byte* to) const {
    StateTile s = {};
    if (!fresh_) s = tile.Numbers();
    const float w[4] = {weight, weight, weight, weight};
    FoldedTile folded(s, w);
    uint32_t k[4];
    LoadTransposed(k, k_ + (lane_ % 8 + lane_ / 8 % 2 * 8) * dk_ + kt * 16 + lane_ / 16 * 8);
    folded.Add(v, k);
    if (to != nullptr) StoreTile<kBf16State>(to, Tile(kt), folded.Tile());
  }

  const DecodeUnitGrid& grid_;
  const uint32_t dk_, dv_;
  bf16 *const k_, *const q_, *const v_;  // [C, dk], [columns, dk], [C, dv]
  float* const z_;  // [Dp] of a normaliser, or [values] of a kernel that prepares its rows
  uint32_t place_ = 0;
  bool fresh_ = false, active_ = false;
  float decay_ = 0.0f;  // cumulative, of row `lane`
  float rate_ = 1.0f, beta_ = 0.0f;
  Four item_;
  // Of gated outputs: D and the norm's weight; the value that D is of, and the gate.
  float skip_[2] = {}, skipped_[2] = {};
  float values_now_[2] = {};
  HeldTile<kBf16State> held_[kTiles];
  const UnpreparedRows* const rows_;  // null: all are prepared
  ConvolvedFour convolved_;           // of the thread's item
  float step_bias_ = 0.0f;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_DECODE_MANY_CUH_
