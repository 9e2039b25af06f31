// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the reads and the folds of sums in pages share (fenwick.cu, fenwick_decode.cu): a block's
// memory, where its numbers are, and products.
#ifndef RIVULET_KERNELS_DEVICE_FENWICK_CUH_
#define RIVULET_KERNELS_DEVICE_FENWICK_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/fenwick_operations.h"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {

namespace fenwick {

constexpr uint32_t kWarps = 8;  // of a block, at most
// Tiles that a warp loads before it multiplies with them: 4 KiB.
constexpr uint32_t AtOnce(bool bf16_pages) { return bf16_pages ? 8 : 4; }
constexpr uint32_t kMostPages = 64;
constexpr uint32_t kSquare = kChunk + kPad;  // stride of rows of 16 bf16 numbers

__device__ inline void PrefetchToL2(const void* line) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(line));
}

// Shared memory. Arrays of bf16 are kParts times the size, high parts first.
template <bool kSingle, int kParts>
struct Fixed {
  static constexpr uint32_t kQueries = kSingle ? 1 : kChunk;
  static constexpr uint32_t kGroup = kSingle ? 16 : 8;  // pages that are added up at a time

  bf16 p[kParts * kQueries * kSquare];  // [queries, C]: weights of the tail's values
  float score[kQueries * kChunk];       // delta: q·k, then x β
  float overlap[kChunk * kChunk];       // delta: N
  float decay[kChunk], beta[kChunk];
  float weight[kGroup * kQueries];   // of pages
  float page_decay[2 * kMostPages];  // high and low
  float page_scale[kMostPages];      // of pages that a fold takes up
  uint32_t page_slot[kMostPages];    // of the same
};

// What a warp needs to solve for a delta rule's fold of 16 columns.
template <int kParts>
struct Solved {
  bf16 u[kParts * kChunk * kSquare];  // [C, 16]
  float read[kChunk * (kChunk + 1)];  // [C, 16]: k_s M
};

template <bool kSingle, int kParts>
struct Sizes {
  using Front = Fixed<kSingle, kParts>;
  uint32_t dk, dv;                 // strides of rows of k and q, and of v
  uint32_t scratch, k, q, v, end;  // offsets in bytes

  __host__ __device__ Sizes(const FenwickCall& call, uint32_t tiles)
      : dk(call.padded_key + kPad), dv(tiles * 16 + kPad) {
    const uint32_t reads = Front::kGroup * tiles * Front::kQueries * 16 * sizeof(float);
    const uint32_t solves = call.delta ? kWarps * sizeof(Solved<kParts>) : 0;
    scratch = Aligned(sizeof(Front));
    k = scratch + Aligned(reads > solves ? reads : solves);
    q = k + Aligned(kParts * kChunk * dk * sizeof(bf16));
    v = q + Aligned(kParts * Front::kQueries * dk * sizeof(bf16));
    end = v + Aligned(kParts * kChunk * dv * sizeof(bf16));
  }
  __host__ __device__ static uint32_t Aligned(size_t bytes) {
    return static_cast<uint32_t>((bytes + 15) / 16 * 16);
  }
};

// A block: some value columns of one head of one segment.
template <bool kSingle, int kParts, bool kBf16Pages>
class FenwickBlock {
 protected:
  using Row = std::conditional_t<kParts == 2, float, bf16>;
  using Front = Fixed<kSingle, kParts>;
  static constexpr uint32_t kQueries = Front::kQueries;

