// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Recurrences of several sums that are read one after the other: HLA, AHLA and the third order
// (docs/recurrences.md#sums-read-one-after-the-other).
//
// A block has one unit of one segment, and executes the declaration on one piece of a chunk after
// the other: rows, then reads in order, then folds. What a read writes lies in device memory, where
// the next one finds it after a barrier; rows are rounded when they are written, so that decode and
// prefill read the same. Decode is a piece of one token: the same code.
//
// Queries and scores are always two bf16 parts, also where rows are one: a result that goes
// through several reads would be rounded several times.
//
// States that fit stay in shared memory for the segment. Bytes expected for a token: each state
// once, the tail's rows, a C-th of the states written.
#include <algorithm>

#include "kernels/device/sum_program_operations.h"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kTiles = 2;  // of eight columns, each a token's or a head's query
constexpr uint32_t kColumns = kTiles * 8;
constexpr uint32_t kScoreStride = kChunk + kPad;
constexpr uint32_t kMostProgramWarps = 8;
constexpr size_t kSharedBytes = size_t{227} << 10;   // of a block
constexpr size_t kSharedForTwo = size_t{113} << 10;  // so that two fit on a processor
constexpr size_t kSharedForMany = size_t{36} << 10;
constexpr uint32_t kBatch = 4;  // loads of a thread that run at once

uint32_t WidestValue(const SumProgramCall& call) {
  uint32_t widest = 0;
  for (uint32_t i = 0; i < call.sum_count; ++i)
    widest = std::max(widest, call.sums[i].padded_value);
  return widest;
}

__host__ __device__ inline uint32_t Instances(const SumProgramCall& call, const ProgramSum& sum) {
  return sum.per_head ? call.unit_heads : 1;
}

__host__ __device__ inline size_t MatrixBytes(const SumProgramCall& call, const ProgramSum& sum) {
  return size_t{call.padded_key} * sum.padded_value * (call.bf16_state ? 2 : 4);
}

// Shared memory of a block. Keys, queries and scores are two parts, high ones first.
template <int kRowParts>
struct ProgramMemory {
  bf16 *k, *q, *v, *p;  // [C, dk], [columns, dk], [C, dv], [columns, kScoreStride]
  float* normaliser;    // [C, heads of the unit]: of the output
  std::byte* states;
  uint32_t dk, dv;

  // Without the states.
  static size_t Bytes(const SumProgramCall& call) {
    const size_t dk = call.padded_key + kPad, dv = WidestValue(call) + kPad;
    return sizeof(bf16) * (2 * (kChunk + kColumns) * dk + kRowParts * kChunk * dv +
                           2 * kColumns * kScoreStride) +
           sizeof(float) * kChunk * call.unit_heads;
  }

  __device__ ProgramMemory(std::byte* memory, const SumProgramCall& call, uint32_t widest) {
    dk = call.padded_key + kPad, dv = widest + kPad;
    k = reinterpret_cast<bf16*>(memory);
    q = k + 2 * kChunk * dk;
    v = q + 2 * kColumns * dk;
    p = v + kRowParts * kChunk * dv;
    normaliser = reinterpret_cast<float*>(p + 2 * kColumns * kScoreStride);
    states = reinterpret_cast<std::byte*>(normaliser + kChunk * call.unit_heads);
  }
};

// What one thread stages: four neighbours, as parts.
struct StagedFour {
  float4 x;
  bf16* to = nullptr;  // null: nothing
  uint32_t part;       // from the high numbers to the low ones; 0: one part
};

__device__ inline void StoreStaged(const StagedFour& item) {
  uint2 high, low;
  Split(item.x.x, item.x.y, high.x, low.x);
  Split(item.x.z, item.x.w, high.y, low.y);
  *reinterpret_cast<uint2*>(item.to) = high;
  if (item.part != 0) *reinterpret_cast<uint2*>(item.to + item.part) = low;
}

template <int kRowParts, bool kBf16State>
class ProgramUnit {
 public:
  using Row = std::conditional_t<kRowParts == 2, float, bf16>;

