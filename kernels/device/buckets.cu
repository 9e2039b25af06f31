// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// ANNA's hashes, and the read and fold of its buckets (buckets_operations.h).
//
// One block handles a head of a segment of any length. It takes the segment's tokens a chunk at a
// time, so the tables that a fold writes are read by this block alone. Nothing depends on how many
// warps a block has.
//
// Bytes expected, a token and head: ℓ·Ep·4 of buckets, C·(ℓ·4 + Ep·row) of the tail at most, and in
// a fold, once in C tokens, C·ℓ·Ep·8 (fewer where rows share a bucket). A fold into another slot
// copies all tables first: once for each segment, and for each further base that its folds leave.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/buckets_operations.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/warp_scan.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kChunk = 16;  // C
constexpr int kMostShared = 200 << 10;

// --- hashes ------------------------------------------------------------------------------------

constexpr uint32_t kHashTokens = 16;             // of a block
constexpr uint32_t kHashRows = 2 * kHashTokens;  // a query and a key of each
constexpr uint32_t kHashWarps = 8;
constexpr uint32_t kWarpRows = 8;  // that share a load of a projection
constexpr uint32_t kPanel = 16;    // outputs that are stored side by side

__device__ uint32_t RowStride(const HashCall& call) { return (call.key_dim + 3) / 4 * 4; }
__device__ uint32_t SignWords(const HashCall& call) {
  return (call.tables * call.hashes + 31) / 32;
}

// A block's rows: row 2i is token i's query, row 2i + 1 its key.
struct HashRows {
  const HashCall& call;
  uint32_t first, count;
  float* x;  // [kHashRows, stride] in shared memory

  __device__ void Load() const {
    const uint32_t stride = RowStride(call);
    for (uint32_t i = threadIdx.x; i < count * stride; i += kHashWarps * 32) {
      const uint32_t row = i / stride, column = i % stride;
      const ConstFloatMatrix& from = row % 2 == 0 ? call.q : call.k;
      x[i] = column < call.key_dim
                 ? from.data[(first + row / 2) * from.stride + blockIdx.x * call.key_dim + column]
                 : 0.0f;
    }
  }
  __device__ void Store(uint32_t row, uint32_t table, uint32_t bucket) const {
    const FloatMatrix& to = row % 2 == 0 ? call.q_buckets : call.k_buckets;
    to.data[(first + row / 2) * to.stride + blockIdx.x * call.tables + table] =
        static_cast<float>(bucket);
  }
};

// sum = the chains of one output for kWarpRows rows of shared memory.
__device__ void Project(const float* panels, uint32_t output, uint32_t key_dim, const float* x,
                        uint32_t stride, float (&sum)[kWarpRows]) {
  const float* weights = panels + output / kPanel * key_dim * kPanel + output % kPanel;
#pragma unroll
  for (uint32_t r = 0; r < kWarpRows; ++r) sum[r] = 0.0f;
  uint32_t i = 0;
#pragma unroll 4
  for (; i + 4 <= key_dim; i += 4) {
    float w[4];
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) w[j] = weights[(i + j) * kPanel];
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; ++r) {
      const float4 four = *reinterpret_cast<const float4*>(x + r * stride + i);
      sum[r] = fmaf(four.x, w[0], sum[r]);
      sum[r] = fmaf(four.y, w[1], sum[r]);
      sum[r] = fmaf(four.z, w[2], sum[r]);
      sum[r] = fmaf(four.w, w[3], sum[r]);
    }
  }
  for (; i < key_dim; ++i) {
    const float w = weights[i * kPanel];
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; ++r) sum[r] = fmaf(x[r * stride + i], w, sum[r]);
  }
}

// Bits [first, first + count) of a row of words, count < 32.
__device__ uint32_t BitsAt(const uint32_t* words, uint32_t first, uint32_t count) {
  const uint32_t word = first / 32, shift = first % 32;
  uint64_t window = words[word];
  if (shift + count > 32) window |= static_cast<uint64_t>(words[word + 1]) << 32;
  return static_cast<uint32_t>(window >> shift) & ((1u << count) - 1);
}

