// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warps of sums_stream.cu that bring and prepare what all pieces of a group share.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_STREAM_KEYS_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_STREAM_KEYS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/rehearsal.cuh"
#include "kernels/device/sums_stream.cuh"

namespace rivulet::cuda {

// Puts the token's key behind the tail's, rounds the queries, and leaves the scores of all rows:
// with decays by unit as the fp32 accumulators [lane, 4] of a product of keys and queries, before
// their decays; with decays by channel as bf16 [columns, C + pad] with them, where the queries have
// their decays too, the decays of the state are beside them, and keys that are to be folded have
// those to the border.
//
// With decays by channel several warps do this, each for some of the rows.
template <typename Form>
class KeyWarp : public StreamWork<Form> {
  using Base = StreamWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;
  static constexpr uint32_t kKey = Form::kKey, kStride = Form::kStride;
  static constexpr uint32_t kNumbers = kKey / 32;  // of a row for a lane: lane, lane + 32, ...
  static constexpr uint32_t kRows = kChunk / Form::kKeyWarps;  // of a warp
  static constexpr uint32_t kThreads = Form::kKeyWarps * 32;
  // Rows that are scored side by side: all, but where their numbers would not fit into registers.
  static constexpr uint32_t kScored = kNumbers > 4 && !Form::kBf16State ? kRows / 2 : kRows;
  using RowNumbers = float[kRows][kNumbers];
  using ScoredNumbers = float[kScored][kNumbers];

 public:
  // `part`: which of the key warps it is.
  __device__ KeyWarp(const RecurCall& call, const StreamLayout& layout, std::byte* memory,
                     uint32_t part)
      : Base(call, layout, memory), thread_(part * 32 + lane_), first_row_(part * kRows) {}

  // The tail's keys of the first group are asked for before the kernel before has ended, as
  // NumberWarp does with values.
  __device__ void Run() {
    bool waited = false;
    for (Ring key;; key.Advance(kKeyBuffers)) {
      WaitBarrier(&barriers_.key_begun[key.at], key.parity);
      const StageHeader header = Base::KeyHeader(key.at);
      if (header.last != 0) return;
      Base::Take(header);
      keys_ = Base::Keys(key.at);
      copied_ = {&barriers_.key_copied[key.at], key.parity};
      CopyKeys();
      if (!waited) AwaitLastKernel();
      waited = true;
      CopyTokenKeys();
      ArriveAfterCopies(copied_.barrier);
      if (Base::Empty()) {
        AwaitCopies();  // the barrier's next phase must not begin before
      } else {
        Form::kChannel ? PrepareChannels() : Prepare();
      }
      __syncwarp();
      if (lane_ == 0) Arrive(&barriers_.key_full[key.at]);
    }
  }

 private:
  template <typename T>
  __device__ T* At(uint32_t offset) const {
    return reinterpret_cast<T*>(keys_ + offset);
  }
  __device__ bf16* Row(uint32_t s) const { return At<bf16>(0) + s * kStride; }
  __device__ const float* TokenRow(uint32_t column) const {
    if (c_.delta && column == 0) return At<float>(l_.token_k);
    return At<float>(l_.token_q) + (c_.delta ? 0 : column) * kKey;
  }

  // --- copies ------------------------------------------------------------------------------------

  __device__ void CopyKeys() const {
    constexpr uint32_t kShift = kKey == 64 ? 3 : kKey == 128 ? 4 : 5;
    static_assert(kKey == 8u << kShift);
    if (Base::Empty()) return;
    Base::CopyRows(keys_, kStride * 2, this->KeyRow(0), kKey, kShift, kKey / 8, thread_, kThreads);
  }
  __device__ void CopyFloats(uint32_t to, const float* from, uint32_t count) const {
    for (uint32_t i = thread_ * 4; i < count; i += kThreads * 4) {
      CopyAsync(keys_ + to + i * 4, from + i);
    }
  }
  __device__ void CopyTokenKeys() const {
    if (Base::Empty()) return;
    const size_t token = Base::Token();
    const uint32_t key = Base::KeyOf();
    const uint32_t query = c_.query_per_head ? this->unit_ * c_.unit_heads : key;
    CopyFloats(l_.token_k, c_.k + token * c_.k_stride + size_t{key} * kKey, kKey);
    CopyFloats(l_.token_q, c_.q + token * c_.q_stride + size_t{query} * kKey, l_.queries * kKey);
  }
  __device__ void AwaitCopies() const { WaitBarrier(copied_.barrier, copied_.parity); }