  __device__ ProgramUnit(const SumProgramCall& call, std::byte* memory, uint32_t widest, bool held)
      : c_(call),
        segment_(call.rows.segments[blockIdx.y]),
        unit_(blockIdx.x),
        warp_(threadIdx.x / 32),
        warps_(blockDim.x / 32),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4),
        key_tiles_(call.padded_key / 16),
        held_(held),
        s_(memory, call, widest) {}

  __device__ void Run() {
    if (segment_.tokens == 0) return AwaitLastKernel();
    uint64_t chunk = segment_.position / kChunk;
    uint32_t begin = static_cast<uint32_t>(segment_.position % kChunk), done = 0;
    base_ = segment_.base_in;
    // Neither the states nor the tail depends on the kernels of this step.
    if (held_ && chunk != 0) CopyStates();
    FetchTail(begin);
    AwaitLastKernel();
    while (done < segment_.tokens) {
      const uint32_t left = segment_.tokens - done, end = min(begin + left, kChunk);
      fresh_ = chunk == 0;
      last_fold_ = left - (end - begin) < kChunk;
      begin_ = begin, end_ = end, token_ = segment_.first_token + done;
      Piece();
      done += end - begin;
      begin = 0;
      if (end == kChunk) {
        base_ = FoldBase();
        ++chunk;
      }
    }
  }

 private:
  // --- where things are ------------------------------------------------------------------------

  __device__ uint32_t Index(bool per_head, uint32_t local) const {
    return per_head ? unit_ * c_.unit_heads + local : unit_;
  }
  template <typename T>
  __device__ T* Tail(size_t offset) const {
    return reinterpret_cast<T*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset);
  }
  // Of the unit's head `local`.
  __device__ Row* RowAt(const ProgramRow& row, uint32_t local, uint32_t place) const {
    return Tail<Row>(row.offset) +
           (size_t{Index(row.per_head, local)} * kChunk + place) * row.width;
  }
  __device__ float* Extra(const ProgramRow& row, uint32_t local) const {
    return Tail<float>(row.extra_offset) + Index(true, local) * kChunk;
  }
  __device__ float* VectorAt(const ProgramVector& vector, uint32_t local, uint32_t place) const {
    const uint32_t head = unit_ * c_.unit_heads + local;
    const uint32_t index = vector.per_head ? head : head / c_.group_heads;
    return vector.data + size_t{token_ + place - begin_} * vector.stride +
           size_t{index} * vector.width;
  }
  __device__ std::byte* Matrix(const ProgramSum& sum, uint32_t slot, uint32_t local) const {
    return c_.slots.bases + slot * c_.slots.base_stride + sum.offset +
           Index(sum.per_head, local) * MatrixBytes(c_, sum);
  }
  // The last token of the piece, and where the fold behind it goes.
  __device__ uint32_t LastToken() const { return token_ + end_ - begin_ - 1; }
  __device__ uint32_t FoldBase() const { return BaseAfter(c_.rows, segment_, LastToken()); }
  __device__ float* Normaliser(const ProgramSum& sum, uint32_t slot, uint32_t local) const {
    return reinterpret_cast<float*>(c_.slots.bases + slot * c_.slots.base_stride +
                                    sum.normaliser_offset) +
           size_t{Index(sum.per_head, local)} * c_.padded_key;
  }
  // Where this block holds the state.
  __device__ std::byte* Held(uint32_t index, uint32_t local) const {
    std::byte* at = s_.states;
    for (uint32_t i = 0; i < index; ++i)
      at += Instances(c_, c_.sums[i]) * MatrixBytes(c_, c_.sums[i]);
    return at + local * MatrixBytes(c_, c_.sums[index]);
  }
  __device__ const std::byte* From(uint32_t index, uint32_t local) const {
    return held_ ? Held(index, local) : Matrix(c_.sums[index], base_, local);
  }

  // --- decays ----------------------------------------------------------------------------------

  // Cumulative to the place; the border is place -1.
  __device__ float LogDecay(uint32_t local, int place) const {
    if (place < 0) return 0.0f;
    return c_.decays[size_t{unit_ * c_.unit_heads + local} * kChunk + place];
  }
  // From place s, or the border, to place a.
  __device__ float DecayBetween(float power, uint32_t local, int s, int a) const {
    if (c_.decays == nullptr) return 1.0f;
    return expf(power * (LogDecay(local, a) - LogDecay(local, s)));
  }

  // --- a piece of a chunk ----------------------------------------------------------------------

  __device__ void Piece() {
    AppendRows();
    if (held_) WaitForCopies<0>();
    __syncthreads();
    for (uint32_t i = 0; i < c_.read_count; ++i) RunRead(c_.reads[i]);
    if (c_.divides) Divide();
    if (end_ != kChunk) return;
    for (uint32_t i = 0; i < c_.sum_count; ++i) {
      for (uint32_t local = 0; local < Instances(c_, c_.sums[i]); ++local) Fold(i, local);
    }
  }

  __device__ void CopyStates() {
    for (uint32_t i = 0; i < c_.sum_count; ++i) {
      const ProgramSum& sum = c_.sums[i];
      const std::byte* from = Matrix(sum, base_, 0);
      std::byte* to = Held(i, 0);
      const size_t bytes = Instances(c_, sum) * MatrixBytes(c_, sum);
      for (size_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16) {
        CopyAsync(to + at, from + at);
      }
    }
    CommitCopies();
  }

  // Asks for the first `count` rows of the tail, so that they are near when reads come to them.
  __device__ void FetchTail(uint32_t count) const {
    constexpr uint32_t kLine = 128 / sizeof(Row);
    for (uint32_t r = 0; r < c_.row_count; ++r) {
      const ProgramRow& row = c_.rows_of[r];
      for (uint32_t local = 0; local < (row.per_head ? c_.unit_heads : 1); ++local) {
        const Row* from = RowAt(row, local, 0);
        for (uint32_t i = threadIdx.x * kLine; i < count * row.width; i += blockDim.x * kLine) {
          asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from + i));
        }
      }
    }
  }

  __device__ void AppendRows() {
    for (uint32_t r = 0; r < c_.row_count; ++r) {
      const ProgramRow& row = c_.rows_of[r];
      uint32_t column = 0;
      for (uint32_t i = 0; i < row.copies; ++i) {
        AppendCopy(row, c_.vectors[row.copy[i]], column);
        column += c_.vectors[row.copy[i]].width;
      }
    }
  }

  __device__ void AppendCopy(const ProgramRow& row, const ProgramVector& from, uint32_t column) {
    const uint32_t fours = from.width / 4, heads = row.per_head ? c_.unit_heads : 1;
    const uint32_t count = (end_ - begin_) * heads * fours;
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      const uint32_t place = begin_ + i / fours / heads, local = i / fours % heads;
      const uint32_t d = i % fours * 4;
      StoreFour(RowAt(row, local, place) + column + d, LoadFour(VectorAt(from, local, place) + d));
    }
  }

  // --- staging ---------------------------------------------------------------------------------

  // Calls store(i, load(i)) for i < count, several loads of a thread at a time.
  template <typename LoadItem>
  __device__ void Stage(uint32_t count, LoadItem&& load) {
    for (uint32_t first = threadIdx.x; first < count; first += kBatch * blockDim.x) {
      StagedFour items[kBatch];
#pragma unroll
      for (uint32_t j = 0; j < kBatch; ++j) {
        const uint32_t i = first + j * blockDim.x;
        if (i < count) items[j] = load(i);
      }
#pragma unroll
      for (uint32_t j = 0; j < kBatch; ++j) {
        if (items[j].to == nullptr) continue;
        StoreStaged(items[j]);
      }
    }
  }

  // Four numbers of row `place`, zeros from the piece's end on: their scores are masked, but zero
  // times anything is not zero.
  __device__ float4 RowFour(const ProgramRow& row, uint32_t local, uint32_t place,
                            uint32_t column) const {
    if (place >= end_) return {0.0f, 0.0f, 0.0f, 0.0f};
    return LoadFour(RowAt(row, local, place) + column);
  }

  // The rows of a sum. To be folded, keys are decayed to the chunk's end.
  __device__ StagedFour RowItem(const ProgramSum& sum, uint32_t local, bool folds, uint32_t i) {
    const uint32_t fours = c_.padded_key / 4, values = sum.padded_value / 4;
    if (i < kChunk * fours) {
      const uint32_t s = i / fours, d = i % fours * 4;
      StagedFour item = {RowFour(c_.rows_of[sum.key], local, s, d), s_.k + s * s_.dk + d,
                         kChunk * s_.dk};
      if (folds && c_.decays != nullptr) {
        const float weight = DecayBetween(sum.decay_power, local, s, kChunk - 1);
        item.x.x *= weight, item.x.y *= weight, item.x.z *= weight, item.x.w *= weight;
      }
      return item;
    }
    i -= kChunk * fours;
    const uint32_t s = i / values, e = i % values * 4;
    return {RowFour(c_.rows_of[sum.value], local, s, sum.value_column + e), s_.v + s * s_.dv + e,
            kRowParts == 2 ? kChunk * s_.dv : 0};
  }

  __device__ uint32_t RowItems(const ProgramSum& sum) const {
    return kChunk * (c_.padded_key + sum.padded_value) / 4;
  }

  // --- reads -----------------------------------------------------------------------------------

  // A read of one state: its columns are the queries of `heads_` heads from `local_` on, of each
  // token. Column = (token, head).
  __device__ void RunRead(const ProgramRead& read) {
    const ProgramSum& sum = c_.sums[read.sum];
    heads_ = sum.per_head ? 1 : c_.unit_heads;
    const uint32_t columns = (end_ - begin_) * heads_;
    for (local_ = 0; local_ < Instances(c_, sum); ++local_) {
      for (uint32_t first = 0; first < columns; first += kColumns) {
        first_column_ = first;
        columns_ = min(columns - first, kColumns);
        const uint32_t fours = c_.padded_key / 4, rows = first == 0 ? RowItems(sum) : 0;
        Stage(rows + columns_ * fours, [&](uint32_t i) -> StagedFour {
          if (i < rows) return RowItem(sum, local_, false, i);
          const uint32_t column = (i - rows) / fours, d = (i - rows) % fours * 4;
          return {LoadFour(Query(read, column) + d), s_.q + column * s_.dk + d, kColumns * s_.dk};
        });
        __syncthreads();
        Score(read, sum);
        __syncthreads();
        ReadColumns(read, sum);
        __syncthreads();
      }
    }
  }

  __device__ uint32_t PlaceOf(uint32_t column) const {
    return begin_ + (first_column_ + column) / heads_;
  }
  __device__ uint32_t HeadOf(uint32_t column) const {
    return local_ + (first_column_ + column) % heads_;
  }
  __device__ const float* Query(const ProgramRead& read, uint32_t column) const {
    return VectorAt(c_.vectors[read.query], HeadOf(column), PlaceOf(column));
  }
  // The place whose decay a column has.
  __device__ int DecayPlace(const ProgramRead& read, uint32_t column) const {
    return static_cast<int>(PlaceOf(column)) - (read.strict ? 1 : 0);
  }

  __device__ void Score(const ProgramRead& read, const ProgramSum& sum) {
    for (uint32_t tile = warp_; tile * 8 < columns_; tile += warps_) {
      float score[4] = {};
      for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
        uint32_t k[kRowParts][4];
        for (int part = 0; part < kRowParts; ++part) {
          const bf16* row = s_.k + (part * kChunk + g_) * s_.dk + kt * 16 + 2 * t_;
          k[part][0] = Two(row), k[part][1] = Two(row + 8 * s_.dk);
          k[part][2] = Two(row + 8), k[part][3] = Two(row + 8 * s_.dk + 8);
        }
        const uint4 b = QueryTile(tile, kt);
        MultiplyAdd(score, k[0], b.x, b.y);
        if constexpr (kRowParts == 2) MultiplyAdd(score, k[1], b.x, b.y);
        MultiplyAdd(score, k[0], b.z, b.w);
      }
      for (int i = 0; i < 4; ++i) {
        KeepScore(read, sum, tile * 8 + 2 * t_ + i % 2, g_ + i / 2 * 8, score[i]);
      }
    }
  }

  // With its decay; zero for rows that the token does not see.
  __device__ void KeepScore(const ProgramRead& read, const ProgramSum& sum, uint32_t column,
                            uint32_t s, float score) {
    float x = 0.0f;
    if (column < columns_) {
      const int last = DecayPlace(read, column), row = static_cast<int>(s);
      if (row <= last) x = score * DecayBetween(sum.decay_power, HeadOf(column), row, last);
    }
    StoreParts<2>(s_.p + column * kScoreStride + s, kColumns * kScoreStride, x);
  }

  // The queries of a tile of columns for 16 keys: high parts, low parts.
  __device__ uint4 QueryTile(uint32_t tile, uint32_t kt) const {
    const bool present = tile * 8 + g_ < columns_;
    const bf16* high = s_.q + (tile * 8 + g_) * s_.dk + kt * 16 + 2 * t_;
    const bf16* low = high + kColumns * s_.dk;
    return {Two(high, present), Two(high + 8, present), Two(low, present), Two(low + 8, present)};
  }
  // The scores of a tile of columns.
  __device__ uint4 ScoreTile(uint32_t tile) const {
    const bool present = tile * 8 + g_ < columns_;
    const bf16* high = s_.p + (tile * 8 + g_) * kScoreStride + 2 * t_;
    const bf16* low = high + kColumns * kScoreStride;
    return {Two(high, present), Two(high + 8, present), Two(low, present), Two(low + 8, present)};
  }

  // A warp takes 16 value columns at a time, and the normaliser like one of those.
  __device__ void ReadColumns(const ProgramRead& read, const ProgramSum& sum) {
    const uint32_t tiles = sum.padded_value / 16;
    const bool counts = sum.normaliser && (read.to_row || read.to == c_.out);
    for (uint32_t tile = warp_; tile < tiles + (counts ? 1 : 0); tile += warps_) {
      if (tile < tiles) {
        ReadTile(read, sum, tile);
      } else {
        ReadNormaliser(read, sum);
      }
    }
  }

  __device__ void ReadTile(const ProgramRead& read, const ProgramSum& sum, uint32_t tile) {
    float x[kTiles][4] = {};
    if (!fresh_) {
      const std::byte* from = From(read.sum, local_);
#pragma unroll 4
      for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
        HeldTile<kBf16State> state;
        state.Load(from, tile * key_tiles_ + kt);
        MultiplyState(state, kt, x);
      }
    }
    uint32_t v[kRowParts][4];
    LoadValues(tile, v);
