// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What kernels of RWKV-6's and RWKV-7's time mixing share (time_mix.cu says how a head is worked
// on): a head of a segment, its rows and its state.
#ifndef RIVULET_KERNELS_DEVICE_TIME_MIX_CUH_
#define RIVULET_KERNELS_DEVICE_TIME_MIX_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/rwkv_operations.h"

namespace rivulet::cuda {

namespace time_mix {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kHeldFours = 4;  // of channels, in a thread
constexpr uint32_t kHeld = 4 * kHeldFours;
constexpr uint32_t kColumns = 4;  // of S, in a thread
constexpr uint32_t kMostThreads = 256;

__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <typename Number>
__device__ float Rounded(float x) {
  return AsStored(static_cast<const Number*>(nullptr), x);
}

// Threads of a block and rows in shared memory.
struct Tiling {
  uint32_t lanes;    // that share a column
  uint32_t columns;  // of S at a time
  uint32_t stride;   // of rows over channels

  __host__ __device__ Tiling(uint32_t padded_key, uint32_t value_dim) {
    lanes = 1;
    while (lanes * kHeld < padded_key) lanes *= 2;
    const uint32_t step = kColumns * 32 / lanes;  // of whole warps
    columns = min((value_dim + step - 1) / step * step, kColumns * kMostThreads / lanes);
    stride = lanes * kHeld;
  }
  __host__ __device__ uint32_t threads() const { return lanes * columns / kColumns; }
  __host__ size_t SharedBytes(bool low_rank) const {
    const size_t key_rows = low_rank ? 5 : 3, value_rows = low_rank ? 2 : 1;
    return sizeof(float) * kChunk * (key_rows * stride + value_rows * columns);
  }
};

// A chunk's rows in shared memory. RWKV-6 has no b, a and u.
struct ChunkRows {
  float *k, *w, *r, *b, *a;  // [C, stride]
  float *v, *u;              // [C, columns]

  __device__ ChunkRows(float* memory, const Tiling& tiling, bool low_rank) {
    const size_t rows = kChunk * size_t{tiling.stride};
    k = memory, w = k + rows, r = w + rows, b = r + rows, a = b + rows;
    v = low_rank ? a + rows : r + rows;
    u = v + kChunk * tiling.columns;
  }
};

template <typename Row, typename State, bool kLowRank>
class Head {
 public:
  __device__ Head(const TimeMixCall& call, float* memory)
      : c_(call),
        segment_(call.rows.segments[blockIdx.y]),
        head_(blockIdx.x),
        tiling_(call.padded_key, call.value_dim),
        rows_(memory, tiling_, kLowRank),
        lane_(threadIdx.x % tiling_.lanes),
        column_(threadIdx.x / tiling_.lanes * kColumns) {}

 protected:
  static constexpr uint32_t kParts = kLowRank ? 2 : 1;  // of a row of keys or values

  // --- where things are --------------------------------------------------------------------------

  __device__ uint32_t Value() const { return first_ + column_; }  // first column of the thread
  // Whether the padded head has column Value() + c.
  __device__ bool Has(uint32_t c) const { return Value() + c < c_.padded_value; }

  __device__ State* Matrix(uint32_t slot) const {
    const size_t numbers = size_t{c_.padded_key} * c_.padded_value;
    return reinterpret_cast<State*>(c_.slots.bases + slot * c_.slots.base_stride +
                                    c_.state_offset) +
           head_ * numbers + size_t{Value()} * c_.padded_key;
  }
  // A row of this head in a tail plane of rows `width` wide.
  template <typename Number>
  __device__ Number* TailRow(size_t offset, uint32_t place, uint32_t width) const {
    return reinterpret_cast<Number*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride +
                                     offset) +
           (size_t{head_} * kChunk + place) * width;
  }
  __device__ Row* KeyRow(uint32_t place) const {
    return TailRow<Row>(c_.key_offset, place, kParts * c_.padded_key);
  }
  __device__ Row* ValueRow(uint32_t place) const {
    return TailRow<Row>(c_.value_offset, place, kParts * c_.padded_value);
  }
  __device__ float* DecayRow(uint32_t place) const {
    return TailRow<float>(c_.decay_offset, place, c_.padded_key);
  }
  __device__ const float* KeyColumns(const ConstFloatMatrix& x, uint32_t token) const {
    return x.data + size_t{token} * x.stride + size_t{head_} * c_.key_dim;
  }
  __device__ size_t ValueColumns(size_t stride, uint32_t token) const {
    return size_t{token} * stride + size_t{head_} * c_.value_dim;
  }