// A warp takes 32 outputs of kWarpRows rows. words [kHashRows, SignWords] in shared memory.
__device__ void SimHash(const HashRows& rows, const float* panels, uint32_t* words) {
  const HashCall& call = rows.call;
  const uint32_t lane = threadIdx.x % 32, outputs = call.tables * call.hashes;
  const uint32_t stride = RowStride(call), width = SignWords(call);
  const uint32_t groups = (rows.count + kWarpRows - 1) / kWarpRows;
  for (uint32_t item = threadIdx.x / 32; item < width * groups; item += kHashWarps) {
    const uint32_t word = item / groups, row = item % groups * kWarpRows;
    const uint32_t output = word * 32 + lane;
    float sum[kWarpRows] = {};
    if (output < outputs) {
      Project(panels, output, call.key_dim, rows.x + row * stride, stride, sum);
    }
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; ++r) {
      const uint32_t bits = __ballot_sync(kAllLanes, output < outputs && sum[r] >= 0.0f);
      if (lane == r) words[(row + r) * width + word] = bits;
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < rows.count * call.tables; i += kHashWarps * 32) {
    const uint32_t row = i / call.tables, table = i % call.tables;
    rows.Store(row, table, BitsAt(words + row * width, table * call.hashes, call.hashes));
  }
}

// The largest |y| so far, and twice its index, plus one where y < 0.
struct Extreme {
  float size = -1.0f;  // below every |y|; a NaN is never larger
  uint32_t code = 0;

  __device__ void Take(float other, uint32_t other_code) {
    if (other > size || (other == size && other_code < code)) size = other, code = other_code;
  }
};

// Over the lanes of a warp, in every lane.
__device__ Extreme WarpExtreme(Extreme x) {
  for (int step = 16; step > 0; step /= 2) {
    const float size = __shfl_xor_sync(kAllLanes, x.size, step);
    const uint32_t code = __shfl_xor_sync(kAllLanes, x.code, step);
    x.Take(size, code);
  }
  return x;
}

// One hash of kWarpRows rows: the digits of their buckets, in every lane.
__device__ void PolytopeDigits(const HashCall& call, const float* group, const float* x,
                               uint32_t (&digit)[kWarpRows]) {
  Extreme extreme[kWarpRows];
  for (uint32_t output = threadIdx.x % 32; output < call.key_dim; output += 32) {
    float sum[kWarpRows];
    Project(group, output, call.key_dim, x, RowStride(call), sum);
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; ++r) {
      extreme[r].Take(fabsf(sum[r]), output * 2 + (sum[r] < 0.0f ? 1 : 0));
    }
  }
  __syncwarp();
#pragma unroll
  for (uint32_t r = 0; r < kWarpRows; ++r) {
    const uint32_t code = WarpExtreme(extreme[r]).code;
    digit[r] = code / 2 + (code % 2 == 0 ? 0 : call.key_dim);
  }
}

// A warp takes a table of kWarpRows rows.
__device__ void CrossPolytope(const HashRows& rows, const float* panels) {
  const HashCall& call = rows.call;
  const size_t group_floats =
      static_cast<size_t>((call.key_dim + kPanel - 1) / kPanel) * kPanel * call.key_dim;
  const uint32_t groups = (rows.count + kWarpRows - 1) / kWarpRows;
  for (uint32_t item = threadIdx.x / 32; item < call.tables * groups; item += kHashWarps) {
    const uint32_t table = item / groups, row = item % groups * kWarpRows;
    uint32_t bucket[kWarpRows] = {}, weight = 1;
    for (uint32_t hash = 0; hash < call.hashes; ++hash) {
      uint32_t digit[kWarpRows];
      PolytopeDigits(call, panels + (table * call.hashes + hash) * group_floats,
                     rows.x + row * RowStride(call), digit);
#pragma unroll
      for (uint32_t r = 0; r < kWarpRows; ++r) bucket[r] += digit[r] * weight;
      weight *= 2 * call.key_dim;
    }
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; ++r) {
      if (threadIdx.x % 32 == r && row + r < rows.count) rows.Store(row + r, table, bucket[r]);
    }
  }
}