#pragma unroll
    for (uint32_t j = 0; j < kTiles; ++j) {
      if (j * 8 >= columns_) continue;
      DecayColumns(read, sum, j, x[j]);
      const uint4 p = ScoreTile(j);
      MultiplyAdd(x[j], v[0], p.x, p.y);
      if constexpr (kRowParts == 2) MultiplyAdd(x[j], v[1], p.x, p.y);
      MultiplyAdd(x[j], v[0], p.z, p.w);
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        Write(read, j * 8 + 2 * t_ + i % 2, tile * 16 + g_ + i / 2 * 8, x[j][i]);
      }
    }
  }

  __device__ void MultiplyState(const HeldTile<kBf16State>& state, uint32_t kt,
                                float (&x)[kTiles][4]) {
    const StateTile numbers = state.Numbers();
    uint32_t high[4], low[4];
    SplitTile(numbers, high, low);
#pragma unroll
    for (uint32_t j = 0; j < kTiles; ++j) {
      if (j * 8 >= columns_) continue;
      const uint4 b = QueryTile(j, kt);
      MultiplyAdd(x[j], high, b.x, b.y);
      if constexpr (!kBf16State) MultiplyAdd(x[j], low, b.x, b.y);
      MultiplyAdd(x[j], high, b.z, b.w);
    }
  }

  // What comes from the base decays from the border.
  __device__ void DecayColumns(const ProgramRead& read, const ProgramSum& sum, uint32_t tile,
                               float (&x)[4]) const {
    if (c_.decays == nullptr) return;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t column = tile * 8 + 2 * t_ + i;
      if (column >= columns_) continue;
      const float weight =
          DecayBetween(sum.decay_power, HeadOf(column), -1, DecayPlace(read, column));
      x[i] *= weight, x[i + 2] *= weight;
    }
  }

  __device__ void LoadValues(uint32_t tile, uint32_t (&v)[kRowParts][4]) const {
    for (int part = 0; part < kRowParts; ++part) {
      const uint32_t row = part * kChunk + lane_ % 8 + (lane_ >= 16 ? 8 : 0);
      LoadTransposed(v[part], s_.v + row * s_.dv + tile * 16 + lane_ / 8 % 2 * 8);
    }
  }

  __device__ void Write(const ProgramRead& read, uint32_t column, uint32_t e, float x) {
    if (column >= columns_) return;
    const uint32_t place = PlaceOf(column), local = HeadOf(column);
    if (read.ridge != 0.0f) x = fmaf(read.ridge, Query(read, column)[e], x);
    if (read.to_row) return Store(RowAt(c_.rows_of[read.to], local, place) + e, x);
    float* to = VectorAt(c_.vectors[read.to], local, place) + e;
    *to = read.add == 0.0f ? x : fmaf(read.add, x, *to);
  }

  // --- normalisers -----------------------------------------------------------------------------

  // One more value column, the same in all 16 rows of an operand.
  __device__ void ReadNormaliser(const ProgramRead& read, const ProgramSum& sum) {
    const float* z = Normaliser(sum, base_, local_);
    uint32_t values[2][4];
    ExtraValues(sum, values);
    for (uint32_t j = 0; j * 8 < columns_; ++j) {
      float n[4] = {};
      for (uint32_t kt = 0; kt < (fresh_ ? 0 : key_tiles_); ++kt) {
        uint32_t high[4], low[4];
        SplitRows(z + kt * 16 + 2 * t_, high, low);
        const uint4 b = QueryTile(j, kt);
        MultiplyAdd(n, high, b.x, b.y);
        MultiplyAdd(n, low, b.x, b.y);
        MultiplyAdd(n, high, b.z, b.w);
      }
      DecayColumns(read, sum, j, n);
      const uint4 p = ScoreTile(j);
      MultiplyAdd(n, values[0], p.x, p.y);
      MultiplyAdd(n, values[1], p.x, p.y);
      MultiplyAdd(n, values[0], p.z, p.w);
      if (g_ != 0) continue;
      for (uint32_t i = 0; i < 2; ++i) WriteNormaliser(read, j * 8 + 2 * t_ + i, n[i]);
    }
  }

  // The normaliser's values of the chunk's rows 2t, 2t + 1, 2t + 8 and 2t + 9, as parts.
  __device__ void ExtraValues(const ProgramSum& sum, uint32_t (&values)[2][4]) const {
    const ProgramRow& row = c_.rows_of[sum.value];
    float x[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t place = 2 * t_ + i % 2 + i / 2 * 8;
      x[i] = place < end_ ? 1.0f : 0.0f;
      if (row.extra && place < end_) x[i] = Extra(row, local_)[place];
    }
    Split(x[0], x[1], values[0][0], values[1][0]);
    Split(x[2], x[3], values[0][2], values[1][2]);
    for (uint32_t part = 0; part < 2; ++part) {
      values[part][1] = values[part][0], values[part][3] = values[part][2];
    }
  }

  __device__ void WriteNormaliser(const ProgramRead& read, uint32_t column, float n) {
    if (column >= columns_) return;
    const uint32_t place = PlaceOf(column), local = HeadOf(column);
    if (read.to_row) {
      Extra(c_.rows_of[read.to], local)[place] = n;
      return;
    }
    float* to = s_.normaliser + place * c_.unit_heads + local;
    *to = read.add == 0.0f ? n : fmaf(read.add, n, *to);
  }

  __device__ void Divide() {
    const ProgramVector& out = c_.vectors[c_.out];
    const uint32_t count = (end_ - begin_) * c_.unit_heads * out.width;
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      const uint32_t e = i % out.width, local = i / out.width % c_.unit_heads;
      const uint32_t place = begin_ + i / out.width / c_.unit_heads;
      const float n = s_.normaliser[place * c_.unit_heads + local] + c_.denominator_eps;
      float& o = VectorAt(out, local, place)[e];
      o = c_.reciprocal ? o * (1.0f / n) : o / n;
    }
    __syncthreads();
  }

  // --- folds -----------------------------------------------------------------------------------

  __device__ void Fold(uint32_t index, uint32_t local) {
    const ProgramSum& sum = c_.sums[index];
    Stage(RowItems(sum), [&](uint32_t i) { return RowItem(sum, local, true, i); });
    __syncthreads();
    const float weight = DecayBetween(sum.decay_power, local, -1, kChunk - 1);
    if (sum.normaliser) FoldNormaliser(sum, local, weight);
    const std::byte* from = From(index, local);
    std::byte* to = Matrix(sum, FoldBase(), local);
    const bool stores = !held_ || KeepsBaseAfter(c_.rows, segment_, LastToken(), last_fold_);
    for (uint32_t tile = warp_; tile < sum.padded_value / 16; tile += warps_) {
      uint32_t v[kRowParts][4];
      LoadValues(tile, v);
#pragma unroll 4
      for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
        const uint32_t at = tile * key_tiles_ + kt;
        StateTile state = {};
        if (!fresh_) state = LoadTile<kBf16State>(from, at);
        FoldTile(v, kt, weight, state);
        if (held_) StoreTile<kBf16State>(Held(index, local), at, state);
        if (stores) StoreTile<kBf16State>(to, at, state);
      }
    }
    __syncthreads();
  }

  __device__ void FoldTile(const uint32_t (&v)[kRowParts][4], uint32_t kt, float w, StateTile& s) {
    float near[4] = {s.upper.x * w, s.upper.y * w, s.lower.x * w, s.lower.y * w};
    float far[4] = {s.upper.z * w, s.upper.w * w, s.lower.z * w, s.lower.w * w};
    uint32_t k[2][4];
    for (int part = 0; part < 2; ++part) {
      const uint32_t row = part * kChunk + lane_ % 8 + lane_ / 8 % 2 * 8;
      LoadTransposed(k[part], s_.k + row * s_.dk + kt * 16 + lane_ / 16 * 8);
    }
    MultiplyAdd(near, v[0], k[0][0], k[0][1]);
    MultiplyAdd(far, v[0], k[0][2], k[0][3]);
    if constexpr (kRowParts == 2) {
      MultiplyAdd(near, v[1], k[0][0], k[0][1]);
      MultiplyAdd(far, v[1], k[0][2], k[0][3]);
    }
    MultiplyAdd(near, v[0], k[1][0], k[1][1]);
    MultiplyAdd(far, v[0], k[1][2], k[1][3]);
    s.upper = {near[0], near[1], far[0], far[1]};
    s.lower = {near[2], near[3], far[2], far[3]};
  }

  __device__ void FoldNormaliser(const ProgramSum& sum, uint32_t local, float weight) {
    const ProgramRow& row = c_.rows_of[sum.value];
    const float* from = Normaliser(sum, base_, local);
    float* to = Normaliser(sum, FoldBase(), local);
    for (uint32_t d = threadIdx.x; d < c_.padded_key; d += blockDim.x) {
      float z = fresh_ ? 0.0f : from[d] * weight;
      for (uint32_t s = 0; s < kChunk; ++s) {
        const float value = row.extra ? Extra(row, local)[s] : 1.0f;
        z = fmaf(LoadParts<2>(s_.k + s * s_.dk + d, kChunk * s_.dk), value, z);
      }
      to[d] = z;
    }
  }

  const SumProgramCall& c_;
  const DeviceSegment segment_;
  const uint32_t unit_, warp_, warps_, lane_, g_, t_, key_tiles_;
  const bool held_;  // the states are in shared memory
  const ProgramMemory<kRowParts> s_;
  uint32_t begin_ = 0, end_ = 0, token_ = 0, base_ = 0;
  uint32_t local_ = 0, heads_ = 1, first_column_ = 0, columns_ = 0;  // of a read
  bool fresh_ = false, last_fold_ = false;
};