  // --- the recurrence ----------------------------------------------------------------------------

  __device__ float4 StagedU(uint32_t place) const {
    if constexpr (kLowRank) return *ValuesAt(rows_.u, place);
    return {};
  }
  __device__ float4* ValuesAt(float* rows, uint32_t place) const {
    return reinterpret_cast<float4*>(rows + place * tiling_.columns + column_);
  }

  // S after the token whose rows are staged. Gives what is read of it, and u.
  __device__ float4 Advance(uint32_t place, float4 v, float4& u) {
    float4 o;
    if constexpr (kLowRank) {
      u = Dot(rows_.a + place * tiling_.stride);
      u = {Rounded<Row>(u.x), Rounded<Row>(u.y), Rounded<Row>(u.z), Rounded<Row>(u.w)};
      Update(place, v, u);
      o = Dot(rows_.r + place * tiling_.stride);
    } else {
      o = Dot(rows_.r + place * tiling_.stride);
      Update(place, v, u);
    }
    return o;
  }

  __device__ void KeepValues(uint32_t place, float4 v, float4 u) const {
    Row* const row = ValueRow(place);
    StoreFour(row + Value(), v);
    if constexpr (kLowRank) StoreFour(row + c_.padded_value + Value(), u);
  }

  template <typename Four>
  static __device__ auto& Component(Four& x, uint32_t i) {
    return (&x.x)[i];
  }

  __device__ const float4* Fours(const float* row) const {
    return reinterpret_cast<const float4*>(row) + lane_;
  }

  // S = diag(w) S + bᵀ u + kᵀ v
  __device__ void Update(uint32_t place, float4 v, float4 u) {
    const uint32_t row = place * tiling_.stride;
    const float4 *w = Fours(rows_.w + row), *k = Fours(rows_.k + row);
#pragma unroll
    for (uint32_t j = 0; j < kHeldFours; ++j) {
      const float4 wj = w[j * tiling_.lanes], kj = k[j * tiling_.lanes];
      float4 bj = {};
      if constexpr (kLowRank) bj = Fours(rows_.b + row)[j * tiling_.lanes];
#pragma unroll
      for (uint32_t c = 0; c < kColumns; ++c) {
        const float vc = Component(v, c), uc = Component(u, c);
        float4& s = s_[c][j];
        s.x = Updated(s.x, wj.x, bj.x, uc, kj.x, vc);
        s.y = Updated(s.y, wj.y, bj.y, uc, kj.y, vc);
        s.z = Updated(s.z, wj.z, bj.z, uc, kj.z, vc);
        s.w = Updated(s.w, wj.w, bj.w, uc, kj.w, vc);
      }
    }
  }
  static __device__ float Updated(float s, float w, float b, float u, float k, float v) {
    const float kept = w * s;
    if constexpr (kLowRank) return fmaf(k, v, fmaf(b, u, kept));
    return fmaf(k, v, kept);
  }

  // x S of the thread's columns, in all of their lanes.
  __device__ float4 Dot(const float* row) const {
    const float4* x = Fours(row);
    float4 sum[kColumns] = {};
#pragma unroll
    for (uint32_t j = 0; j < kHeldFours; ++j) {
      const float4 xj = x[j * tiling_.lanes];
#pragma unroll
      for (uint32_t c = 0; c < kColumns; ++c) {
        sum[c].x = fmaf(xj.x, s_[c][j].x, sum[c].x);
        sum[c].y = fmaf(xj.y, s_[c][j].y, sum[c].y);
        sum[c].z = fmaf(xj.z, s_[c][j].z, sum[c].z);
        sum[c].w = fmaf(xj.w, s_[c][j].w, sum[c].w);
      }
    }
    float4 totals;
#pragma unroll
    for (uint32_t c = 0; c < kColumns; ++c) {
      float total = (sum[c].x + sum[c].y) + (sum[c].z + sum[c].w);
      for (uint32_t step = tiling_.lanes / 2; step > 0; step /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, step);
      }
      Component(totals, c) = total;
    }
    return totals;
  }