// Floats of one head's panels.
__device__ size_t HeadFloats(const HashCall& call) {
  const uint32_t outputs = call.tables * call.hashes;
  const uint32_t groups = call.cross_polytope ? outputs : 1;
  const uint32_t width = call.cross_polytope ? call.key_dim : outputs;
  return static_cast<size_t>(groups) * ((width + kPanel - 1) / kPanel) * kPanel * call.key_dim;
}

// Block (head, 16 tokens). Shared memory: the rows, then the words of signs.
__global__ void __launch_bounds__(kHashWarps * 32)
    HashKernel(const __grid_constant__ HashCall call) {
  extern __shared__ __align__(16) float hash_shared[];
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t first = blockIdx.y * kHashTokens;
  const uint32_t tokens = min(kHashTokens, static_cast<uint32_t>(call.q.rows) - first);
  const HashRows rows{call, first, 2 * tokens, hash_shared};
  rows.Load();
  __syncthreads();
  const float* panels = call.panels + blockIdx.x * HeadFloats(call);
  if (call.cross_polytope) return CrossPolytope(rows, panels);
  SimHash(rows, panels, reinterpret_cast<uint32_t*>(hash_shared + kHashRows * RowStride(call)));
}

// --- buckets -----------------------------------------------------------------------------------

__device__ bool Folds(const DeviceSegment& segment) {
  return segment.position % kChunk + segment.tokens >= kChunk;
}

// What the segment's first fold writes. REQUIRES: Folds.
__device__ uint32_t FirstBase(const DeviceRows& rows, const DeviceSegment& segment) {
  const auto begin = static_cast<uint32_t>(segment.position % kChunk);
  return BaseAfter(rows, segment, segment.first_token + kChunk - begin - 1);
}

// to = from, or zeros; the blocks share the numbers.
__device__ void CopyNumbers(float* to, const float* from, size_t count) {
  const size_t thread = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
  const auto* four_from = reinterpret_cast<const float4*>(from);
#pragma unroll 4
  for (size_t i = thread; i < count / 4; i += threads) {
    float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (from != nullptr) four = four_from[i];
    reinterpret_cast<float4*>(to)[i] = four;
  }
  const size_t last = count / 4 * 4 + thread;
  if (last < count) to[last] = from == nullptr ? 0.0f : from[last];
}

constexpr uint32_t kCopyThreads = 512;

// The tables of segments whose first fold goes to another slot or is the session's first. All
// blocks share each segment's bytes. It waits for no kernel of this step before its end: none of
// them writes or reads these tables.
__global__ void __launch_bounds__(kCopyThreads)
    CopyTablesKernel(const __grid_constant__ BucketsCall call) {
  __shared__ uint32_t found[kCopyThreads];
  __shared__ uint32_t count;
  AllowNextKernel();
  const size_t buckets = static_cast<size_t>(call.heads) * call.tables * call.buckets;
  for (uint32_t first = 0; first < call.rows.segment_count; first += kCopyThreads) {
    __syncthreads();  // the list before may still be read
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const uint32_t index = first + threadIdx.x;
    if (index < call.rows.segment_count) {
      const DeviceSegment& segment = call.rows.segments[index];
      if (segment.tokens != 0 && Folds(segment)) {
        const bool other =
            segment.position < kChunk || segment.base_in != FirstBase(call.rows, segment);
        if (other) found[atomicAdd(&count, 1u)] = index;
      }
    }
    __syncthreads();
    for (uint32_t i = 0; i < count; ++i) {
      const DeviceSegment& segment = call.rows.segments[found[i]];
      const std::byte* from = call.slots.bases + segment.base_in * call.slots.base_stride;
      const uint32_t first_base = FirstBase(call.rows, segment);
      std::byte* to = call.slots.bases + first_base * call.slots.base_stride;
      const bool zeros = segment.position < kChunk;
      const auto copy = [&](size_t offset, size_t numbers) {
        CopyNumbers(reinterpret_cast<float*>(to + offset),
                    zeros ? nullptr : reinterpret_cast<const float*>(from + offset), numbers);
      };
      copy(call.sums_offset, buckets * call.padded_value);
      copy(call.counts_offset, buckets);
    }
  }
  AwaitLastKernel();
}

