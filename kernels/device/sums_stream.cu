// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each of many segments: what sums_decode.cu does, at the speed at which the states
// can be read. One block for each processor stays for the whole launch. One of its warps brings the
// states, the tails' rows and the tokens' numbers of one piece of work after the other into a ring
// of stages in shared memory, by bulk copies, several stages ahead; groups of the other warps take
// a stage each. The order of every sum is that of sums.cu, so the bits are the same.
//
// A piece of work is some value columns of one unit of one segment. A group has a warp for each 16
// of them.
//
// Bytes expected: the state once, the tail's rows, and, for a row that ends a chunk, the state once
// more.
#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kConsumers = 20;  // warps at most
constexpr uint32_t kProducers = 2;   // warps
constexpr uint32_t kThreads = (kConsumers + kProducers) * 32;
constexpr uint32_t kMostStages = 8;
constexpr uint32_t kMostShared = 224 << 10;
constexpr uint32_t kMostColumns = 8;  // queries, and the key of a delta rule

// What the producer says of a stage.
struct StageHeader {
  DeviceSegment segment;
  uint32_t unit, split;
  uint32_t last;  // not 0: there is no more work, and the rest of the stage is undefined
};

// Offsets in a stage, in bytes. fp32 numbers are as the step's kernels wrote them.
struct StageLayout {
  uint32_t values;            // value columns of a piece of work
  uint32_t columns;           // queries, or key and query of a delta rule
  uint32_t k, q, v;           // bf16: [C, Dp + pad], [columns, Dp + pad], [C, values + pad]
  uint32_t token_k, token_q;  // fp32: [Dp], [columns, Dp]
  uint32_t token_v, skip;     // fp32: [values]
  uint32_t step, rate, beta;  // four neighbours each, of which one is meant
  uint32_t decay;             // fp32: [C]
  uint32_t header;
  uint32_t state;  // [values, Dp] in tiles
  uint32_t bytes;
  // A stage is always taken by the same group and filled by the same producer, so that neither is
  // ever a phase of its barriers behind: the groups divide the stages.
  uint32_t stages, groups;
};

StageLayout LayoutFor(const RecurCall& call, uint32_t values) {
  StageLayout layout = {};
  const uint32_t dk = call.padded_key + kPad, dv = values + kPad;
  layout.values = values;
  layout.columns = call.delta ? 2 : call.unit_heads;
  const uint32_t queries = call.delta ? 1 : call.unit_heads;
  uint32_t next = 0;
  const auto take = [&next](uint32_t bytes) {
    const uint32_t at = next;
    next += (bytes + 15) / 16 * 16;
    return at;
  };
  layout.state = take(values * call.padded_key * (call.bf16_state ? 2 : 4));
  layout.k = take(kChunk * dk * 2);
  layout.v = take(kChunk * dv * 2);
  layout.q = take(layout.columns * dk * 2);
  layout.token_k = take(call.padded_key * 4);
  layout.token_q = take(queries * call.padded_key * 4);
  layout.token_v = take(values * 4);
  layout.skip = take(values * 4);
  layout.step = take(16);
  layout.rate = take(16);
  layout.beta = take(16);
  layout.decay = take(kChunk * 4);
  layout.header = take(sizeof(StageHeader));
  layout.bytes = (next + 127) / 128 * 128;
  layout.stages = min(kMostStages, (kMostShared - 256) / layout.bytes);
  const uint32_t most = kConsumers / (values / 16);
  if (layout.stages <= most) {
    layout.groups = layout.stages;
  } else {
    layout.groups = layout.stages == kMostStages ? kMostStages / 2 : most;
    layout.stages = layout.stages / layout.groups * layout.groups;
  }
  return layout;
}

// The widest pieces of which three fit.
StageLayout LayoutFor(const RecurCall& call) {
  uint32_t values = 64;
  while (values > 16 && values / 2 >= call.padded_value) values /= 2;
  StageLayout layout = LayoutFor(call, values);
  while (layout.stages < 3 && values > 16) layout = LayoutFor(call, values /= 2);
  return layout;
}

struct Barriers {
  uint64_t full[kMostStages], empty[kMostStages];
};

// What both sides know of a piece of work.
// kKey: Dp, or 0 for any.
template <bool kBf16State, uint32_t kKey>
class Work {
 public:
  __device__ Work(const RecurCall& call, const StageLayout& layout, std::byte* stage)
      : c_(call), l_(layout), stage_(stage) {}