// Blocks wait for their own results most of the time, so where there are many, many share a
// processor. With few, the registers serve better to load more at once.
constexpr int ResidentBlocks(int warps, bool many) {
  if (!many) return 2;
  return warps == kMostProgramWarps ? 3 : 6;
}

template <int kRowParts, bool kBf16State, int kWarps, bool kMany>
__global__ void __launch_bounds__(kWarps * 32, ResidentBlocks(kWarps, kMany))
    SumProgramKernel(const __grid_constant__ SumProgramCall call, uint32_t widest, bool held) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  ProgramUnit<kRowParts, kBf16State>(call, memory, widest, held).Run();
}

template <int kRowParts, bool kBf16State, int kWarps, bool kMany>
void Launch(const SumProgramCall& call, const LaunchContext& context) {
  const auto kernel = SumProgramKernel<kRowParts, kBf16State, kWarps, kMany>;
  static const cudaError_t prepared = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  context.Check(prepared);
  size_t shared = ProgramMemory<kRowParts>::Bytes(call), states = 0;
  for (uint32_t i = 0; i < call.sum_count; ++i) {
    states += Instances(call, call.sums[i]) * MatrixBytes(call, call.sums[i]);
  }
  const size_t room = kMany ? kSharedForMany : call.rows.single ? kSharedForTwo : kSharedBytes;
  const bool held = shared + states <= room;
  if (held) shared += states;
  context.Run(kernel, dim3(call.units, call.rows.segment_count), kWarps * 32, shared, call,
              WidestValue(call), held);
}