constexpr uint32_t kColumns = 64;  // of a warp, two a lane

__device__ float2 LoadTwo(const float* x) { return *reinterpret_cast<const float2*>(x); }
__device__ void StoreTwo(float* to, float2 x) { *reinterpret_cast<float2*>(to) = x; }
__device__ float2 Sum(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }

// The base whose tables a segment reads: where its first fold writes they are already
// (CopyTablesKernel).
__device__ uint32_t BaseRead(const DeviceRows& rows, const DeviceSegment& segment) {
  return Folds(segment) ? FirstBase(rows, segment) : segment.base_in;
}

// The tables of one head, which have fewer than 2^32 numbers.
template <uint32_t kWarps>
struct HeadTables {
  const BucketsCall& call;
  const uint32_t head;
  uint32_t base;  // that has them
  float* sums;    // [ℓ, B, Ep]
  float* counts;  // [ℓ, B]

  __device__ HeadTables(const BucketsCall& c, const DeviceSegment& segment, uint32_t h)
      : call(c), head(h), base(BaseRead(c.rows, segment)) {
    sums = SumsIn(base);
    counts = CountsIn(base);
  }

  __device__ size_t Buckets() const { return static_cast<size_t>(call.tables) * call.buckets; }
  __device__ float* SumsIn(uint32_t slot) const {
    std::byte* const at = call.slots.bases + slot * call.slots.base_stride + call.sums_offset;
    return reinterpret_cast<float*>(at) + head * Buckets() * call.padded_value;
  }
  __device__ float* CountsIn(uint32_t slot) const {
    std::byte* const at = call.slots.bases + slot * call.slots.base_stride + call.counts_offset;
    return reinterpret_cast<float*>(at) + head * Buckets();
  }

  // Copies the tables to another base and uses those from then on.
  __device__ void MoveTo(uint32_t slot) {
    if (slot == base) return;
    float *const to_sums = SumsIn(slot), *const to_counts = CountsIn(slot);
    for (size_t i = threadIdx.x; i < Buckets() * call.padded_value / 4; i += kWarps * 32) {
      reinterpret_cast<float4*>(to_sums)[i] = reinterpret_cast<const float4*>(sums)[i];
    }
    for (size_t i = threadIdx.x; i < Buckets(); i += kWarps * 32) to_counts[i] = counts[i];
    base = slot, sums = to_sums, counts = to_counts;
    __syncthreads();
  }

  // Two columns of 16 rows of sums, one of each table from `first` on; lane j has number j. Zeros
  // behind the last table and the last column.
  __device__ void LoadRows(uint32_t row, uint32_t first, uint32_t column,
                           float2 (&rows)[16]) const {
#pragma unroll
    for (uint32_t j = 0; j < 16; ++j) {
      const uint32_t one = __shfl_sync(kAllLanes, row, j);
      if (first + j < call.tables && column < call.padded_value) {
        rows[j] = LoadTwo(sums + one * call.padded_value + column);
      } else {
        rows[j] = {0.0f, 0.0f};
      }
    }
  }

  // The sum of the query's buckets; and their counts, which are spread over the lanes.
  __device__ float2 Read(const float* query, uint32_t column, float& count) const {
    const uint32_t lane = threadIdx.x % 32;
    float2 sum = {0.0f, 0.0f};
    for (uint32_t first = 0; first < call.tables; first += 16) {
      const uint32_t own = min(first + lane % 16, call.tables - 1);
      const uint32_t bucket = static_cast<uint32_t>(query[own]) + own * call.buckets;
      float2 rows[16];
      LoadRows(bucket, first, column, rows);
      if (lane < 16 && first + lane < call.tables) count += counts[bucket];
#pragma unroll
      for (uint32_t j = 0; j < 16; ++j) {
        if (first + j < call.tables) sum = Sum(sum, rows[j]);
      }
    }
    return sum;
  }
};