  __device__ StageHeader& header() const {
    return *reinterpret_cast<StageHeader*>(stage_ + l_.header);
  }

 protected:
  template <typename T>
  __device__ T* At(uint32_t offset) const {
    return reinterpret_cast<T*>(stage_ + offset);
  }
  __device__ void Take(const DeviceSegment& segment, uint32_t unit, uint32_t split) {
    segment_ = segment;
    unit_ = unit;
    first_ = split * l_.values;
    split_ = split;
    place_ = static_cast<uint32_t>(segment.position % kChunk);
    fresh_ = segment.position < kChunk;
    width_ = min(l_.values, c_.padded_value - first_);
  }
  __device__ std::byte* Matrix(uint32_t slot) const {
    const size_t bytes = size_t{key()} * c_.padded_value * (kBf16State ? 2 : 4);
    return c_.slots.bases + slot * c_.slots.base_stride + c_.state_offset + unit_ * bytes +
           size_t{first_} * c_.padded_key * (kBf16State ? 2 : 4);
  }
  __device__ std::byte* Tail(size_t offset) const {
    return c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset;
  }
  __device__ bf16* KeyRow(uint32_t place) const {
    return reinterpret_cast<bf16*>(Tail(c_.key_offset)) +
           (size_t{unit_ / c_.units_per_key} * kChunk + place) * key();
  }
  __device__ bf16* ValueRow(uint32_t place) const {
    return reinterpret_cast<bf16*>(Tail(c_.value_offset)) +
           (size_t{unit_ / c_.units_per_value} * kChunk + place) * c_.padded_value + first_;
  }
  __device__ float* DecayRow() const {
    return reinterpret_cast<float*>(Tail(c_.decay_offset)) + size_t{unit_} * kChunk;
  }
  __device__ uint32_t key() const { return kKey != 0 ? kKey : c_.padded_key; }
  __device__ bool decays() const { return c_.decay != Decay::kNone && c_.constant == nullptr; }
  __device__ size_t Token() const { return segment_.first_token; }

  const RecurCall& c_;
  const StageLayout& l_;
  std::byte* const stage_;
  DeviceSegment segment_;
  uint32_t unit_, split_, first_, width_, place_;
  bool fresh_;
};

// --- producers -----------------------------------------------------------------------------------

// A warp. The state comes by one bulk copy; the rest is small and comes by the copies of its lanes.
template <bool kBf16State, uint32_t kKey>
class Producer : public Work<kBf16State, kKey> {
  using Base = Work<kBf16State, kKey>;

 public:
  __device__ Producer(const RecurCall& call, const StageLayout& layout, std::byte* stage,
                      uint64_t* full)
      : Base(call, layout, stage), full_(full), lane_(threadIdx.x % 32) {}

  // What no kernel of this step writes.
  __device__ void CopyState(const DeviceSegment& segment, uint32_t unit, uint32_t split) {
    Base::Take(segment, unit, split);
    if (lane_ == 0) Announce();
    if (segment.tokens == 0) return;
    const RecurCall& c = this->c_;
    CopyRows(this->l_.k, this->key() + kPad, this->key(), this->KeyRow(0), this->key());
    CopyRows(this->l_.v, this->l_.values + kPad, this->width_, this->ValueRow(0), c.padded_value);
    if (c.decay != Decay::kNone) {
      Copy(this->l_.decay, c.constant == nullptr ? this->DecayRow() : c.constant + unit * kChunk,
           kChunk, 0);
    }
    if (c.rate != nullptr) CopyFour(this->l_.rate, c.rate, 4);
    if (c.skip != nullptr) {
      Copy(this->l_.skip, c.skip + size_t{unit} * c.value_dim + this->first_, this->width_, 5);
    }
  }

