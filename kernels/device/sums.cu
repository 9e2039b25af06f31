// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Read and fold of a decayed sum, optionally by the delta rule (docs/recurrences.md): what
// sum_recurrence.h does on the CPU, for sums with one read.
//
//   o_a = e^{c_a} q_a S + Σ_{s<=a} (q_a·k_s) e^{c_a - c_s} v_s
//   S'  = e^{c_C} S + Σ_s (e^{c_C - c_s} k_s)ᵀ v_s
//
// A block has some value columns of one unit (a head, or heads that share a state) of one segment;
// a warp has 16 of them and holds its part of the state in registers. Decode is a chunk piece with
// one query, prefill one with up to 16: the same code, the queries in columns of the same products.
// The state is read as bf16 high and low parts, so the read is exact to about 16 bits.
//
// Bytes expected for a token: the state once, the tail's rows, a C-th of the state read and
// written.
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {
namespace {

// Shared memory of a block. Arrays of bf16 are kParts times the size, high parts first.
template <int kColumnTiles, int kParts>
struct Shared {
  static constexpr uint32_t kColumns = kColumnTiles * 8;

  bf16 *k, *q, *v, *p;  // [C, Dp + pad], [columns, Dp + pad], [C, values + pad], [columns, C + pad]
  float* decay;         // [C] or [C, Dp]: cumulative log decays
  float* score;         // [C, C] of a delta rule: k_a·k_s with its decay
  float* read;          // [C, values] of a delta rule: k_a S
  float* beta;          // [C]
  float* z;             // [Dp] of a normaliser, which no delta rule has
  uint32_t dk, dv;      // strides of rows of k, q and of v

  __host__ __device__ static size_t Bytes(uint32_t padded_key, uint32_t values, bool channel,
                                          bool delta, bool normaliser) {
    const size_t dk = padded_key + kPad, dv = values + kPad;
    size_t bytes = sizeof(bf16) * kParts *
                   (kChunk * dk + kColumns * dk + kChunk * dv + kColumns * (kChunk + kPad));
    bytes += sizeof(float) * kChunk * (channel ? padded_key : 1);
    if (delta) bytes += sizeof(float) * (kChunk * kChunk + kChunk * values + kChunk);
    if (normaliser) bytes += sizeof(float) * padded_key;
    return bytes;
  }

  __device__ Shared(std::byte* memory, uint32_t padded_key, uint32_t values, bool channel) {
    dk = padded_key + kPad, dv = values + kPad;
    k = reinterpret_cast<bf16*>(memory);
    q = k + kParts * kChunk * dk;
    v = q + kParts * kColumns * dk;
    p = v + kParts * kChunk * dv;
    decay = reinterpret_cast<float*>(p + kParts * kColumns * (kChunk + kPad));
    score = decay + kChunk * (channel ? padded_key : 1);
    read = score + kChunk * kChunk;
    beta = read + kChunk * values;
    z = score;
  }
};

template <int kColumnTiles, int kParts, bool kBf16State>
class Unit {
 public:
  using Row = std::conditional_t<kParts == 2, float, bf16>;
  using Memory = Shared<kColumnTiles, kParts>;
  static constexpr uint32_t kColumns = Memory::kColumns;

  __device__ Unit(const RecurCall& call, std::byte* memory)
      : c_(call),
        segment_(call.rows.segments[blockIdx.y]),
        values_(blockDim.x / 32 * 16),
        splits_((call.padded_value + values_ - 1) / values_),
        unit_(blockIdx.x / splits_),
        split_(blockIdx.x % splits_),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4),
        tile_(split_ * (values_ / 16) + warp_),
        active_(tile_ * 16 < call.padded_value),
        key_tiles_(call.padded_key / 16),
        channel_(call.decay == Decay::kChannel),
        s_(memory, call.padded_key, values_, channel_) {}

  __device__ void Run() {
    if (segment_.tokens == 0) return AwaitLastKernel();
    const uint32_t start = static_cast<uint32_t>(segment_.position % kChunk);
    uint64_t chunk = segment_.position / kChunk;
    uint32_t base = segment_.base_in, begin = start, done = 0;
    const bool fits = key_tiles_ <= kHeldTiles;
    // Neither the state nor the tail depends on the kernels of this step.
    if (chunk != 0 && fits && active_) Hold(Matrix(base));
    if (chunk != 0 && c_.normaliser) StageNormaliser(NormaliserAt(c_, base, blockIdx.x));
    StageTail(begin, min(begin + segment_.tokens, kChunk));
    AwaitLastKernel();
    while (done < segment_.tokens) {
      const uint32_t end = min(begin + segment_.tokens - done, kChunk);
      if (done != 0) StageTail(0, end);
      fresh_ = chunk == 0;
      base_ = base;
      Piece(begin, end, segment_.first_token + done);
      done += end - begin;
      if (end == kChunk) {
        base = FoldBase();
        ++chunk;
      }
      begin = 0;
      if (done < segment_.tokens) __syncthreads();
    }
  }

 private:
  // --- where things are ------------------------------------------------------------------------

  __device__ std::byte* Matrix(uint32_t slot) const {
    const size_t bytes = size_t{c_.padded_key} * c_.padded_value * (kBf16State ? 2 : 4);
    return c_.slots.bases + slot * c_.slots.base_stride + c_.state_offset + unit_ * bytes;
  }
  // Where the fold behind this piece goes.
  __device__ uint32_t FoldBase() const {
    return BaseAfter(c_.rows, segment_, token_ + end_ - begin_ - 1);
  }
  __device__ uint32_t Tile(uint32_t key_tile) const { return tile_ * key_tiles_ + key_tile; }
  template <typename T>
  __device__ T* Tail(size_t offset) const {
    return reinterpret_cast<T*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset);
  }
  __device__ uint32_t KeyUnit() const { return unit_ / c_.units_per_key; }
  __device__ uint32_t DecayUnit() const { return unit_ / c_.units_per_decay; }
  __device__ uint32_t ValueUnit() const { return unit_ / c_.units_per_value; }
  __device__ Row* KeyRow(uint32_t place) const {
    return Tail<Row>(c_.key_offset) + (size_t{KeyUnit()} * kChunk + place) * c_.padded_key;
  }
  __device__ Row* ValueRow(uint32_t place) const {
    return Tail<Row>(c_.value_offset) + (size_t{ValueUnit()} * kChunk + place) * c_.padded_value;
  }
  __device__ float* DecayRow(uint32_t place) const {
    const size_t width = channel_ ? c_.padded_key : 1;
    const size_t index = channel_ ? DecayUnit() : unit_;
    return Tail<float>(c_.decay_offset) + (index * kChunk + place) * width;
  }
  __device__ const float* Query(uint32_t token, uint32_t head) const {
    const uint32_t index = c_.query_per_head ? unit_ * c_.unit_heads + head : KeyUnit();
    return c_.q + size_t{token} * c_.q_stride + size_t{index} * c_.padded_key;
  }
  __device__ const float* Key(uint32_t token) const {
    return c_.k + size_t{token} * c_.k_stride + size_t{KeyUnit()} * c_.padded_key;
  }
  __device__ const float* Value(uint32_t token) const {
    return c_.v + size_t{token} * c_.v_stride + size_t{ValueUnit()} * c_.v_head_stride;
  }
  // Whether this block writes what all blocks of a unit, or of a key row, share.
  __device__ bool WritesDecay() const {
    return split_ == 0 && c_.rows.single && (!channel_ || unit_ % c_.units_per_decay == 0);
  }
  __device__ bool WritesValues() const {
    return c_.units_per_value == 1 ? c_.rows.single || end_ != kChunk
                                   : c_.rows.single && unit_ % c_.units_per_value == 0;
  }
  __device__ bool WritesKey() const {
    return split_ == 0 && unit_ % c_.units_per_key == 0 && c_.rows.single;
  }

  // --- a piece of a chunk ----------------------------------------------------------------------

  __device__ void Piece(uint32_t begin, uint32_t end, uint32_t token) {
    begin_ = begin, end_ = end, token_ = token;
    const uint32_t per_token = c_.delta ? 2 : c_.unit_heads;
    const uint32_t columns = (end - begin) * per_token;
    StageDecays();
    StageKeys();
    StageValues();
    if (channel_) __syncthreads();  // queries take the decays
    for (uint32_t first = 0; first < columns; first += kColumns) {
      first_column_ = first;
      columns_ = min(columns - first, kColumns);
      StageQueries(per_token);
      WaitForCopies<0>();
      __syncthreads();
      ScoreColumns(per_token);
      __syncthreads();
      if (active_) ReadColumns(per_token);
      if (first + kColumns < columns) __syncthreads();
    }
    if (WritesValues()) {
      __syncthreads();  // of the delta rule, rows that other warps solved
      KeepValues();
    }
    if (end == kChunk) {
      __syncthreads();
      Fold();
    }
  }

  // --- staging ---------------------------------------------------------------------------------

  // Rows that the tail has, in the background, and zeros in the rows from `end` on: their scores
  // are masked, but zero times anything is not zero.
  __device__ void StageTail(uint32_t count, uint32_t end) {
    StageRows<kParts>(s_.k, s_.dk, c_.padded_key, count, end,
                      [&](uint32_t a) { return KeyRow(a); });
    const uint32_t first = split_ * values_;
    const uint32_t width = min(values_, c_.padded_value - first);
    StageRows<kParts>(s_.v, s_.dv, width, count, end,
                      [&](uint32_t a) { return ValueRow(a) + first; });
    CommitCopies();
    if (c_.decay == Decay::kNone || c_.constant != nullptr) return;
    const uint32_t channels = channel_ ? c_.padded_key : 1;
    for (uint32_t i = threadIdx.x; i < count * channels; i += blockDim.x) {
      s_.decay[i] = DecayRow(i / channels)[i % channels];
    }
  }

  __device__ void StageNormaliser(const float* z) {
    for (uint32_t d = threadIdx.x; d < c_.padded_key; d += blockDim.x) s_.z[d] = z[d];
  }

  __device__ float LogDecay(uint32_t token) const {
    const float g = c_.g[size_t{token} * c_.g_stride + unit_];
    return c_.rate == nullptr ? g : c_.rate[unit_] * g;
  }

  // Cumulative from the border. The rows of the tail are staged by the first threads, which go on
  // here.
  __device__ void StageDecays() {
    if (channel_) {
      if (begin_ != 0) __syncthreads();
      for (uint32_t d = threadIdx.x; d < c_.padded_key; d += blockDim.x) StageChannel(d);
      return;
    }
    if (c_.decay == Decay::kNone || c_.constant != nullptr) {
      if (threadIdx.x < kChunk) {
        s_.decay[threadIdx.x] =
            c_.constant == nullptr ? 0.0f : c_.constant[unit_ * kChunk + threadIdx.x];
      }
      return;
    }
    if (warp_ != 0) return;
    __syncwarp();
    if (lane_ != 0) return;
    float sum = begin_ == 0 ? 0.0f : s_.decay[begin_ - 1];
    for (uint32_t a = begin_; a < end_; ++a) {
      sum += LogDecay(token_ + a - begin_);
      s_.decay[a] = sum;
      if (WritesDecay()) *DecayRow(a) = sum;
    }
  }

  __device__ void StageChannel(uint32_t d) {
    float sum = begin_ == 0 ? 0.0f : s_.decay[(begin_ - 1) * c_.padded_key + d];
    for (uint32_t a = begin_; a < end_; ++a) {
      const size_t token = token_ + a - begin_;
      sum += c_.g[token * c_.g_stride + size_t{DecayUnit()} * c_.padded_key + d];
      s_.decay[a * c_.padded_key + d] = sum;
      if (WritesDecay()) DecayRow(a)[d] = sum;
    }
  }

  __device__ void StageKeys() {
    const uint32_t fours = c_.padded_key / 4;
    for (uint32_t i = threadIdx.x; i < (end_ - begin_) * fours; i += blockDim.x) {
      const uint32_t a = begin_ + i / fours, d = i % fours * 4;
      const float4 x = *reinterpret_cast<const float4*>(Key(token_ + a - begin_) + d);
      StoreFour<kParts>(s_.k + a * s_.dk + d, kChunk * s_.dk, x);
      if (WritesKey()) StoreFour(KeyRow(a) + d, x);
    }
  }

  // Of the delta rule, values are what Solve makes of them.
  __device__ void StageValues() {
    if (c_.delta) {
      if (threadIdx.x < end_ - begin_) {
        s_.beta[begin_ + threadIdx.x] =
            c_.beta[size_t{token_ + threadIdx.x} * c_.beta_stride + unit_];
      }
      return;
    }
    const uint32_t first = split_ * values_;
    for (uint32_t i = threadIdx.x; i < (end_ - begin_) * values_; i += blockDim.x) {
      const uint32_t a = begin_ + i / values_, e = i % values_;
      if (first + e >= c_.padded_value) continue;
      const uint32_t token = token_ + a - begin_;
      float x = first + e < c_.value_dim ? Value(token)[first + e] : 0.0f;
      if (c_.times_step) x *= c_.g[size_t{token} * c_.g_stride + unit_];
      StoreParts<kParts>(s_.v + a * s_.dv + e, kChunk * s_.dv, x);
    }
  }

  // Column = (token, head); of the delta rule (token, key or query).
  __device__ void StageQueries(uint32_t per_token) {
    const uint32_t fours = c_.padded_key / 4;
    for (uint32_t i = threadIdx.x; i < columns_ * fours; i += blockDim.x) {
      const uint32_t column = i / fours, d = i % fours * 4;
      const uint32_t a = begin_ + (first_column_ + column) / per_token;
      const uint32_t head = (first_column_ + column) % per_token;
      const uint32_t token = token_ + a - begin_;
      const float* from = c_.delta && head == 0 ? Key(token) : Query(token, c_.delta ? 0 : head);
      float4 x = *reinterpret_cast<const float4*>(from + d);
      if (channel_) {
        const float* decay = s_.decay + a * c_.padded_key + d;
        x.x *= expf(decay[0]), x.y *= expf(decay[1]);
        x.z *= expf(decay[2]), x.w *= expf(decay[3]);
      }
      StoreFour<kParts>(s_.q + column * s_.dk + d, kColumns * s_.dk, x);
    }
  }

  // --- scores ----------------------------------------------------------------------------------

  __device__ void ScoreColumns(uint32_t per_token) {
    if (channel_) return ScoreByChannel(per_token);
    for (uint32_t tile = warp_; tile * 8 < columns_; tile += blockDim.x / 32) {
      float sum[4] = {};
      for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
        uint32_t a[kParts][4];
        for (int part = 0; part < kParts; ++part) {
          const bf16* row = s_.k + (part * kChunk + g_) * s_.dk + kt * 16 + 2 * t_;
          a[part][0] = Two(row), a[part][1] = Two(row + 8 * s_.dk);
          a[part][2] = Two(row + 8), a[part][3] = Two(row + 8 * s_.dk + 8);
        }
        MultiplyQuery(sum, a, tile, kt);
      }
      for (int i = 0; i < 4; ++i) {
        KeepScore(per_token, tile * 8 + 2 * t_ + i % 2, g_ + i / 2 * 8, sum[i]);
      }
    }
  }

  // The scores of a decay by channel: each is a sum over the channels with a decay of its own.
  __device__ void ScoreByChannel(uint32_t per_token) {
    for (uint32_t pair = warp_; pair < columns_ * kChunk; pair += blockDim.x / 32) {
      const uint32_t column = pair / kChunk, s = pair % kChunk;
      const uint32_t a = begin_ + (first_column_ + column) / per_token;
      float sum = 0.0f;
      if (a < end_ && s <= a) {
        const uint32_t token = token_ + a - begin_;
        const uint32_t head = (first_column_ + column) % per_token;
        const float* q = c_.delta && head == 0 ? Key(token) : Query(token, c_.delta ? 0 : head);
        const float* last = s_.decay + a * c_.padded_key;
        const float* first = s_.decay + s * c_.padded_key;
        for (uint32_t d = lane_; d < c_.padded_key; d += 32) {
          const float k = LoadParts<kParts>(s_.k + s * s_.dk + d, kChunk * s_.dk);
          sum = fmaf(q[d] * k, expf(last[d] - first[d]), sum);
        }
        sum = WarpSum(sum);
      }
      if (lane_ != 0) continue;
      const bool of_key = c_.delta && (first_column_ + column) % 2 == 0;
      if (of_key && a < end_) s_.score[a * kChunk + s] = sum;
      StoreScore(column, s, of_key ? 0.0f : sum);
    }
  }

  // With its decay; zero for rows after the token.
  __device__ void KeepScore(uint32_t per_token, uint32_t column, uint32_t s, float score) {
    const uint32_t a = begin_ + (first_column_ + column) / per_token;
    const bool seen = a < end_ && s <= a;
    float x = 0.0f;
    if (seen) x = score * expf(s_.decay[a] - s_.decay[s]);
    if (c_.delta && (first_column_ + column) % 2 == 0) {
      if (seen) s_.score[a * kChunk + s] = x;
      x = 0.0f;
    }
    StoreScore(column, s, x);
  }

  __device__ void StoreScore(uint32_t column, uint32_t s, float x) {
    StoreParts<kParts>(s_.p + column * (kChunk + kPad) + s, kColumns * (kChunk + kPad), x);
  }

  // --- reads -----------------------------------------------------------------------------------

  // sum += a · the queries of a tile of columns, for 16 keys.
  __device__ void MultiplyQuery(float (&sum)[4], const uint32_t (&a)[kParts][4], uint32_t tile,
                                uint32_t kt) {
    const bool present = tile * 8 + g_ < columns_;
    const bf16* row = s_.q + (tile * 8 + g_) * s_.dk + kt * 16 + 2 * t_;
    const uint32_t b0 = Two(row, present), b1 = Two(row + 8, present);
    MultiplyAdd(sum, a[0], b0, b1);
    if constexpr (kParts == 2) {
      MultiplyAdd(sum, a[1], b0, b1);
      row += kColumns * s_.dk;
      MultiplyAdd(sum, a[0], Two(row, present), Two(row + 8, present));
    }
  }

  __device__ void ReadTile(const StateTile& state, uint32_t kt, float (&sum)[kColumnTiles][4]) {
    uint32_t high[4], low[4];
    Split(state.upper.x, state.upper.y, high[0], low[0]);
    Split(state.lower.x, state.lower.y, high[1], low[1]);
    Split(state.upper.z, state.upper.w, high[2], low[2]);
    Split(state.lower.z, state.lower.w, high[3], low[3]);
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      const bool present = tile * 8 + g_ < columns_;
      const bf16* row = s_.q + (tile * 8 + g_) * s_.dk + kt * 16 + 2 * t_;
      const uint32_t b0 = Two(row, present), b1 = Two(row + 8, present);
      MultiplyAdd(sum[tile], high, b0, b1);
      if constexpr (!kBf16State) MultiplyAdd(sum[tile], low, b0, b1);
      if constexpr (kParts == 2) {
        row += kColumns * s_.dk;
        MultiplyAdd(sum[tile], high, Two(row, present), Two(row + 8, present));
      }
    }
  }

  // The normaliser's reads of the columns 2t and 2t + 1 of each tile.
  __device__ void ReadNormaliser(uint32_t per_token, float (&n)[kColumnTiles][2]) {
    constexpr uint32_t kOnes[4] = {kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes};
    for (uint32_t tile = 0; tile < kColumnTiles; ++tile) {
      float sum[4] = {};
      for (uint32_t kt = 0; kt < (fresh_ ? 0 : key_tiles_); ++kt) {
        uint32_t z[2][4];
        SplitRows(s_.z + kt * 16 + 2 * t_, z[0], z[1]);
        const bool present = tile * 8 + g_ < columns_;
        const bf16* row = s_.q + (tile * 8 + g_) * s_.dk + kt * 16 + 2 * t_;
        const uint32_t b0 = Two(row, present), b1 = Two(row + 8, present);
        MultiplyAdd(sum, z[0], b0, b1);
        MultiplyAdd(sum, z[1], b0, b1);
        if constexpr (kParts == 2) {
          row += kColumns * s_.dk;
          MultiplyAdd(sum, z[0], Two(row, present), Two(row + 8, present));
        }
      }
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t a = begin_ + (first_column_ + tile * 8 + 2 * t_ + i) / per_token;
        if (a < end_) sum[i] *= expf(s_.decay[a]);
      }
      for (int part = 0; part < kParts; ++part) {
        const bf16* row = s_.p + (part * kColumns + tile * 8 + g_) * (kChunk + kPad) + 2 * t_;
        const bool present = tile * 8 + g_ < columns_;
        MultiplyAdd(sum, kOnes, Two(row, present), Two(row + 8, present));
      }
      n[tile][0] = sum[0], n[tile][1] = sum[1];
    }
  }

  __device__ void ReadColumns(uint32_t per_token) {
    float sum[kColumnTiles][4] = {};
    float normaliser[kColumnTiles][2];
    if (c_.normaliser) ReadNormaliser(per_token, normaliser);
    if (!fresh_) {
      if (key_tiles_ <= kHeldTiles) {
#pragma unroll
        for (uint32_t kt = 0; kt < kHeldTiles; ++kt) {
          if (kt < key_tiles_) ReadTile(held_[kt], kt, sum);
        }
      } else {
        const std::byte* matrix = Matrix(base_);
#pragma unroll 8
        for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
          ReadTile(LoadTile<kBf16State>(matrix, Tile(kt)), kt, sum);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t a = begin_ + (first_column_ + tile * 8 + 2 * t_ + i % 2) / per_token;
        if (!channel_ && a < end_) sum[tile][i] *= expf(s_.decay[a]);
      }
    }
    if (c_.delta) Solve(sum);
    uint32_t v[kParts][4];
    LoadValues(v);
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      const bool present = tile * 8 + g_ < columns_;
      const bf16* row = s_.p + (tile * 8 + g_) * (kChunk + kPad) + 2 * t_;
      const uint32_t b0 = Two(row, present), b1 = Two(row + 8, present);
      MultiplyAdd(sum[tile], v[0], b0, b1);
      if constexpr (kParts == 2) {
        MultiplyAdd(sum[tile], v[1], b0, b1);
        row += kColumns * (kChunk + kPad);
        MultiplyAdd(sum[tile], v[0], Two(row, present), Two(row + 8, present));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (c_.normaliser) sum[tile][i] = Divided(c_, sum[tile][i], normaliser[tile][i % 2]);
        Write(per_token, tile * 8 + 2 * t_ + i % 2, g_ + i / 2 * 8, sum[tile][i]);
      }
    }
  }

  // This warp's 16 value columns of all rows.
  __device__ void LoadValues(uint32_t (&v)[kParts][4]) {
    for (int part = 0; part < kParts; ++part) {
      const uint32_t row = part * kChunk + lane_ % 8 + (lane_ >= 16 ? 8 : 0);
      LoadTransposed(v[part], s_.v + row * s_.dv + warp_ * 16 + (lane_ / 8 % 2) * 8);
    }
  }

  // u_a = β_a (v_a - k_a S̄ - Σ_{s<a} (k_a·k_s) e^{c_a - c_s} u_s), one value column a lane. `sum`
  // holds e^{c_a} k_a S in the even columns.
  __device__ void Solve(const float (&sum)[kColumnTiles][4]) {
    float* read = s_.read + warp_ * 16;
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      const uint32_t a = begin_ + first_column_ / 2 + tile * 4 + t_;
      if (a >= end_) continue;
      read[a * values_ + g_] = sum[tile][0];
      read[a * values_ + g_ + 8] = sum[tile][2];
    }
    __syncwarp();
    const uint32_t e = warp_ * 16 + lane_, column = split_ * values_ + e;
    const uint32_t last = min(end_, begin_ + (first_column_ + kColumns) / 2);
    if (lane_ < 16) {
      for (uint32_t a = begin_ + first_column_ / 2; a < last; ++a) {
        float u = column < c_.value_dim ? Value(token_ + a - begin_)[column] : 0.0f;
        u -= s_.read[a * values_ + e];
        for (uint32_t s = 0; s < a; ++s) {
          const float earlier = LoadParts<kParts>(s_.v + s * s_.dv + e, kChunk * s_.dv);
          u = fmaf(-s_.score[a * kChunk + s], earlier, u);
        }
        StoreParts<kParts>(s_.v + a * s_.dv + e, kChunk * s_.dv, s_.beta[a] * u);
      }
    }
    __syncwarp();
  }

  __device__ void Write(uint32_t per_token, uint32_t column, uint32_t e, float x) {
    const uint32_t index = first_column_ + column;
    const uint32_t a = begin_ + index / per_token, place = tile_ * 16 + e;
    if (a >= end_ || (c_.delta && index % 2 == 0)) return;
    const uint32_t token = token_ + a - begin_;
    const uint32_t head = c_.delta ? unit_ : unit_ * c_.unit_heads + index % per_token;
    if (c_.skip != nullptr && place < c_.value_dim) {
      x = fmaf(c_.skip[unit_ * c_.value_dim + place], Value(token)[place], x);
    }
    c_.out.data[size_t{token} * c_.out.stride + size_t{head} * c_.padded_value + place] = x;
  }

  __device__ void KeepValues() {
    const uint32_t first = split_ * values_, count = (end_ - begin_) * values_;
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      const uint32_t a = begin_ + i / values_, e = i % values_;
      if (first + e >= c_.padded_value) continue;
      Store(ValueRow(a) + first + e, LoadParts<kParts>(s_.v + a * s_.dv + e, kChunk * s_.dv));
    }
  }

  // --- fold ------------------------------------------------------------------------------------

  __device__ void Hold(const std::byte* matrix) {
#pragma unroll
    for (uint32_t kt = 0; kt < kHeldTiles; ++kt) {
      if (kt < key_tiles_) held_[kt] = LoadTile<kBf16State>(matrix, Tile(kt));
    }
  }

  __device__ float DecayAt(uint32_t a, uint32_t d) const {
    return channel_ ? s_.decay[a * c_.padded_key + d] : s_.decay[a];
  }

  __device__ void Fold() {
    // k_s e^{c_C - c_s} in the place of k_s.
    for (uint32_t i = threadIdx.x; i < kChunk * c_.padded_key; i += blockDim.x) {
      const uint32_t s = i / c_.padded_key, d = i % c_.padded_key;
      bf16* k = s_.k + s * s_.dk + d;
      const float weight = expf(DecayAt(kChunk - 1, d) - DecayAt(s, d));
      StoreParts<kParts>(k, kChunk * s_.dk, LoadParts<kParts>(k, kChunk * s_.dk) * weight);
    }
    __syncthreads();
    if (!channel_) fold_weight_ = expf(s_.decay[kChunk - 1]);
    if (c_.normaliser) {
      FoldNormaliser<kParts>(c_, s_.k, s_.dk, fold_weight_, fresh_, s_.z,
                             NormaliserAt(c_, FoldBase(), blockIdx.x));
    }
    if (!active_) return;
    uint32_t v[kParts][4];
    LoadValues(v);
    std::byte* to = Matrix(FoldBase());
    if (key_tiles_ <= kHeldTiles) {
#pragma unroll
      for (uint32_t kt = 0; kt < kHeldTiles; ++kt) {
        if (kt >= key_tiles_) continue;
        if (fresh_) held_[kt] = {};
        FoldTile(v, kt, held_[kt]);
        StoreTile<kBf16State>(to, Tile(kt), held_[kt]);
      }
      return;
    }
    const std::byte* from = Matrix(base_);
    for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
      StateTile state = {};
      if (!fresh_) state = LoadTile<kBf16State>(from, Tile(kt));
      FoldTile(v, kt, state);
      StoreTile<kBf16State>(to, Tile(kt), state);
    }
  }

  __device__ void FoldTile(const uint32_t (&v)[kParts][4], uint32_t kt, StateTile& s) {
    const uint32_t d = kt * 16 + 2 * t_;
    float w[4] = {fold_weight_, fold_weight_, fold_weight_, fold_weight_};
    if (channel_) {
      w[0] = expf(DecayAt(kChunk - 1, d)), w[1] = expf(DecayAt(kChunk - 1, d + 1));
      w[2] = expf(DecayAt(kChunk - 1, d + 8)), w[3] = expf(DecayAt(kChunk - 1, d + 9));
    }
    FoldedTile folded(s, w);
    uint32_t k[kParts][4];
    for (int part = 0; part < kParts; ++part) {
      const uint32_t row = part * kChunk + lane_ % 8 + lane_ / 8 % 2 * 8;
      LoadTransposed(k[part], s_.k + row * s_.dk + kt * 16 + lane_ / 16 * 8);
    }
    folded.Add(v[0], k[0]);
    if constexpr (kParts == 2) {
      folded.Add(v[1], k[0]);
      folded.Add(v[0], k[1]);
    }
    const auto stored = [](float x) { return Stored<kBf16State>(x); };
    s.upper = {stored(folded.near[0]), stored(folded.near[1]), stored(folded.far[0]),
               stored(folded.far[1])};
    s.lower = {stored(folded.near[2]), stored(folded.near[3]), stored(folded.far[2]),
               stored(folded.far[3])};
  }

  const RecurCall& c_;
  const DeviceSegment segment_;
  const uint32_t values_, splits_, unit_, split_, warp_, lane_, g_, t_, tile_;
  const bool active_;
  const uint32_t key_tiles_;
  const bool channel_;
  const Memory s_;
  uint32_t begin_ = 0, end_ = 0, token_ = 0, first_column_ = 0, columns_ = 0, base_ = 0;
  float fold_weight_ = 1.0f;  // of scalar decays
  bool fresh_ = false;
  StateTile held_[kHeldTiles];
};

