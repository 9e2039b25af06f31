// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Pool selection (pool_operations.h). PoolKeysKernel: a block has a chunk of a segment. Chunks that
// end in the step go to their pages first, and then the open one to the tail, whose old rows have
// been read by then. ChooseKernel: a block has a token, scores 64 pools at a time and keeps the
// best ones sorted; all keys of the order are different, so the order of sorting does not matter.
//
// A score's dot product is one chain of fused additions over D, a score one over the heads.
//
// Bytes expected: keys of all full pools once for each token, which for a prompt come from L2.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/pool_operations.h"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kChunk = 16;

__device__ const DeviceSegmentPages& PagesOf(const PoolPlanes& planes, uint32_t segment) {
  return planes.pages.segments[segment];
}
__device__ float* PagePools(const PoolPlanes& planes, const DeviceSegmentPages& pages,
                            uint64_t page) {
  const uint32_t slot =
      planes.pages.slots[pages.first + static_cast<uint32_t>(page - pages.first_page)];
  return reinterpret_cast<float*>(planes.slots.pages + slot * planes.slots.page_stride +
                                  planes.page_pools);
}
__device__ float* TailPlane(const PoolPlanes& planes, const DeviceSegment& segment, size_t offset) {
  return reinterpret_cast<float*>(planes.slots.tails + segment.tail * planes.slots.tail_stride +
                                  offset);
}

// --- keys of pools -------------------------------------------------------------------------------

constexpr uint32_t kKeyThreads = 128;

class ChunkPools {
 public:
  __device__ ChunkPools(const PoolKeysCall& call, const DeviceSegment& segment, uint64_t chunk)
      : c_(call),
        planes_(call.planes),
        segment_(segment),
        chunk_begin_(chunk * kChunk),
        keys_(TailPlane(planes_, segment, call.tail_keys)),
        gates_(TailPlane(planes_, segment, call.tail_gates)),
        pools_(TailPlane(planes_, segment, planes_.tail_pools)) {
    const uint64_t end = min(chunk_begin_ + kChunk, segment.position + segment.tokens);
    begin_ = segment.position > chunk_begin_
                 ? static_cast<uint32_t>(segment.position - chunk_begin_)
                 : 0;
    end_ = static_cast<uint32_t>(end - chunk_begin_);
  }

  // The pools that this segment fills in the chunk, to `to`.
  __device__ void Make(float* to, float* row, float* scratch) const {
    for (uint32_t p = begin_ / planes_.pool; p < end_ / planes_.pool; ++p) {
      __syncthreads();  // the row of the pool before has been stored
      for (uint32_t d = threadIdx.x; d < planes_.padded; d += kKeyThreads) {
        const bool real = d < planes_.key_dim;
        row[d] = !real ? 0.0f : c_.gates.data != nullptr ? UnderGates(p, d) : PlainMean(p, d);
      }
      __syncthreads();
      if (c_.gates.data == nullptr) Finish(p, row, scratch);
      for (uint32_t d = threadIdx.x; d < planes_.padded; d += kKeyThreads) {
        to[p * planes_.padded + d] = row[d];
      }
    }
  }

  // Those that were filled before, from the tail.
  __device__ void CopyOld(float* to) const {
    const uint32_t count = begin_ / planes_.pool * planes_.padded;
    for (uint32_t i = threadIdx.x; i < count; i += kKeyThreads) to[i] = pools_[i];
  }

  // The segment's rows.
  __device__ void KeepRows() const {
    for (uint32_t place = begin_; place < end_; ++place) {
      for (uint32_t d = threadIdx.x; d < planes_.padded; d += kKeyThreads) {
        const bool real = d < planes_.key_dim;
        const uint32_t at = place * planes_.padded + d;
        keys_[at] = real ? Input(c_.k, place, d) : 0.0f;
        if (c_.gates.data != nullptr) gates_[at] = real ? Input(c_.gates, place, d) : 0.0f;
      }
    }
  }

 private:
  __device__ float Input(const ConstFloatMatrix& x, uint32_t place, uint32_t d) const {
    const size_t token = segment_.first_token + (chunk_begin_ + place - segment_.position);
    return x.data[token * x.stride + d];
  }
  __device__ float Key(uint32_t place, uint32_t d) const {
    return place < begin_ ? keys_[place * planes_.padded + d] : Input(c_.k, place, d);
  }
  __device__ float Gate(uint32_t place, uint32_t i, uint32_t d) const {
    const float gate =
        place < begin_ ? gates_[place * planes_.padded + d] : Input(c_.gates, place, d);
    return gate + c_.biases[i * planes_.padded + d];
  }