  // The token's numbers; REQUIRES: CopyState was called, for this stage last.
  __device__ void CopyToken() {
    const RecurCall& c = this->c_;
    const StageLayout& l = this->l_;
    if (this->segment_.tokens != 0) {
      const uint32_t key = this->unit_ / c.units_per_key;
      const uint32_t queries = c.delta ? 1 : c.unit_heads;
      const uint32_t query = c.query_per_head ? this->unit_ * c.unit_heads : key;
      const uint32_t value = this->unit_ / c.units_per_value;
      const size_t token = this->Token();
      Copy(l.token_k, c.k + token * c.k_stride + size_t{key} * this->key(), this->key(), 0);
      Copy(l.token_q, c.q + token * c.q_stride + size_t{query} * this->key(), queries * this->key(),
           0);
      Copy(l.token_v, c.v + token * c.v_stride + size_t{value} * c.v_head_stride + this->first_,
           this->width_, 0);
      if (this->decays()) CopyFour(l.step, c.g + token * c.g_stride, 16);
      if (c.delta) CopyFour(l.beta, c.beta + token * c.beta_stride, 17);
    }
    ArriveAfterCopies(full_);
  }

  // There is no more work.
  __device__ void End() {
    if (lane_ == 0) {
      Base::header().last = 1;
      Arrive(full_);
    }
    __syncwarp();
    Arrive(full_);
  }

  // Goes back to the work of a stage that CopyState described.
  __device__ void Resume() {
    const StageHeader header = Base::header();
    Base::Take(header.segment, header.unit, header.split);
  }

 private:
  // The header, and the state.
  __device__ void Announce() {
    Base::header() = {this->segment_, this->unit_, this->split_, 0};
    const bool reads = this->segment_.tokens != 0 && !this->fresh_;
    const uint32_t bytes = this->width_ * this->key() * (kBf16State ? 2 : 4);
    ArriveExpecting(full_, reads ? bytes : 0);
    if (!reads) return;
    BulkCopy(this->stage_ + this->l_.state, this->Matrix(this->segment_.base_in), bytes, full_);
  }
  // `count` numbers, by lanes from `first_lane` on and around.
  __device__ void Copy(uint32_t offset, const float* numbers, uint32_t count, uint32_t first_lane) {
    auto* const to = this->template At<float>(offset);
    for (uint32_t i = (lane_ - first_lane) % 32; i < count / 4; i += 32) {
      CopyAsync(to + i * 4, numbers + i * 4);
    }
  }
  // The unit's number with its neighbours, by one lane.
  __device__ void CopyFour(uint32_t offset, const float* numbers, uint32_t lane) {
    if (lane_ == lane) CopyAsync(this->stage_ + offset, numbers + this->unit_ / 4 * 4);
  }
  // The rows before the token's, `width` a multiple of 16. As many lanes as a row has pieces take
  // one each, and the others the next rows.
  __device__ void CopyRows(uint32_t offset, uint32_t stride, uint32_t width, const bf16* rows,
                           uint32_t row_stride) {
    auto* const to = this->template At<bf16>(offset);
    const uint32_t pieces = width / 8;
    if (pieces <= 32 && (pieces & (pieces - 1)) == 0) {
      const uint32_t column = lane_ % pieces * 8, step = 32 / pieces;
      for (uint32_t s = lane_ / pieces; s < this->place_; s += step) {
        CopyAsync(to + s * stride + column, rows + s * row_stride + column);
      }
      return;
    }
    for (uint32_t s = 0; s < this->place_; ++s) {
      for (uint32_t i = lane_; i < pieces; i += 32) {
        CopyAsync(to + s * stride + i * 8, rows + s * row_stride + i * 8);
      }
    }
  }

  uint64_t* const full_;
  const uint32_t lane_;
};

// --- consumers -----------------------------------------------------------------------------------

template <bool kBf16State, uint32_t kKey>
class Consumer : public Work<kBf16State, kKey> {
  using Base = Work<kBf16State, kKey>;