  // --- the token's key ---------------------------------------------------------------------------

  __device__ void StoreTokenKey() const {
    const bool keeps = this->split_ == 0 && this->unit_ % c_.units_per_key == 0;
    for (uint32_t d = lane_ * 4; d < kKey; d += 128) {
      const float4 x = *reinterpret_cast<float4*>(At<float>(l_.token_k) + d);
      StoreFour(Row(this->place_) + d, x);
      if (keeps) StoreFour(this->KeyRow(this->place_) + d, x);
    }
  }

  // --- decays by unit ----------------------------------------------------------------------------

  __device__ void Prepare() const {
    AwaitCopies();
    StoreTokenKey();
    for (uint32_t column = 0; column < l_.columns; ++column) {
      for (uint32_t d = lane_ * 4; d < kKey; d += 128) {
        StoreFour(At<bf16>(l_.q) + column * kStride + d,
                  *reinterpret_cast<const float4*>(TokenRow(column) + d));
      }
    }
    __syncwarp();
    const uint32_t g = lane_ / 4, t = lane_ % 4;
    const bool present = g < l_.columns;
    float score[4] = {};
#pragma unroll
    for (uint32_t kt = 0; kt < Form::kKeyTiles; ++kt) {
      const bf16* query = At<bf16>(l_.q) + g * kStride + kt * 16 + 2 * t;
      const bf16* key = Row(g) + kt * 16 + 2 * t;
      MultiplyAdd(score,
                  {Two(key), Two(key + 8 * kStride), Two(key + 8), Two(key + 8 * kStride + 8)},
                  Two(query, present), Two(query + 8, present));
    }
    At<float4>(l_.scores)[lane_] = {score[0], score[1], score[2], score[3]};
  }

  // --- decays by channel -------------------------------------------------------------------------

  // All that comes from device memory is asked for before any of it is used.
  __device__ void PrepareChannels() {
    if (first_row_ > this->place_) return StoreNoScores();
    RowNumbers decays;
    float before[kNumbers], own[kNumbers];
    FetchTokenDecays(before, own);
    FetchDecays(decays);
    AwaitCopies();
    if (this->place_ / kRows * kRows == first_row_) StoreTokenKey();
    TakeDecays(before, own);
    if (first_row_ == 0) ScaleQueries();
    __syncwarp();
    ScoreRows(decays);
  }

  __device__ void ScaleQueries() const {
    for (uint32_t column = 0; column < l_.columns; ++column) {
#pragma unroll
      for (uint32_t j = 0; j < kNumbers; ++j) {
        const uint32_t d = lane_ + 32 * j;
        const float scaled = TokenRow(column)[d] * At<float>(l_.state_decay)[d];
        At<bf16>(l_.q)[column * kStride + d] = __float2bfloat16_rn(scaled);
      }
    }
  }

