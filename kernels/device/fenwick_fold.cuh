// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The fold of sums in pages (fenwick.cu): what fenwick_fold_cpu.cc does, for the columns of one
// block.
//
//     scalar   M + Σ_s (e^{c_C - c_s} k_s)ᵀ v_s
//     delta    M + Σ_s k_sᵀ u_s        u_s = β_s (e^{c_C - c_s} v_s - k_s M) - Σ_{r<s} N_sr u_r
//
// M is the sum of the pages that the new one takes up, each decayed to the chunk's end. A page that
// lives on under the delta rule is the same with M itself and v = 0.
#ifndef RIVULET_KERNELS_DEVICE_FENWICK_FOLD_CUH_
#define RIVULET_KERNELS_DEVICE_FENWICK_FOLD_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/fenwick.cuh"

namespace rivulet::cuda {

namespace fenwick {

template <bool kSingle, int kParts, bool kBf16Pages>
class FenwickFold : public FenwickBlock<kSingle, kParts, kBf16Pages> {
 protected:
  using Block = FenwickBlock<kSingle, kParts, kBf16Pages>;
  using Block::c_, Block::chunk_, Block::dk_, Block::dv_, Block::g_, Block::k_, Block::key_tiles_,
      Block::lane_, Block::live_, Block::LoadColumns, Block::Page, Block::PageDecay, Block::PageOf,
      Block::s_, Block::scratch_, Block::segment_, Block::t_, Block::table_, Block::Tile,
      Block::tiles_, Block::TokenAt, Block::v_, Block::warp_, Block::Warps;

  __device__ FenwickFold(const FenwickCall& call, std::byte* memory, uint32_t tiles,
                         uint32_t segment)
      : Block(call, memory, tiles, segment) {}

  __device__ void Fold() {
    const uint32_t made = PageMadeBy(chunk_, c_.pages.levels);
    const uint64_t taken = live_ & ((uint64_t{2} << made) - 1);
    __syncthreads();  // all reads are over: their place in memory, the keys and pages may change
    ListTaken(taken);
    if (!c_.delta) DecayKeys();
    __syncthreads();
    const uint32_t* next = table_ + c_.pages.levels;
    std::byte* to = Page(next[made]);
    if (c_.delta) {
      if (warp_ < tiles_) SolvePage<true>(warp_, to, __popcll(taken));
      __syncthreads();  // a page that lives on may move to the slot of one that was taken up
      SolveOthers(live_ & ~taken, next);
    } else {
      for (uint32_t item = warp_; item < tiles_ * key_tiles_; item += Warps()) {
        AddRows(item / key_tiles_, item % key_tiles_, to, __popcll(taken));
      }
    }
    FoldDecays(live_ & ~taken);
  }

 private:
  // The pages that the new one takes up, each with its decay at the chunk's end.
  __device__ void ListTaken(uint64_t taken) {
    if (threadIdx.x >= __popcll(taken)) return;
    const uint32_t page = PageOf(taken, threadIdx.x);
    const float* decay = s_->page_decay + 2 * page;
    s_->page_scale[threadIdx.x] = expf((s_->decay[kChunk - 1] + decay[1]) + decay[0]);
    s_->page_slot[threadIdx.x] = table_[page];
  }

  // k_s e^{c_C - c_s} in the place of k_s.
  __device__ void DecayKeys() {
    for (uint32_t i = threadIdx.x; i < kChunk * c_.padded_key; i += blockDim.x) {
      const uint32_t s = i / c_.padded_key;
      bf16* k = k_ + s * dk_ + i % c_.padded_key;
      const float weight = expf(s_->decay[kChunk - 1] - s_->decay[s]);
      StoreParts<kParts>(k, kChunk * dk_, LoadParts<kParts>(k, kChunk * dk_) * weight);
    }
  }

  // M: the sum of the first `count` listed pages.
  __device__ StateTile Merged(uint32_t count, uint32_t tile) const {
    StateTile sum = {};
#pragma unroll 2
    for (uint32_t i = 0; i < count; ++i) {
      const float scale = s_->page_scale[i];
      const StateTile x = LoadTile<kBf16Pages>(Page(s_->page_slot[i]), tile);
      sum.upper.x = fmaf(scale, x.upper.x, sum.upper.x);
      sum.upper.y = fmaf(scale, x.upper.y, sum.upper.y);
      sum.upper.z = fmaf(scale, x.upper.z, sum.upper.z);
      sum.upper.w = fmaf(scale, x.upper.w, sum.upper.w);
      sum.lower.x = fmaf(scale, x.lower.x, sum.lower.x);
      sum.lower.y = fmaf(scale, x.lower.y, sum.lower.y);
      sum.lower.z = fmaf(scale, x.lower.z, sum.lower.z);
      sum.lower.w = fmaf(scale, x.lower.w, sum.lower.w);
    }
    return sum;
  }

  __device__ void AddRows(uint32_t tile, uint32_t kt, std::byte* to, uint32_t count) {
    uint32_t v[kParts][4];
    LoadColumns(v, v_ + tile * 16, dv_);
    StoreSum(Merged(count, Tile(tile, kt)), v, kt, to, Tile(tile, kt));
  }