 public:
  // `warp` of the `warps` of a group, which has a barrier of its own.
  __device__ Consumer(const RecurCall& call, const StageLayout& layout, std::byte* stage,
                      uint32_t warp, uint32_t warps, uint32_t barrier)
      : Base(call, layout, stage),
        warp_(warp),
        threads_(warps * 32),
        thread_(warp * 32 + threadIdx.x % 32),
        barrier_(barrier),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4),
        key_tiles_(this->key() / 16),
        dk_(this->key() + kPad),
        dv_(layout.values + kPad),
        k_(Base::template At<bf16>(layout.k)),
        q_(Base::template At<bf16>(layout.q)),
        v_(Base::template At<bf16>(layout.v)) {}

  __device__ void Run() {
    const StageHeader& header = Base::header();
    Base::Take(header.segment, header.unit, header.split);
    active_ = warp_ * 16 < this->width_;
    TakeDecays();
    TakeToken();
    Sync();
    if (active_) Read();
    if (this->place_ + 1 == kChunk) Fold();
  }

 private:
  __device__ void Sync() const { threads_ == 32 ? __syncwarp() : SyncWarps(barrier_, threads_); }
  __device__ float NumberOf(uint32_t offset) const {
    return this->template At<float>(offset)[this->unit_ % 4];
  }
  __device__ uint32_t Column() const { return warp_ * 16; }
  __device__ HeldTile<kBf16State> Tile(uint32_t kt) const {
    HeldTile<kBf16State> tile;
    tile.Load(this->stage_ + this->l_.state, warp_ * key_tiles_ + kt);
    return tile;
  }

  // --- the token's row ---------------------------------------------------------------------------

  __device__ void TakeDecays() {
    decay_ = 0.0f;
    const uint32_t place = this->place_;
    const float* rows = this->template At<float>(this->l_.decay);
    if (this->c_.constant != nullptr && lane_ < kChunk) decay_ = rows[lane_];
    if (!this->decays()) return;
    if (lane_ < place) decay_ = rows[lane_];
    const float step = NumberOf(this->l_.step);
    const float g = this->c_.rate == nullptr ? step : NumberOf(this->l_.rate) * step;
    float sum = place == 0 ? 0.0f : rows[place - 1];
    sum += g;
    if (lane_ != place) return;
    decay_ = sum;
    if (this->split_ == 0 && warp_ == 0) this->DecayRow()[place] = sum;
  }

  __device__ void TakeToken() {
    const uint32_t fours = this->key() / 4, place = this->place_;
    const uint32_t columns = this->l_.columns;
    const bool keeps_key = this->split_ == 0 && this->unit_ % this->c_.units_per_key == 0;
    const auto* key = this->template At<float4>(this->l_.token_k);
    const auto* query = this->template At<float4>(this->l_.token_q);
    for (uint32_t i = thread_; i < fours * (1 + columns); i += threads_) {
      const uint32_t column = i / fours, d = i % fours;
      if (column == 0) {
        const float4 x = key[d];
        StoreRow(k_ + place * dk_ + d * 4, x);
        if (keeps_key) StoreRow(this->KeyRow(place) + d * 4, x);
        if (this->c_.delta) StoreRow(q_ + d * 4, x);
      } else if (!this->c_.delta || column == 1) {
        const uint32_t to = this->c_.delta ? 1 : column - 1;
        StoreRow(q_ + to * dk_ + d * 4, query[(this->c_.delta ? 0 : column - 1) * fours + d]);
      }
    }
    TakeValues();
  }

  // The token's, and zeros in the rows after it: their scores are zero, but zero times anything is
  // not zero. Rows of a delta rule are what Solve makes of them.
  __device__ void TakeValues() {
    const uint32_t fours = this->l_.values / 4, place = this->place_;
    const float step = this->c_.times_step ? NumberOf(this->l_.step) : 1.0f;
    const bool keeps = this->unit_ % this->c_.units_per_value == 0;
    const auto* value = this->template At<float4>(this->l_.token_v);
    for (uint32_t i = thread_; i < fours * (kChunk - place); i += threads_) {
      const uint32_t row = place + i / fours, e = i % fours * 4;
      float4 x = {0, 0, 0, 0};
      const bool token = row == place && e < this->width_;
      if (this->c_.delta && row == place) continue;
      if (token) x = value[e / 4];
      if (token && this->c_.times_step) x.x *= step, x.y *= step, x.z *= step, x.w *= step;
      StoreRow(v_ + row * dv_ + e, x);
      if (token && keeps) StoreRow(this->ValueRow(place) + e, x);
    }
  }

  // --- read --------------------------------------------------------------------------------------

  __device__ float DecayAt(uint32_t place) const { return __shfl_sync(0xffffffffu, decay_, place); }

  __device__ void Read() {
    float score[4] = {}, sum[4] = {};
    const bool present = g_ < this->l_.columns;
    const uint32_t place = this->place_;
#pragma unroll 4
    for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
      const bf16* query = q_ + g_ * dk_ + kt * 16 + 2 * t_;
      const uint32_t b0 = Two(query, present), b1 = Two(query + 8, present);
      const bf16* key = k_ + g_ * dk_ + kt * 16 + 2 * t_;
      MultiplyAdd(score, {Two(key), Two(key + 8 * dk_), Two(key + 8), Two(key + 8 * dk_ + 8)}, b0,
                  b1);
      if (!this->fresh_) Tile(kt).Multiply(sum, b0, b1);
    }
    const float decay = DecayAt(place), weight = expf(decay);
    const float near = expf(decay - DecayAt(g_)), far = expf(decay - DecayAt(g_ + 8));
    const bool near_seen = g_ <= place, far_seen = g_ + 8 <= place;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] *= weight;
      sum[i + 2] *= weight;
      score[i] = near_seen ? score[i] * near : 0.0f;
      score[i + 2] = far_seen ? score[i + 2] * far : 0.0f;
    }
    if (this->c_.delta) Solve(score, sum);
    uint32_t v[4];
    LoadValues(v);
    const uint2 p = Transposed(score);
    MultiplyAdd(sum, v, p.x, p.y);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) Write(2 * t_ + i % 2, i / 2, sum[i]);
  }

  __device__ void LoadValues(uint32_t (&v)[4]) const {
    LoadTransposed(v,
                   v_ + (lane_ % 8 + (lane_ >= 16 ? 8 : 0)) * dv_ + Column() + lane_ / 8 % 2 * 8);
  }

  // The scores [row s, column] as the right operand [s, column] of a product: each lane needs rows
  // 2t, 2t + 1, 2t + 8 and 2t + 9 of column g.
  __device__ uint2 Transposed(const float (&score)[4]) const {
    float x[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t from = (2 * t_ + i % 2) * 4 + g_ / 2;
      const float even = __shfl_sync(0xffffffffu, score[i / 2 * 2], from);
      const float odd = __shfl_sync(0xffffffffu, score[i / 2 * 2 + 1], from);
      x[i] = g_ % 2 == 0 ? even : odd;
    }
    if (g_ >= this->l_.columns || (this->c_.delta && g_ == 0)) return {0, 0};
    return {PackRounded(x[0], x[1]), PackRounded(x[2], x[3])};
  }

  // u = β (v - k S̄ - Σ_{s<place} (k·k_s) e^{c - c_s} u_s). Lanes of column 0 have k S̄ of value
  // columns g and g + 8.
  __device__ void Solve(const float (&score)[4], const float (&sum)[4]) {
    float u[2] = {};
    const uint32_t place = this->place_;
    bf16* column = v_ + Column() + g_;
    const float* value = this->template At<float>(this->l_.token_v);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      u[half] = value[Column() + g_ + half * 8];
      u[half] -= sum[half * 2];
    }
    for (uint32_t s = 0; s < place; ++s) {
      const float near = __shfl_sync(0xffffffffu, score[0], s % 8 * 4);
      const float far = __shfl_sync(0xffffffffu, score[2], s % 8 * 4);
      const float weight = -(s < 8 ? near : far);
      u[0] = fmaf(weight, __bfloat162float(column[s * dv_]), u[0]);
      u[1] = fmaf(weight, __bfloat162float(column[s * dv_ + 8]), u[1]);
    }
    if (t_ == 0) {
      const float beta = NumberOf(this->l_.beta);
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const bf16 stored = __float2bfloat16_rn(beta * u[half]);
        column[place * dv_ + half * 8] = stored;
        this->ValueRow(place)[Column() + g_ + half * 8] = stored;
      }
    }
    __syncwarp();
  }

  __device__ void Write(uint32_t column, uint32_t half, float x) {
    if (column >= this->l_.columns || (this->c_.delta && column == 0)) return;
    const uint32_t head = this->c_.delta ? this->unit_ : this->unit_ * this->c_.unit_heads + column;
    const uint32_t e = Column() + g_ + half * 8;
    if (this->c_.skip != nullptr) {
      x = fmaf(this->template At<float>(this->l_.skip)[e],
               this->template At<float>(this->l_.token_v)[e], x);
    }
    this->c_.out.data[this->Token() * this->c_.out.stride + size_t{head} * this->c_.padded_value +
                      this->first_ + e] = x;
  }

  // --- fold --------------------------------------------------------------------------------------

  __device__ void Fold() {
    Sync();  // all warps have read the keys
    const uint32_t twos = this->key() / 2;
    for (uint32_t s = warp_; s < kChunk; s += threads_ / 32) {
      const float weight = expf(DecayAt(kChunk - 1) - DecayAt(s));
      for (uint32_t i = lane_; i < twos; i += 32) {
        bf16* k = k_ + s * dk_ + i * 2;
        const float first = __bfloat162float(k[0]) * weight;
        const float second = __bfloat162float(k[1]) * weight;
        *reinterpret_cast<uint32_t*>(k) = PackRounded(first, second);
      }
    }
    const float weight = expf(DecayAt(kChunk - 1));
    Sync();
    if (!active_) return;
    uint32_t v[4];
    LoadValues(v);
    std::byte* to = this->Matrix(this->segment_.base_out);
#pragma unroll 4
    for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
      StateTile s = {};
      if (!this->fresh_) s = Tile(kt).Numbers();
      float near[4] = {s.upper.x * weight, s.upper.y * weight, s.lower.x * weight,
                       s.lower.y * weight};
      float far[4] = {s.upper.z * weight, s.upper.w * weight, s.lower.z * weight,
                      s.lower.w * weight};
      uint32_t k[4];
      LoadTransposed(k, k_ + (lane_ % 8 + lane_ / 8 % 2 * 8) * dk_ + kt * 16 + lane_ / 16 * 8);
      MultiplyAdd(near, v, k[0], k[1]);
      MultiplyAdd(far, v, k[2], k[3]);
      StoreTile<kBf16State>(
          to, warp_ * key_tiles_ + kt,
          {{near[0], near[1], far[0], far[1]}, {near[2], near[3], far[2], far[3]}});
    }
  }

  const uint32_t warp_, threads_, thread_, barrier_, lane_, g_, t_, key_tiles_, dk_, dv_;
  bf16 *const k_, *const q_, *const v_;
  bool active_ = false;
  float decay_ = 0.0f;  // cumulative, of row `lane`
};