// The rows of a chunk of one head, in shared memory, rounded as the tail stores them.
template <typename Row, uint32_t kWarps>
struct HeadChunk {
  const BucketsCall& call;
  const DeviceSegment segment;  // a copy: kernels then need fewer registers
  const uint32_t head;
  float* values;  // [C, Ep]
  float* keys;    // [ℓ, C]

  __device__ std::byte* Tail() const {
    return call.slots.tails + segment.tail * call.slots.tail_stride;
  }
  __device__ float* TailKeys() const {
    return reinterpret_cast<float*>(Tail() + call.keys_offset) + head * call.tables * kChunk;
  }
  __device__ Row* TailValues() const {
    return reinterpret_cast<Row*>(Tail() + call.values_offset) +
           static_cast<size_t>(head) * kChunk * call.padded_value;
  }

  // The first `rows` rows of the tail.
  __device__ void LoadTail(uint32_t rows) const {
    if (rows == 0) return;
    const float* from_keys = TailKeys();
    for (uint32_t i = threadIdx.x; i < call.tables * kChunk; i += kWarps * 32) {
      keys[i] = from_keys[i];
    }
    const Row* from = TailValues();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < rows * call.padded_value; i += kWarps * 32) {
      values[i] = Load(from + i);
    }
  }

  // Rows [begin, end) from tokens from `token` on. They are kept in the tail where the chunk is not
  // full.
  __device__ void Append(uint32_t token, uint32_t begin, uint32_t end) const {
    AppendKeys(token, begin, end);
    AppendValues(token, begin, end);
  }
  __device__ void AppendKeys(uint32_t token, uint32_t begin, uint32_t end) const {
    float* to = TailKeys();
    for (uint32_t i = threadIdx.x; i < (end - begin) * call.tables; i += kWarps * 32) {
      const uint32_t row = i / call.tables, table = i % call.tables;
      const float key =
          call.k_buckets.data[(token + row) * call.k_buckets.stride + head * call.tables + table];
      keys[table * kChunk + begin + row] = key;
      if (end != kChunk) to[table * kChunk + begin + row] = key;
    }
  }
  __device__ void AppendValues(uint32_t token, uint32_t begin, uint32_t end) const {
    const uint32_t padded = call.padded_value;
    Row* to = TailValues();
    for (uint32_t i = threadIdx.x; i < (end - begin) * padded; i += kWarps * 32) {
      const uint32_t row = i / padded, column = i % padded;
      float x = 0.0f;
      if (column < call.value_dim) {
        x = call.v.data[(token + row) * call.v.stride + head * call.value_dim + column];
      }
      values[begin * padded + i] = AsStored(to, x);
      if (end != kChunk) Store(to + begin * padded + i, x);
    }
  }

  // In how many tables row lane % 16 of the chunk collides with the query.
  __device__ float Collisions(const float* query, uint32_t rows) const {
    const uint32_t row = threadIdx.x % 16;
    float same = 0.0f;
    for (uint32_t table = threadIdx.x % 32 / 16; table < call.tables; table += 2) {
      if (keys[table * kChunk + row] == query[table]) same += 1.0f;
    }
    same += __shfl_xor_sync(kAllLanes, same, 16);
    return row < rows ? same : 0.0f;
  }

  // Two columns of row `row`.
  __device__ float2 Values(uint32_t row, uint32_t column) const {
    return LoadTwo(values + row * call.padded_value + column);
  }

  // sum + Σ weight · value over the first `rows` rows; lane r has the weight of row r.
  __device__ float2 AddWeighted(float2 sum, float weights, uint32_t rows, uint32_t column) const {
    const bool inside = column < call.padded_value;
    for (uint32_t row = 0; row < rows; ++row) {
      const float weight = __shfl_sync(kAllLanes, weights, row);
      if (weight == 0.0f || !inside) continue;
      const float2 value = Values(row, column);
      sum = {fmaf(weight, value.x, sum.x), fmaf(weight, value.y, sum.y)};
    }
    return sum;
  }
};