  // s + Σ_s (rows of `values`)ᵀ k_s, stored.
  __device__ void StoreSum(const StateTile& s, const uint32_t (&values)[kParts][4], uint32_t kt,
                           std::byte* to, uint32_t tile) const {
    float near[4] = {s.upper.x, s.upper.y, s.lower.x, s.lower.y};
    float far[4] = {s.upper.z, s.upper.w, s.lower.z, s.lower.w};
    uint32_t k[kParts][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint32_t row = part * kChunk + lane_ % 8 + lane_ / 8 % 2 * 8;
      LoadTransposed(k[part], k_ + row * dk_ + kt * 16 + lane_ / 16 * 8);
    }
    MultiplyAdd(near, values[0], k[0][0], k[0][1]);
    MultiplyAdd(far, values[0], k[0][2], k[0][3]);
    if constexpr (kParts == 2) {
      MultiplyAdd(near, values[1], k[0][0], k[0][1]);
      MultiplyAdd(far, values[1], k[0][2], k[0][3]);
      MultiplyAdd(near, values[0], k[1][0], k[1][1]);
      MultiplyAdd(far, values[0], k[1][2], k[1][3]);
    }
    StoreTile<kBf16Pages>(to, tile,
                          {{near[0], near[1], far[0], far[1]}, {near[2], near[3], far[2], far[3]}});
  }

  // --- fold of the delta rule --------------------------------------------------------------------

  // The pages that live on, each in its place or in the slot that it has from now on.
  __device__ void SolveOthers(uint64_t others, const uint32_t* next) {
    const uint32_t items = __popcll(others) * tiles_;
    for (uint32_t item = warp_; item < items; item += Warps()) {
      const uint32_t page = PageOf(others, item / tiles_);
      old_ = Page(table_[page]);
      SolvePage<false>(item % tiles_, Page(next[page]), 0);
      __syncwarp();  // before this warp's scratch is used again
    }
  }

  // M + Σ_s k_sᵀ u_s of 16 columns, by one warp. A page may be written in place: each lane stores
  // to the addresses that it has loaded from.
  template <bool kMade>
  __device__ void SolvePage(uint32_t tile, std::byte* to, uint32_t count) {
    Solved<kParts>& solved = reinterpret_cast<Solved<kParts>*>(scratch_)[warp_];
    ReadKeys<kMade>(tile, count, solved);
    __syncwarp();
    if (lane_ < 16) SolveColumn<kMade>(tile, solved);
    __syncwarp();
    uint32_t u[kParts][4];
    LoadColumns(u, solved.u, kSquare);
    for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
      StoreSum(SourceTile<kMade>(count, Tile(tile, kt)), u, kt, to, Tile(tile, kt));
    }
  }

  template <bool kMade>
  __device__ StateTile SourceTile(uint32_t count, uint32_t tile) const {
    if constexpr (kMade) return Merged(count, tile);
    return LoadTile<kBf16Pages>(old_, tile);
  }

  // k_s M for all rows.
  template <bool kMade>
  __device__ void ReadKeys(uint32_t tile, uint32_t count, Solved<kParts>& solved) {
    float sum[2][4] = {};
#pragma unroll kMade ? 1 : 2
    for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
      uint32_t high[4], low[4];
      SplitTile(SourceTile<kMade>(count, Tile(tile, kt)), high, low);
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        Block::template Multiply<true>(sum[half], high, low, k_, kChunk * dk_, half * 8, kChunk,
                                       kt);
      }
    }
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        solved.read[(half * 8 + 2 * t_ + i % 2) * (kChunk + 1) + g_ + i / 2 * 8] = sum[half][i];
      }
    }
  }

  // u_s = β_s (e^{c_C - c_s} v_s - k_s M) - Σ_{r<s} N_sr u_r of value column `lane`; a page that
  // lives on has no v.
  template <bool kMade>
  __device__ void SolveColumn(uint32_t tile, Solved<kParts>& solved) {
    float u[kChunk];
#pragma unroll
    for (uint32_t s = 0; s < kChunk; ++s) {
      float target = 0.0f;
      if constexpr (kMade) {
        target = expf(s_->decay[kChunk - 1] - s_->decay[s]) *
                 LoadParts<kParts>(v_ + s * dv_ + tile * 16 + lane_, kChunk * dv_);
      }
      float x = s_->beta[s] * (target - solved.read[s * (kChunk + 1) + lane_]);
#pragma unroll
      for (uint32_t r = 0; r < s; ++r) x = fmaf(-s_->overlap[s * kChunk + r], u[r], x);
      bf16* stored = solved.u + s * kSquare + lane_;
      StoreParts<kParts>(stored, kChunk * kSquare, x);
      u[s] = LoadParts<kParts>(stored, kChunk * kSquare);
    }
  }

  // The base after the fold.
  __device__ void FoldDecays(uint64_t others) {
    __syncthreads();  // the decays before it were read
    const uint32_t page = threadIdx.x;
    if (page >= c_.pages.levels) return;
    float high = 0.0f, low = 0.0f;
    if ((others >> page & 1) != 0) {
      high = s_->page_decay[2 * page], low = s_->page_decay[2 * page + 1];
      AddLogDecay(s_->decay[kChunk - 1], high, low);
    }
    s_->page_decay[2 * page] = high, s_->page_decay[2 * page + 1] = low;
    const uint32_t base = BaseAfter(c_.rows, segment_, TokenAt(kChunk - 1));
    for (uint32_t tile = 0; tile < tiles_; ++tile) {
      float* to = PageDecay(base, tile) + 2 * page;
      to[0] = high, to[1] = low;
    }
  }

  const std::byte* old_ = nullptr;  // the page that SolvePage solves, if it lives on
};

}  // namespace fenwick

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_FENWICK_FOLD_CUH_