// --- kernel --------------------------------------------------------------------------------------

// A block's pieces of work, number n from 0.
struct WorkList {
  const RecurCall& call;
  const uint32_t splits, count;

  __device__ WorkList(const RecurCall& c, uint32_t values)
      : call(c),
        splits((c.padded_value + values - 1) / values),
        count(c.rows.segment_count * c.units * splits) {}

  __device__ uint32_t size() const { return (count - blockIdx.x + gridDim.x - 1) / gridDim.x; }
  __device__ void Get(uint32_t n, DeviceSegment& segment, uint32_t& unit, uint32_t& split) const {
    const uint32_t i = blockIdx.x + n * gridDim.x;
    segment = call.rows.segments[i / (call.units * splits)];
    unit = i / splits % call.units;
    split = i % splits;
  }
};

// Fills every kProducers-th stage, from `first` on.
template <bool kBf16State, uint32_t kKey>
__device__ void Produce(const RecurCall& call, const StageLayout& layout, std::byte* stages,
                        Barriers& barriers, uint32_t first) {
  using Stage = Producer<kBf16State, kKey>;
  const WorkList list(call, layout.values);
  const uint32_t count = list.size(), ring = layout.stages;
  const auto stage = [&](uint32_t s) {
    return Stage(call, layout, stages + s * layout.bytes, &barriers.full[s]);
  };
  DeviceSegment segment;
  uint32_t unit, split;
  // The first round gets what does not depend on this step before the last kernel has ended.
  for (uint32_t s = first; s < min(ring, count); s += kProducers) {
    list.Get(s, segment, unit, split);
    stage(s).CopyState(segment, unit, split);
  }
  __syncwarp();
  AwaitLastKernel();
  for (uint32_t s = first; s < min(ring, count); s += kProducers) {
    Stage resumed = stage(s);
    resumed.Resume();
    resumed.CopyToken();
  }
  // Later rounds, and one more number for each group, which tells it that there is no more.
  const uint32_t end = count + layout.groups;
  for (uint32_t round = count < ring ? 0 : 1; round * ring < end; ++round) {
    for (uint32_t s = first; s < ring; s += kProducers) {
      const uint32_t n = round * ring + s;
      if (n >= end || (round == 0 && n < count)) continue;
      if (n < count) list.Get(n, segment, unit, split);
      if (round != 0) WaitBarrier(&barriers.empty[s], (round - 1) & 1);
      Stage next = stage(s);
      if (n < count) {
        next.CopyState(segment, unit, split);
        next.CopyToken();
      } else {
        next.End();
      }
    }
  }
}