template <int kRowParts, bool kBf16State, int kWarps>
void LaunchForRows(const SumProgramCall& call, const LaunchContext& context) {
  // Rows of two parts are for exactness, not for speed.
  if constexpr (kRowParts == 1) {
    const uint32_t blocks = call.units * call.rows.segment_count;
    if (call.rows.single && blocks > 2 * static_cast<uint32_t>(context.processors)) {
      return Launch<kRowParts, kBf16State, kWarps, true>(call, context);
    }
  }
  Launch<kRowParts, kBf16State, kWarps, false>(call, context);
}

template <int kRowParts, bool kBf16State>
void LaunchForWidth(const SumProgramCall& call, const LaunchContext& context) {
  constexpr int kMost = kMostProgramWarps;
  if (WidestValue(call) > 64) return LaunchForRows<kRowParts, kBf16State, kMost>(call, context);
  LaunchForRows<kRowParts, kBf16State, kMost / 2>(call, context);
}

void LaunchPart(const SumProgramCall& call, bool fp32_rows, const LaunchContext& context) {
  if (fp32_rows) {
    call.bf16_state ? LaunchForWidth<2, true>(call, context)
                    : LaunchForWidth<2, false>(call, context);
  } else if (!LaunchProgramStream(call, context)) {
    call.bf16_state ? LaunchForWidth<1, true>(call, context)
                    : LaunchForWidth<1, false>(call, context);
  }
}

}  // namespace

void LaunchSumProgram(const SumProgramCall& call, bool fp32_rows, const LaunchContext& context) {
  ByParts(call, [&](const SumProgramCall& part) { LaunchPart(part, fp32_rows, context); });
}

}  // namespace rivulet::cuda