  __device__ FenwickBlock(const FenwickCall& call, std::byte* memory, uint32_t tiles,
                          uint32_t segment)
      : c_(call),
        segment_(call.rows.segments[segment]),
        all_tiles_(call.padded_value / 16),
        splits_((all_tiles_ + tiles - 1) / tiles),
        head_(blockIdx.x / splits_),
        first_tile_(blockIdx.x % splits_ * tiles),
        tiles_(min(tiles, all_tiles_ - first_tile_)),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4),
        key_tiles_(call.padded_key / 16),
        s_(reinterpret_cast<Front*>(memory)) {
    const Sizes<kSingle, kParts> sizes(call, tiles);
    dk_ = sizes.dk, dv_ = sizes.dv;
    scratch_ = memory + sizes.scratch;
    k_ = reinterpret_cast<bf16*>(memory + sizes.k);
    q_ = reinterpret_cast<bf16*>(memory + sizes.q);
    v_ = reinterpret_cast<bf16*>(memory + sizes.v);
  }

  // --- where things are ------------------------------------------------------------------------

  __device__ uint32_t KeyUnit() const { return head_ / c_.heads_per_key; }
  template <typename T>
  __device__ T* Tail(size_t offset) const {
    return reinterpret_cast<T*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset);
  }
  __device__ Row* KeyRow(uint32_t place) const {
    return Tail<Row>(c_.key_offset) + (size_t{KeyUnit()} * kChunk + place) * c_.padded_key;
  }
  // From the block's first column on.
  __device__ Row* ValueRow(uint32_t place) const {
    return Tail<Row>(c_.value_offset) + (size_t{head_} * kChunk + place) * c_.padded_value +
           first_tile_ * 16;
  }
  __device__ float* DecayRow() const { return Tail<float>(c_.decay_offset) + head_ * kChunk; }
  __device__ float* BetaRow() const { return Tail<float>(c_.beta_offset) + head_ * kChunk; }
  // [P, 2] of a tile of 16 columns.
  __device__ float* PageDecay(uint32_t slot, uint32_t tile) const {
    const size_t index = size_t{head_} * all_tiles_ + first_tile_ + tile;
    return reinterpret_cast<float*>(c_.slots.bases + slot * c_.slots.base_stride +
                                    c_.page_decay_offset) +
           index * 2 * c_.pages.levels;
  }
  __device__ const float* Query(uint32_t token) const {
    return c_.q + size_t{token} * c_.q_stride + size_t{KeyUnit()} * c_.padded_key;
  }
  __device__ const float* Key(uint32_t token) const {
    return c_.k + size_t{token} * c_.k_stride + size_t{KeyUnit()} * c_.padded_key;
  }
  __device__ const float* Value(uint32_t token) const {
    return c_.v + size_t{token} * c_.v_stride + size_t{head_} * c_.v_head_stride;
  }
  __device__ float Level(uint32_t token, uint32_t level) const {
    return c_.levels[size_t{token} * c_.levels_stride + head_ * c_.level_count + level];
  }
  __device__ static uint32_t Warps() { return blockDim.x / 32; }
  __device__ uint32_t TokenAt(uint32_t place) const { return token_ + place - begin_; }
  __device__ bool WritesHead() const { return kSingle && first_tile_ == 0; }
  __device__ bool WritesKey() const { return WritesHead() && head_ % c_.heads_per_key == 0; }

  __device__ std::byte* Page(uint32_t slot) const {
    const size_t bytes = size_t{c_.padded_key} * c_.padded_value * (kBf16Pages ? 2 : 4);
    return c_.slots.pages + slot * c_.slots.page_stride + c_.matrix_offset + head_ * bytes;
  }
  __device__ uint32_t Tile(uint32_t tile, uint32_t kt) const {
    return (first_tile_ + tile) * key_tiles_ + kt;
  }
  // The page of `pages` that has `index` others before it.
  __device__ static uint32_t PageOf(uint64_t pages, uint32_t index) {
    for (; index > 0; --index) pages &= pages - 1;
    return __ffsll(static_cast<long long>(pages)) - 1;
  }

  // --- products ----------------------------------------------------------------------------------

  // sum += (high + low) · rows of 16 numbers from column kt · 16 of a matrix in shared memory, of
  // which `count` rows exist.
  template <bool kLow>
  __device__ void Multiply(float (&sum)[4], const uint32_t (&high)[4], const uint32_t (&low)[4],
                           const bf16* rows, uint32_t part, uint32_t first, uint32_t count,
                           uint32_t kt) const {
    const bool present = first + g_ < count;
    const bf16* row = rows + (first + g_) * dk_ + kt * 16 + 2 * t_;
    const uint32_t b0 = Two(row, present), b1 = Two(row + 8, present);
    MultiplyAdd(sum, high, b0, b1);
    if constexpr (kLow) MultiplyAdd(sum, low, b0, b1);
    if constexpr (kParts == 2) {
      row += part;
      MultiplyAdd(sum, high, Two(row, present), Two(row + 8, present));
    }
  }

  // All keys times eight rows from `first` on of q_, or of k_ itself: a lane has keys g and g + 8
  // and rows first + 2t and first + 2t + 1.
  __device__ void MultiplyKeys(bool queries, uint32_t first, float (&sum)[4]) const {
    const bf16* rows = queries ? q_ : k_;
    const uint32_t count = queries ? columns_ : kChunk;
    const uint32_t part = (queries ? kQueries : kChunk) * dk_;
#pragma unroll 2
    for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const bf16* row = k_ + (i * kChunk + g_) * dk_ + kt * 16 + 2 * t_;
        a[i][0] = Two(row), a[i][1] = Two(row + 8 * dk_);
        a[i][2] = Two(row + 8), a[i][3] = Two(row + 8 * dk_ + 8);
      }
      Multiply<kParts == 2>(sum, a[0], a[1], rows, part, first, count, kt);
    }
  }

  // N_sr = β_s k_s·k_r for r < s.
  __device__ void KeepOverlap(uint32_t s, uint32_t r, float product) {
    s_->overlap[s * kChunk + r] = r < s && s < end_ ? s_->beta[s] * product : 0.0f;
  }

  // 16 columns of 16 rows as a left operand, a column a row of it.
  __device__ void LoadColumns(uint32_t (&x)[kParts][4], const bf16* rows, uint32_t stride) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint32_t row = part * kChunk + lane_ % 8 + (lane_ >= 16 ? 8 : 0);
      LoadTransposed(x[part], rows + row * stride + lane_ / 8 % 2 * 8);
    }
  }

  const FenwickCall& c_;
  const DeviceSegment segment_;
  const uint32_t all_tiles_, splits_, head_, first_tile_, tiles_, warp_, lane_;
  uint32_t g_, t_;
  const uint32_t key_tiles_;
  Front* const s_;
  uint32_t dk_, dv_;
  std::byte* scratch_;  // reads of pages, and in a fold what Solved holds
  bf16 *k_, *q_, *v_;   // [C, dk], [queries, dk], [C, dv]
  uint64_t chunk_ = 0, live_ = 0;
  const uint32_t* table_ = nullptr;  // before the chunk's fold
  uint32_t begin_ = 0, end_ = 0, token_ = 0, columns_ = 0;
};

}  // namespace fenwick

// fenwick_decode.cu: one token of each of few segments. False: not such a call.
bool LaunchFenwickDecode(const FenwickCall& call, bool fp32_rows, const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_FENWICK_CUH_