  __device__ float UnderGates(uint32_t pool, uint32_t d) const {
    const uint32_t first = pool * planes_.pool;
    float top = Gate(first, 0, d);
    for (uint32_t i = 1; i < planes_.pool; ++i) top = fmaxf(top, Gate(first + i, i, d));
    float sum = 0.0f, weights = 0.0f;
    for (uint32_t i = 0; i < planes_.pool; ++i) {
      const float weight = expf(Gate(first + i, i, d) - top);
      weights += weight;
      sum = fmaf(weight, Key(first + i, d), sum);
    }
    return sum / weights;
  }
  __device__ float PlainMean(uint32_t pool, uint32_t d) const {
    const uint32_t first = pool * planes_.pool;
    float sum = Key(first, d);
    for (uint32_t i = 1; i < planes_.pool; ++i) sum += Key(first + i, d);
    return sum / static_cast<float>(planes_.pool);
  }

  // Norm and rotation of the row in shared memory.
  __device__ void Finish(uint32_t pool, float* row, float* scratch) const {
    float squares = 0.0f;
    for (uint32_t d = threadIdx.x; d < planes_.key_dim; d += kKeyThreads) {
      squares = fmaf(row[d], row[d], squares);
    }
    squares = BlockSum<kKeyThreads>(squares, scratch);
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(planes_.key_dim) + c_.norm_eps);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < planes_.key_dim; d += kKeyThreads) {
      row[d] = row[d] * scale * c_.norm_weight[d];
    }
    __syncthreads();
    const auto position = static_cast<float>(chunk_begin_ + pool * planes_.pool);
    for (uint32_t i = threadIdx.x; i < c_.half; i += kKeyThreads) {
      const float angle = position * c_.frequencies[i];
      const float cosine = cosf(angle) * c_.amplitude, sine = sinf(angle) * c_.amplitude;
      const float first = row[i], second = row[i + c_.half];
      row[i] = fmaf(first, cosine, -(second * sine));
      row[i + c_.half] = fmaf(second, cosine, first * sine);
    }
    __syncthreads();
  }

  const PoolKeysCall& c_;
  const PoolPlanes& planes_;
  const DeviceSegment& segment_;
  const uint64_t chunk_begin_;
  float *const keys_, *const gates_, *const pools_;
  uint32_t begin_, end_;  // places of the segment's tokens in the chunk
};

template <bool kOpen>
__global__ void __launch_bounds__(kKeyThreads)
    PoolKeysKernel(const __grid_constant__ PoolKeysCall call) {
  __shared__ float row[kMostDeviceIndexDim], scratch[kKeyThreads / 32];
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceSegment& segment = call.planes.rows.segments[blockIdx.x];
  if (segment.tokens == 0) return;
  const uint64_t open = (segment.position + segment.tokens) / kChunk;
  const uint64_t chunk = kOpen ? open : segment.position / kChunk + blockIdx.y;
  if (!kOpen && chunk >= open) return;
  const ChunkPools pools(call, segment, chunk);
  if (kOpen) {
    pools.Make(TailPlane(call.planes, segment, call.planes.tail_pools), row, scratch);
    pools.KeepRows();
  } else {
    float* const page = PagePools(call.planes, PagesOf(call.planes, blockIdx.x), chunk);
    pools.CopyOld(page);
    pools.Make(page, row, scratch);
  }
}

// --- choice --------------------------------------------------------------------------------------

constexpr uint32_t kThreads = 256;
constexpr uint32_t kTile = 64;                  // pools
constexpr uint32_t kGroups = kThreads / kTile;  // of heads
constexpr uint32_t kHeadsAtOnce = 4;            // of a thread
constexpr uint32_t kHeadStep = kGroups * kHeadsAtOnce;

// Orders scores as unsigned numbers: larger ones first, NaN before all, and of equal ones the
// earlier pool. None is 0.
__device__ uint64_t OrderKey(float score, uint32_t pool) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // -0 is 0
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  const uint32_t upper = score != score ? UINT32_MAX : ascending;
  return static_cast<uint64_t>(upper) << 32 | (UINT32_MAX - pool);
}

struct ChoiceSizes {
  uint32_t heads;   // rounded up
  uint32_t sorted;  // keys that are sorted together, a power of two