// The bucket that row l % 16 of a chunk has in one table, in lane l. Of rows with the same bucket
// the first one adds all.
struct RowBucket {
  uint32_t bucket;
  uint32_t rows;  // that have it: bits
};

__device__ bool IsFirst(uint32_t row, uint32_t rows) {
  return static_cast<uint32_t>(__ffs(rows)) - 1 == row;
}

// Tables += a chunk's rows, ascending.
template <typename Row, uint32_t kWarps>
struct ChunkFold {
  const BucketsCall& call;
  const HeadChunk<Row, kWarps>& chunk;
  const HeadTables<kWarps>& tables;

  // A warp owns a table.
  __device__ void Run() const {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t table = threadIdx.x / 32; table < call.tables; table += kWarps) {
      const auto bucket = static_cast<uint32_t>(chunk.keys[table * kChunk + lane % 16]);
      const RowBucket own = {bucket, __match_any_sync(kAllLanes, bucket) & 0xffffu};
      for (uint32_t first = 0; first < call.padded_value; first += kColumns) {
        AddColumns(table, own, first + lane * 2);
      }
      if (lane < kChunk && IsFirst(lane, own.rows)) AddCount(table, own);
    }
  }

  // REQUIRES: the lane's row is the first with its bucket.
  __device__ void AddCount(uint32_t table, const RowBucket& own) const {
    float* count = tables.counts + table * call.buckets + own.bucket;
    float sum = *count;
    for (int i = 0; i < __popc(own.rows); ++i) sum += 1.0f;
    *count = sum;
  }

  // Two columns of the rows' buckets.
  __device__ void AddColumns(uint32_t table, const RowBucket& own, uint32_t column) const {
    const bool inside = column < call.padded_value;
    float* to = tables.sums + table * call.buckets * call.padded_value + column;
    const auto place = [&](uint32_t s) {
      return to + __shfl_sync(kAllLanes, own.bucket, s) * call.padded_value;
    };
    float2 sum[kChunk];
#pragma unroll
    for (uint32_t s = 0; s < kChunk; ++s) {
      const uint32_t all = __shfl_sync(kAllLanes, own.rows, s);
      const float* from = place(s);
      sum[s] = {0.0f, 0.0f};
      if (inside && IsFirst(s, all)) sum[s] = LoadTwo(from);
    }
#pragma unroll
    for (uint32_t s = 0; s < kChunk; ++s) {
      const uint32_t all = __shfl_sync(kAllLanes, own.rows, s);
      float* const result = place(s);
      if (inside && IsFirst(s, all)) StoreTwo(result, AddRows(sum[s], all, column));
    }
  }

  // sum + the values of the rows, ascending.
  __device__ float2 AddRows(float2 sum, uint32_t rows, uint32_t column) const {
    for (uint32_t left = rows; left != 0; left &= left - 1) {
      sum = Sum(sum, chunk.Values(__ffs(left) - 1, column));
    }
    return sum;
  }
};

// One head of one segment.
template <typename Row, uint32_t kWarps>
struct BucketHead {
  const BucketsCall& call;
  const uint32_t head;
  HeadChunk<Row, kWarps> chunk;
  HeadTables<kWarps> tables;

  __device__ BucketHead(const BucketsCall& c, const DeviceSegment& segment, float* shared)
      : call(c),
        head(blockIdx.x),
        chunk{c, segment, head, shared, shared + kChunk * c.padded_value},
        tables(c, chunk.segment, head) {}

  // A warp: kColumns columns of one token's output, of the tables and `rows` rows of the chunk.
  __device__ void Read(uint32_t token, bool fresh, uint32_t rows, uint32_t first_column) const {
    const uint32_t lane = threadIdx.x % 32, column = first_column + lane * 2;
    const float* query = call.q_buckets.data + token * call.q_buckets.stride + head * call.tables;
    float count = 0.0f;
    float2 sum = {0.0f, 0.0f};
    if (!fresh) sum = tables.Read(query, column, count);
    const float same = chunk.Collisions(query, rows);
    count = WarpSum(count + (lane < 16 ? same : 0.0f));
    sum = chunk.AddWeighted(sum, same, rows, column);
    if (column >= call.padded_value) return;
    if (count == 0.0f) count = 1.0f;  // nothing collides: the sums are zero too
    StoreTwo(call.out.data + token * call.out.stride + head * call.padded_value + column,
             {sum.x / count, sum.y / count});
  }