template <bool kBf16State, uint32_t kKey>
__device__ void Consume(const RecurCall& call, const StageLayout& layout, std::byte* stages,
                        Barriers& barriers) {
  const uint32_t warps = layout.values / 16, warp = threadIdx.x / 32, group = warp / warps;
  if (group >= layout.groups) return;
  uint32_t s = group, parity = 0;
  for (bool last = false; !last;) {
    WaitBarrier(&barriers.full[s], parity);
    Consumer<kBf16State, kKey> consumer(call, layout, stages + s * layout.bytes, warp % warps,
                                        warps, 1 + group);
    last = consumer.header().last != 0;
    if (!last && consumer.header().segment.tokens != 0) consumer.Run();
    FenceBeforeBulkCopy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(&barriers.empty[s]);
    s += layout.groups;
    if (s >= layout.stages) s = group, parity ^= 1;
  }
}

template <bool kBf16State, uint32_t kKey>
__global__ void __maxnreg__(72) StreamKernel(const __grid_constant__ RecurCall call,
                                             const __grid_constant__ StageLayout layout) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& barriers = *reinterpret_cast<Barriers*>(memory);
  std::byte* const stages = memory + 256;
  const uint32_t warps = layout.values / 16;
  AllowNextKernel();
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < layout.stages; ++s) {
      InitBarrier(&barriers.full[s],
                  33);  // the lanes of a producer, and the first one's announcement
      InitBarrier(&barriers.empty[s], warps);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x / 32 >= kConsumers) {
    Produce<kBf16State, kKey>(call, layout, stages, barriers, threadIdx.x / 32 - kConsumers);
  } else {
    AwaitLastKernel();  // it may still read what consumers write
    Consume<kBf16State, kKey>(call, layout, stages, barriers);
  }
}