  __host__ __device__ explicit ChoiceSizes(const ChoosePoolsCall& call) {
    heads = (call.heads + kHeadStep - 1) / kHeadStep * kHeadStep;
    sorted = 512;
    while (sorted < 2 * call.most) sorted *= 2;
  }
  __host__ __device__ size_t SharedBytes(uint32_t padded) const {
    return sizeof(uint64_t) * sorted +
           sizeof(float) * (heads * (size_t{padded} + kTile + 1) + kTile * (padded + 1));
  }
};

// Descending.
__device__ void Sort(uint64_t* keys, uint32_t count) {
  for (uint32_t size = 2; size <= count; size *= 2) {
    for (uint32_t step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < count / 2; i += kThreads) {
        const uint32_t low = i / step * 2 * step + i % step, high = low + step;
        const bool descends = (low & size) == 0;
        const uint64_t a = keys[low], b = keys[high];
        if ((a < b) == descends) keys[low] = b, keys[high] = a;
      }
    }
  }
  __syncthreads();
}

class TokenChoice {
 public:
  __device__ TokenChoice(const ChoosePoolsCall& call, uint32_t token, std::byte* memory)
      : c_(call),
        planes_(call.planes),
        sizes_(call),
        token_(token),
        index_(SegmentOf(call.planes.rows, token)),
        segment_(call.planes.rows.segments[index_]) {
    keys_ = reinterpret_cast<uint64_t*>(memory);
    q_ = reinterpret_cast<float*>(keys_ + sizes_.sorted);
    dots_ = q_ + sizes_.heads * planes_.padded;
    weights_ = dots_ + sizes_.heads * kTile;
    pool_keys_ = weights_ + sizes_.heads;
  }

  __device__ void Run() {
    if (segment_.tokens == 0) return;
    const uint64_t position = segment_.position + (token_ - segment_.first_token);
    const auto pools = static_cast<uint32_t>((position + 1) / planes_.pool);
    const uint32_t count = min(pools, c_.most);
    if (pools > c_.most) Rank(pools);
    float* const chosen = c_.chosen.data + size_t{token_} * c_.chosen.stride;
    if (threadIdx.x == 0) chosen[0] = static_cast<float>(count);
    for (uint32_t i = threadIdx.x; i < c_.most; i += kThreads) {
      const uint32_t number = pools > c_.most ? NumberAt(i) : i;
      chosen[1 + i] = i < count ? static_cast<float>(number) : 0.0f;
    }
  }

 private:
  // After Rank the numbers descend.
  __device__ uint32_t NumberAt(uint32_t i) const {
    return static_cast<uint32_t>(keys_[c_.most - 1 - i]);
  }

  // The best pools' numbers in the first places.
  __device__ void Rank(uint32_t pools) {
    StageQueries();
    for (uint32_t i = threadIdx.x; i < sizes_.sorted; i += kThreads) keys_[i] = 0;
    uint32_t filled = c_.most;
    for (uint32_t first = 0; first < pools; first += kTile) {
      if (filled + kTile > sizes_.sorted) {
        Sort(keys_, sizes_.sorted);
        filled = c_.most;
        for (uint32_t i = filled + threadIdx.x; i < sizes_.sorted; i += kThreads) keys_[i] = 0;
      }
      ScoreTile(first, min(kTile, pools - first), keys_ + filled);
      filled += kTile;
    }
    Sort(keys_, sizes_.sorted);
    for (uint32_t i = threadIdx.x; i < sizes_.sorted; i += kThreads) {
      keys_[i] = i < c_.most ? UINT32_MAX - static_cast<uint32_t>(keys_[i]) : 0;
    }
    // Numbers are not 0 but for pool 0, which then is among the zeros behind the others.
    Sort(keys_, sizes_.sorted);
  }

  __device__ void StageQueries() {
    const float* const q = c_.q.data + size_t{token_} * c_.q.stride;
    const float* const weights = c_.weights.data + size_t{token_} * c_.weights.stride;
    for (uint32_t i = threadIdx.x; i < sizes_.heads * planes_.padded; i += kThreads) {
      const uint32_t head = i / planes_.padded, d = i % planes_.padded;
      const bool real = head < c_.heads && d < planes_.key_dim;
      q_[i] = real ? q[head * c_.head_stride + d] : 0.0f;
    }
    for (uint32_t h = threadIdx.x; h < c_.heads; h += kThreads) {
      weights_[h] = c_.weights.data == nullptr ? 1.0f : weights[h];
    }
  }