template <int kColumnTiles, int kParts, bool kBf16State>
__global__ void __launch_bounds__(kMostWarps * 32, 3)
    RecurKernel(const __grid_constant__ RecurCall call) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  Unit<kColumnTiles, kParts, kBf16State>(call, memory).Run();
}

template <int kColumnTiles, int kParts, bool kBf16State>
void Launch(const RecurCall& call, const LaunchContext& context) {
  const auto kernel = RecurKernel<kColumnTiles, kParts, kBf16State>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
  context.Check(prepared);
  const uint32_t warps = WarpsOf(call, context.processors), values = warps * 16;
  const uint32_t splits = (call.padded_value + values - 1) / values;
  const size_t shared = Shared<kColumnTiles, kParts>::Bytes(
      call.padded_key, values, call.decay == Decay::kChannel, call.delta, call.normaliser);
  context.Run(kernel, dim3(call.units * splits, call.rows.segment_count), warps * 32, shared, call);
}

template <int kColumnTiles, int kParts>
void LaunchForState(const RecurCall& call, const LaunchContext& context) {
  if (call.bf16_state) return Launch<kColumnTiles, kParts, true>(call, context);
  Launch<kColumnTiles, kParts, false>(call, context);
}

template <int kParts>
void LaunchForColumns(const RecurCall& call, const LaunchContext& context) {
  const uint32_t per_token = call.delta ? 2 : call.unit_heads;
  if (call.rows.single && per_token <= 8) return LaunchForState<1, kParts>(call, context);
  if (per_token == 1) return LaunchForState<2, kParts>(call, context);
  LaunchForState<4, kParts>(call, context);
}

void LaunchPart(const RecurCall& call, const NextWeights& next, bool fp32_rows,
                const LaunchContext& context) {
  const auto gate_behind = [&] {
    RecurCall stored = call;
    stored.gated = {};
    LaunchPart(stored, next, fp32_rows, context);
    LaunchGateOutputs(call, context);
  };
  if (call.gated.gate != nullptr && !CanGate(call)) return gate_behind();
  if (!fp32_rows && LaunchStream(call, next, context)) return;
  if (!fp32_rows && LaunchDecode(call, context)) return;
  if (call.gated.gate_factors != nullptr) return gate_behind();
  if (fp32_rows) {
    LaunchForColumns<2>(call, context);
  } else {
    LaunchForColumns<1>(call, context);
  }
  if (!call.rows.single) LaunchKeepRows(call, fp32_rows, context);
  if (call.gated.gate != nullptr) LaunchGateOutputs(call, context);
}

}  // namespace

void LaunchRecur(const RecurCall& call, const NextWeights& next, bool fp32_rows,
                 const LaunchContext& context) {
  ByParts(call, [&](const RecurCall& part) { LaunchPart(part, next, fp32_rows, context); });
}

}  // namespace rivulet::cuda