template <bool kBf16State, uint32_t kKey>
void Launch(const RecurCall& call, const StageLayout& layout, uint32_t pieces,
            const LaunchContext& context) {
  const auto kernel = StreamKernel<kBf16State, kKey>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  context.Check(prepared);
  const uint32_t blocks = min(pieces, static_cast<uint32_t>(context.processors));
  context.Run(kernel, dim3(blocks), kThreads, 256 + layout.stages * layout.bytes, call, layout);
}

template <bool kBf16State>
void LaunchForKey(const RecurCall& call, const StageLayout& layout, uint32_t pieces,
                  const LaunchContext& context) {
  if (call.padded_key == 64) return Launch<kBf16State, 64>(call, layout, pieces, context);
  if (call.padded_key == 128) return Launch<kBf16State, 128>(call, layout, pieces, context);
  Launch<kBf16State, 0>(call, layout, pieces, context);
}

// Whether bulk copies may start at multiples of four of the rows' numbers.
bool Aligned(const float* numbers, uint32_t stride) {
  return reinterpret_cast<uintptr_t>(numbers) % 16 == 0 && stride % 4 == 0;
}

}  // namespace

bool LaunchStream(const RecurCall& call, const LaunchContext& context) {
  const bool aligned = call.value_dim == call.padded_value && call.v_head_stride % 4 == 0 &&
                       Aligned(call.k, call.k_stride) && Aligned(call.q, call.q_stride) &&
                       Aligned(call.v, call.v_stride) && Aligned(call.g, call.g_stride) &&
                       Aligned(call.beta, call.beta_stride);
  const uint32_t columns = call.delta ? 2 : call.unit_heads;
  if (!call.rows.single || call.decay == Decay::kChannel || call.normaliser || !aligned ||
      columns > kMostColumns) {
    return false;
  }
  const StageLayout layout = LayoutFor(call);
  const uint32_t splits = (call.padded_value + layout.values - 1) / layout.values;
  const uint32_t pieces = call.rows.segment_count * call.units * splits;
  // Fewer pieces are done before the stages are in step; and while these blocks hold a processor,
  // the kernels before and after them cannot share it.
  if (layout.stages < 2 || pieces < 64 * static_cast<uint32_t>(context.processors)) return false;
  call.bf16_state ? LaunchForKey<true>(call, layout, pieces, context)
                  : LaunchForKey<false>(call, layout, pieces, context);
  return true;
}

}  // namespace rivulet::cuda