  // Those cumulative to the token before, and the token's own.
  __device__ void FetchTokenDecays(float (&before)[kNumbers], float (&own)[kNumbers]) const {
    const float* g = c_.g + Base::Token() * c_.g_stride +
                     size_t{this->unit_ / c_.units_per_decay} * kKey + lane_;
    const bool first = this->place_ == 0;
    const float* row = this->ChannelDecays(first ? 0 : this->place_ - 1) + lane_;
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) before[j] = first ? 0.0f : ReadLate(row + 32 * j);
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) own[j] = ReadLate(g + 32 * j);
  }

  // Cumulative decays of the token, and what they make of the state.
  __device__ void TakeDecays(const float (&before)[kNumbers], const float (&own)[kNumbers]) {
    const bool shares = first_row_ == 0;  // what all warps have
    const bool keeps = shares && this->split_ == 0 && this->unit_ % c_.units_per_decay == 0;
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t d = lane_ + 32 * j;
      const float sum = before[j] + own[j];
      decays_[j] = sum;
      if (shares) At<float>(l_.state_decay)[d] = expf(sum);
      if (keeps) this->ChannelDecays(this->place_)[d] = sum;
    }
  }

  // The scores of the warp's rows, whose cumulative decays are `decays`, kScored rows side by side
  // and without branches; those after the token's are zero.
  __device__ void ScoreRows(const RowNumbers& decays) const {
#pragma unroll
    for (uint32_t first = 0; first < kRows; first += kScored) {
      ScoredNumbers keys, factors;
      TakeRows(first, decays, keys, factors);
      for (uint32_t column = 0; column < l_.columns; ++column) {
        StoreScores(column, first_row_ + first, keys, factors);
      }
      if (this->place_ + 1 == kChunk) ScaleKeys(first_row_ + first, keys, factors);
    }
  }

  // Of rows `first` of the warp and those behind it: keys, and what their decays make of them.
  __device__ void TakeRows(uint32_t first, const RowNumbers& decays, ScoredNumbers& keys,
                           ScoredNumbers& factors) const {
#pragma unroll
    for (uint32_t i = 0; i < kScored; ++i) {
      const uint32_t s = first_row_ + first + i;
#pragma unroll
      for (uint32_t j = 0; j < kNumbers; ++j) {
        // Rows from the token's on have its decays.
        const float decay = s < this->place_ ? decays[first + i][j] : decays_[j];
        factors[i][j] = expf(decays_[j] - decay);
        keys[i][j] = __bfloat162float(Row(s)[lane_ + 32 * j]);
      }
    }
  }

  // For the fold: to the border.
  __device__ void ScaleKeys(uint32_t first, const ScoredNumbers& keys,
                            const ScoredNumbers& factors) const {
#pragma unroll
    for (uint32_t i = 0; i < kScored * kNumbers; ++i) {
      const uint32_t row = i / kNumbers, j = i % kNumbers;
      Row(first + row)[lane_ + 32 * j] = __float2bfloat16_rn(keys[row][j] * factors[row][j]);
    }
  }

  // Of rows that there are not yet.
  __device__ void StoreNoScores() const {
    for (uint32_t i = lane_; i < l_.columns * kRows; i += 32) {
      At<bf16>(l_.scores)[i / kRows * (kChunk + kPad) + first_row_ + i % kRows] = bf16{};
    }
  }

  // Cumulative decays of the warp's rows that are before the token's.
  __device__ void FetchDecays(RowNumbers& decays) const {
    const float* row = this->ChannelDecays(first_row_) + lane_;
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < kNumbers; ++j) {
        if (first_row_ + i < this->place_) decays[i][j] = ReadLate(row + i * kKey + 32 * j);
      }
    }
  }

  __device__ void StoreScores(uint32_t column, uint32_t first, const ScoredNumbers& keys,
                              const ScoredNumbers& factors) const {
    const float* token = TokenRow(column) + lane_;
    float sum[kScored] = {};
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const float x = token[32 * j];
#pragma unroll
      for (uint32_t i = 0; i < kScored; ++i) sum[i] = fmaf(x * keys[i][j], factors[i][j], sum[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kScored; ++i) sum[i] = WarpSum(sum[i]);
    if (lane_ != 0) return;
    const bool of_key = c_.delta && column == 0;
#pragma unroll
    for (uint32_t i = 0; i < kScored; ++i) {
      const uint32_t s = first + i;
      const bool seen = s <= this->place_;
      if (of_key) At<float>(l_.key_scores)[s] = sum[i];
      At<bf16>(l_.scores)[column * (kChunk + kPad) + s] =
          __float2bfloat16_rn(seen && !of_key ? sum[i] : 0.0f);
    }
  }

  struct Phase {
    uint64_t* barrier;
    uint32_t parity;
  };

  const uint32_t thread_;  // of the key warps
  const uint32_t first_row_;
  Phase copied_;
  std::byte* keys_ = nullptr;
  float decays_[kNumbers];  // cumulative, of the token
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_STREAM_KEYS_CUH_