  __device__ void ScoreTile(uint32_t first, uint32_t count, uint64_t* to) {
    __syncthreads();
    StageKeys(first, count);
    __syncthreads();
    const uint32_t pool = threadIdx.x % kTile, group = threadIdx.x / kTile;
    for (uint32_t h = group * kHeadsAtOnce; h < sizes_.heads; h += kHeadStep) Dots(pool, h);
    __syncthreads();
    if (threadIdx.x >= kTile) return;
    float score = 0.0f;
    for (uint32_t h = 0; h < c_.heads; ++h) {
      const float dot = dots_[h * kTile + pool];
      score = fmaf(weights_[h], dot < 0.0f ? 0.0f : dot, score);
    }
    to[pool] = pool < count ? OrderKey(score, first + pool) : 0;
  }

  // Zeros behind the last pool.
  __device__ void StageKeys(uint32_t first, uint32_t count) {
    const uint32_t in_chunk = kChunk / planes_.pool, fours = planes_.padded / 4;
    const uint64_t open = (segment_.position + segment_.tokens) / kChunk;
    const DeviceSegmentPages& pages = PagesOf(planes_, index_);
    for (uint32_t i = threadIdx.x; i < kTile * fours; i += kThreads) {
      const uint32_t at = i / fours, d = i % fours * 4, pool = first + at;
      float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
      if (at < count) {
        const uint64_t chunk = pool / in_chunk;
        const float* const from = chunk < open ? PagePools(planes_, pages, chunk)
                                               : TailPlane(planes_, segment_, planes_.tail_pools);
        x = LoadFour(from + pool % in_chunk * planes_.padded + d);
      }
      float* const to = pool_keys_ + at * (planes_.padded + 1) + d;
      to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
    }
  }

  // Of the heads from `head` on, a chain over D each.
  __device__ void Dots(uint32_t pool, uint32_t head) {
    const float* const key = pool_keys_ + pool * (planes_.padded + 1);
    float sum[kHeadsAtOnce] = {};
    for (uint32_t d = 0; d < planes_.padded; d += 4) {
      const float k[4] = {key[d], key[d + 1], key[d + 2], key[d + 3]};
#pragma unroll
      for (uint32_t h = 0; h < kHeadsAtOnce; ++h) {
        const float4 q = LoadFour(q_ + (head + h) * planes_.padded + d);
        sum[h] = fmaf(q.x, k[0], sum[h]);
        sum[h] = fmaf(q.y, k[1], sum[h]);
        sum[h] = fmaf(q.z, k[2], sum[h]);
        sum[h] = fmaf(q.w, k[3], sum[h]);
      }
    }
#pragma unroll
    for (uint32_t h = 0; h < kHeadsAtOnce; ++h) dots_[(head + h) * kTile + pool] = sum[h];
  }

  const ChoosePoolsCall& c_;
  const PoolPlanes& planes_;
  const ChoiceSizes sizes_;
  const uint32_t token_, index_;
  const DeviceSegment& segment_;
  uint64_t* keys_;    // [sorted]: the best ones, then those of the tiles since
  float* q_;          // [heads, Dp]
  float* dots_;       // [heads, kTile]
  float* weights_;    // [heads]
  float* pool_keys_;  // [kTile, Dp + 1]
};

__global__ void __launch_bounds__(kThreads)
    ChooseKernel(const __grid_constant__ ChoosePoolsCall call) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  AwaitLastKernel();
  TokenChoice(call, blockIdx.x, memory).Run();
}

}  // namespace

void LaunchPoolKeys(const PoolKeysCall& call, const LaunchContext& context) {
  if (call.planes.padded > kMostDeviceIndexDim) return context.Check(cudaErrorInvalidValue);
  const DeviceRows& rows = call.planes.rows;
  const uint32_t chunks = rows.single ? 1 : rows.tokens / kChunk + 1;
  context.Run(PoolKeysKernel<false>, dim3(rows.segment_count, chunks), kKeyThreads, 0, call);
  context.Run(PoolKeysKernel<true>, dim3(rows.segment_count), kKeyThreads, 0, call);
}

void LaunchChoosePools(const ChoosePoolsCall& call, const LaunchContext& context) {
  if (call.most > kMostChosenPools || call.planes.padded > kMostDeviceIndexDim ||
      call.heads > kMostDeviceIndexHeads) {
    return context.Check(cudaErrorInvalidValue);
  }
  static const cudaError_t prepared =
      cudaFuncSetAttribute(ChooseKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10);
  context.Check(prepared);
  const size_t shared = ChoiceSizes(call).SharedBytes(call.planes.padded);
  context.Run(ChooseKernel, dim3(call.planes.rows.tokens), kThreads, shared, call);
}

}  // namespace rivulet::cuda