  __device__ void Fold() const { ChunkFold<Row, kWarps>{call, chunk, tables}.Run(); }
};

// Block (head, segment). Shared memory: C rows of values, and their keys. In a block of few warps
// one of them reads the tables, so a processor needs many blocks to have enough loads on the way.
template <typename Row, uint32_t kWarps>
__global__ void __launch_bounds__(kWarps * 32, 24 / kWarps)
    BucketsKernel(const __grid_constant__ BucketsCall call) {
  extern __shared__ __align__(16) float buckets_shared[];
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceSegment& segment = call.rows.segments[blockIdx.y];
  if (segment.tokens == 0) return;
  BucketHead<Row, kWarps> head(call, segment, buckets_shared);
  const uint32_t groups = (call.padded_value + kColumns - 1) / kColumns;
  uint32_t begin = static_cast<uint32_t>(segment.position % kChunk);
  bool fresh = segment.position < kChunk;
  head.chunk.LoadTail(begin);
  for (uint32_t done = 0; done < segment.tokens;) {
    const uint32_t end = min(begin + segment.tokens - done, kChunk);
    const uint32_t token = segment.first_token + done;
    __syncthreads();  // keys of the tail are loaded before new ones are written
    head.chunk.Append(token, begin, end);
    __syncthreads();
    for (uint32_t i = threadIdx.x / 32; i < (end - begin) * groups; i += kWarps) {
      const uint32_t row = i / groups;
      head.Read(token + row, fresh, begin + row + (call.include_self ? 1 : 0),
                i % groups * kColumns);
    }
    if (end == kChunk) {
      __syncthreads();  // all reads of the tables before any write
      head.tables.MoveTo(
          BaseAfter(call.rows, segment, segment.first_token + done + end - begin - 1));
      head.Fold();
    }
    fresh = fresh && end != kChunk;
    done += end - begin;
    begin = 0;
  }
}

template <typename Row, uint32_t kWarps>
void LaunchReads(const BucketsCall& call, const LaunchContext& context) {
  const auto kernel = BucketsKernel<Row, kWarps>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  context.Check(prepared);
  const size_t shared = size_t{kChunk} * (size_t{call.padded_value} + call.tables) * sizeof(float);
  context.Run(kernel, dim3(call.heads, call.rows.segment_count), kWarps * 32, shared, call);
}

template <typename Row>
void LaunchReadsOfRows(const BucketsCall& call, const LaunchContext& context) {
  // A chunk has work for many warps, one token for few.
  if (call.rows.single) return LaunchReads<Row, 4>(call, context);
  LaunchReads<Row, 16>(call, context);
}

}  // namespace

void LaunchHash(const HashCall& call, const LaunchContext& context) {
  static const cudaError_t prepared =
      cudaFuncSetAttribute(HashKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  context.Check(prepared);
  const uint32_t stride = (call.key_dim + 3) / 4 * 4;
  const uint32_t words = call.cross_polytope ? 0 : (call.tables * call.hashes + 31) / 32;
  const size_t shared = size_t{kHashRows} * (stride + words) * sizeof(float);
  const auto tokens = static_cast<uint32_t>(call.q.rows);
  context.Run(HashKernel, dim3(call.heads, (tokens + kHashTokens - 1) / kHashTokens),
              kHashWarps * 32, shared, call);
}

void LaunchBuckets(const BucketsCall& call, bool fp32_rows, const LaunchContext& context) {
  context.Run(CopyTablesKernel, dim3(static_cast<uint32_t>(context.processors) * 2), kCopyThreads,
              0, call);
  ByParts(call, [&](const BucketsCall& part) {
    fp32_rows ? LaunchReadsOfRows<float>(part, context) : LaunchReadsOfRows<bf16>(part, context);
  });
}

}  // namespace rivulet::cuda