  // --- state and tail ----------------------------------------------------------------------------

  // visit(numbers, offset, held) of the fours of S that this thread has, offsets from its first
  // column.
  template <typename Visit>
  __device__ void ForEachFour(Visit&& visit) {
#pragma unroll
    for (uint32_t c = 0; c < kColumns; ++c) {
#pragma unroll
      for (uint32_t j = 0; j < kHeldFours; ++j) {
        const uint32_t d = (j * tiling_.lanes + lane_) * 4;
        visit(s_[c][j], c * c_.padded_key + d, Has(c) && d < c_.padded_key);
      }
    }
  }

  __device__ void LoadState() {
    const bool fresh = segment_.position < kChunk;
    const State* const from = Matrix(segment_.base_in);
    ForEachFour([&](float4& s, uint32_t offset, bool held) {
      s = {0.0f, 0.0f, 0.0f, 0.0f};
      if (held && !fresh) s = LoadFour(from + offset);
    });
  }

  // Behind this token. What nothing reads is not stored; S is rounded at all borders.
  __device__ void Fold(uint32_t token, bool last) {
    State* const to = Matrix(BaseAfter(c_.rows, segment_, token));
    const bool stores = KeepsBaseAfter(c_.rows, segment_, token, last);
    ForEachFour([&](float4& s, uint32_t offset, bool held) {
      s = {Rounded<State>(s.x), Rounded<State>(s.y), Rounded<State>(s.z), Rounded<State>(s.w)};
      if (stores && held) StoreFour(to + offset, s);
    });
  }

  template <typename Number>
  static __device__ void StageFour(float* rows, uint32_t i, bool real, const Number* from) {
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
    reinterpret_cast<float4*>(rows)[i] = real ? LoadFour(from) : zeros;
  }

  // The first `count` rows. Those of values have the padding that the plane has.
  __device__ void StageTail(uint32_t count) {
    const uint32_t fours = tiling_.stride / 4, values = tiling_.columns / 4;
    for (uint32_t i = threadIdx.x; i < count * fours; i += blockDim.x) {
      const uint32_t place = i / fours, d = i % fours * 4;
      const bool real = d < c_.padded_key;
      StageFour(rows_.k, i, real, KeyRow(place) + d);
      if constexpr (kLowRank) StageFour(rows_.b, i, real, KeyRow(place) + c_.padded_key + d);
      StageFour(rows_.w, i, real, DecayRow(place) + d);
    }
    for (uint32_t i = threadIdx.x; i < count * values; i += blockDim.x) {
      const uint32_t place = i / values, e = first_ + i % values * 4;
      const bool real = e < c_.padded_value;
      StageFour(rows_.v, i, real, ValueRow(place) + e);
      if constexpr (kLowRank) StageFour(rows_.u, i, real, ValueRow(place) + c_.padded_value + e);
    }
  }

  __device__ void KeepKeys(uint32_t place, uint32_t count) {
    const uint32_t fours = c_.padded_key / 4;
    for (uint32_t i = threadIdx.x; i < count * fours; i += blockDim.x) {
      const uint32_t row = place + i / fours, d = i % fours * 4, from = row * tiling_.stride + d;
      StoreFour(KeyRow(row) + d, *reinterpret_cast<const float4*>(rows_.k + from));
      StoreFour(DecayRow(row) + d, *reinterpret_cast<const float4*>(rows_.w + from));
      if constexpr (!kLowRank) continue;
      StoreFour(KeyRow(row) + c_.padded_key + d, *reinterpret_cast<const float4*>(rows_.b + from));
    }
  }

  const TimeMixCall& c_;
  const DeviceSegment segment_;
  const uint32_t head_;
  const Tiling tiling_;
  const ChunkRows rows_;
  const uint32_t lane_, column_;  // the first of the thread's, from first_ on
  uint32_t first_ = 0;            // of the columns that are worked on
  float4 s_[kColumns][kHeldFours];
};

}  // namespace time_mix

// time_mix_decode.cu: one token of each segment. False: not such a call.
bool LaunchTimeMixDecode(const TimeMixCall& call, bool fp32_rows, const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_TIME_MIX_CUH_
