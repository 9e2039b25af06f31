// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels of decayed sums share: the tiles of a state and their products. A state matrix
// is [Ep, Dp] in fragment order: tiles of 16 x 16, (e / 16) · Dp / 16 + d / 16, and in a tile the
// lane's numbers side by side, in the register layout of the matrix instruction. So a load of a
// warp is 512 adjacent bytes. Where registers hold the state, a fold adds to what was loaded.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {

constexpr uint32_t kChunk = 16;     // C
constexpr uint32_t kHeldTiles = 8;  // of 16 keys that a warp holds in registers
constexpr uint32_t kMostWarps = 4;  // of a block
constexpr uint32_t kPad = 8;        // bf16 numbers between rows in shared memory
// Of a token in the kernels for one token a segment: queries, or the key and query of a delta rule.
constexpr uint32_t kMostColumns = 8;

// A warp's 16 x 16 numbers of the state: rows g and g + 8, columns 2t, 2t + 1, 2t + 8, 2t + 9.
struct StateTile {
  float4 upper, lower;
};

// As left operands: high parts, low parts.
__device__ inline void SplitTile(const StateTile& tile, uint32_t (&high)[4], uint32_t (&low)[4]) {
  Split(tile.upper.x, tile.upper.y, high[0], low[0]);
  Split(tile.lower.x, tile.lower.y, high[1], low[1]);
  Split(tile.upper.z, tile.upper.w, high[2], low[2]);
  Split(tile.lower.z, tile.lower.w, high[3], low[3]);
}

// A tile as a warp holds it between its read and its fold. A bf16 tile is stored in the order of a
// left operand (MultiplyAdd), so that no register has to be moved between load and product.
template <bool kBf16>
struct HeldTile;

template <>
struct HeldTile<false> {
  StateTile tile;

  __device__ void Load(const std::byte* matrix, uint32_t index) {
    const auto* numbers = reinterpret_cast<const float4*>(matrix) + index * 64 + threadIdx.x % 32;
    tile = {numbers[0], numbers[32]};
  }
  __device__ StateTile Numbers() const { return tile; }
  // The compiler works out again what it knows of the tile.
  __device__ void Forget() {
    asm volatile(""
                 : "+f"(tile.upper.x), "+f"(tile.upper.y), "+f"(tile.upper.z), "+f"(tile.upper.w),
                   "+f"(tile.lower.x), "+f"(tile.lower.y), "+f"(tile.lower.z), "+f"(tile.lower.w));
  }
  // sum += the tile · b, as high and low parts.
  __device__ void Multiply(float (&sum)[4], uint32_t b0, uint32_t b1) const {
    uint32_t high[4], low[4];
    SplitTile(tile, high, low);
    MultiplyAdd(sum, high, b0, b1);
    MultiplyAdd(sum, low, b0, b1);
  }
  // The same where b is two parts too, high ones in x and y.
  __device__ void MultiplyParts(float (&sum)[4], const uint4& b) const {
    uint32_t high[4], low[4];
    SplitTile(tile, high, low);
    MultiplyAdd(sum, high, b.x, b.y);
    MultiplyAdd(sum, low, b.x, b.y);
    MultiplyAdd(sum, high, b.z, b.w);
  }
};

template <>
struct HeldTile<true> {
  uint4 bits;

  __device__ void Load(const std::byte* matrix, uint32_t index) {
    bits = reinterpret_cast<const uint4*>(matrix)[index * 32 + threadIdx.x % 32];
  }
  __device__ StateTile Numbers() const {
    return {{FirstOf(bits.x), SecondOf(bits.x), FirstOf(bits.z), SecondOf(bits.z)},
            {FirstOf(bits.y), SecondOf(bits.y), FirstOf(bits.w), SecondOf(bits.w)}};
  }
  __device__ void Forget() {}
  __device__ void Multiply(float (&sum)[4], uint32_t b0, uint32_t b1) const {
    MultiplyAdd(sum, {bits.x, bits.y, bits.z, bits.w}, b0, b1);
  }
  __device__ void MultiplyParts(float (&sum)[4], const uint4& b) const {
    Multiply(sum, b.x, b.y);
    Multiply(sum, b.z, b.w);
  }
};

template <bool kBf16>
__device__ StateTile LoadTile(const std::byte* matrix, uint32_t index) {
  HeldTile<kBf16> tile;
  tile.Load(matrix, index);
  return tile.Numbers();
}

template <bool kBf16>
__device__ void StoreTile(std::byte* matrix, uint32_t tile, const StateTile& s) {
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (kBf16) {
    reinterpret_cast<uint4*>(matrix)[tile * 32 + lane] = {
        PackRounded(s.upper.x, s.upper.y), PackRounded(s.lower.x, s.lower.y),
        PackRounded(s.upper.z, s.upper.w), PackRounded(s.lower.z, s.lower.w)};
  } else {
    auto* numbers = reinterpret_cast<float4*>(matrix) + tile * 64 + lane;
    numbers[0] = s.upper;
    numbers[32] = s.lower;
  }
}

// A tile while a fold adds products of values and keys to it: the columns of the first eight keys,
// and of the other eight.
struct FoldedTile {
  float near[4], far[4];

  __device__ explicit FoldedTile(const StateTile& s)
      : near{s.upper.x, s.upper.y, s.lower.x, s.lower.y},
        far{s.upper.z, s.upper.w, s.lower.z, s.lower.w} {}
  // Times the weights of columns 2t, 2t + 1, 2t + 8 and 2t + 9.
  __device__ FoldedTile(const StateTile& s, const float (&w)[4])
      : near{s.upper.x * w[0], s.upper.y * w[1], s.lower.x * w[0], s.lower.y * w[1]},
        far{s.upper.z * w[2], s.upper.w * w[3], s.lower.z * w[2], s.lower.w * w[3]} {}

  __device__ void Add(const uint32_t (&values)[4], const uint32_t (&keys)[4]) {
    MultiplyAdd(near, values, keys[0], keys[1]);
    MultiplyAdd(far, values, keys[2], keys[3]);
  }
  __device__ StateTile Tile() const {
    return {{near[0], near[1], far[0], far[1]}, {near[2], near[3], far[2], far[3]}};
  }
};

// What a stored tile is when it is loaded again.
template <bool kBf16>
__device__ float Stored(float x) {
  return kBf16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

// A number that is stored as two parts, added up and split again must have the same parts: so it is
// split twice, since a tie is rounded differently the second time.
__device__ inline void SplitTwice(float x, bf16& high, bf16& low) {
  high = __float2bfloat16_rn(x);
  x = __bfloat162float(high) + __bfloat162float(__float2bfloat16_rn(Rest(x, high)));
  high = __float2bfloat16_rn(x);
  low = __float2bfloat16_rn(Rest(x, high));
}
__device__ inline void SplitTwice(float first, float second, uint32_t& high, uint32_t& low) {
  Split(first, second, high, low);
  Split(FirstOf(high) + FirstOf(low), SecondOf(high) + SecondOf(low), high, low);
}

template <int kParts>
__device__ void StoreParts(bf16* to, size_t part, float x) {
  if constexpr (kParts == 2) {
    SplitTwice(x, to[0], to[part]);
  } else {
    *to = __float2bfloat16_rn(x);
  }
}

// Four neighbours.
template <int kParts>
__device__ void StoreFour(bf16* to, size_t part, float4 x) {
  if constexpr (kParts == 1) {
    *reinterpret_cast<uint2*>(to) = {PackRounded(x.x, x.y), PackRounded(x.z, x.w)};
  } else {
    StoreParts<2>(to, part, x.x);
    StoreParts<2>(to + 1, part, x.y);
    StoreParts<2>(to + 2, part, x.z);
    StoreParts<2>(to + 3, part, x.w);
  }
}

template <int kParts>
__device__ float LoadParts(const bf16* from, size_t part) {
  const float high = __bfloat162float(*from);
  if constexpr (kParts == 1) return high;
  return high + __bfloat162float(from[part]);
}

__device__ inline uint32_t Two(const bf16* x, bool present = true) {
  return present ? *reinterpret_cast<const uint32_t*>(x) : 0;
}

// An 8 x 8 matrix of which lane 4g + t has numbers 2t and 2t + 1 of row g, transposed.
__device__ inline uint32_t Transposed(uint32_t two) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(transposed) : "r"(two));
  return transposed;
}

// Scores [row s, column], as a product leaves them, as a lane of the right operand [s, column] of
// the next one needs them: rows 2t, 2t + 1, 2t + 8 and 2t + 9 of column g, rounded. Zeros unless
// `present`.
__device__ inline uint2 TransposedScores(const float (&score)[4], bool present) {
  const uint32_t near = Transposed(PackRounded(score[0], score[1]));
  const uint32_t far = Transposed(PackRounded(score[2], score[3]));
  if (!present) return {0, 0};
  return {near, far};
}

// Scores transposed in the same way, split twice: high parts in x and y, low parts in z and w.
// Nothing may use what comes of columns that no query has.
__device__ inline uint4 TransposedParts(const float (&score)[4]) {
  uint32_t high[2], low[2];
  SplitTwice(score[0], score[1], high[0], low[0]);
  SplitTwice(score[2], score[3], high[1], low[1]);
  return {Transposed(high[0]), Transposed(high[1]), Transposed(low[0]), Transposed(low[1])};
}

// --- a normaliser ------------------------------------------------------------------------------
//
// The vector z [Dp] is read as a value column whose operand has the same numbers in all 16 rows, so
// each lane has the reads of just those queries whose outputs it writes. Each block has a copy of
// its own in the base, which no other block waits for.

// The numbers 2t, 2t + 1, 2t + 8 and 2t + 9 from z on, as parts.
__device__ inline void SplitRows(const float* z, uint32_t (&high)[4], uint32_t (&low)[4]) {
  const float2 near = *reinterpret_cast<const float2*>(z);
  const float2 far = *reinterpret_cast<const float2*>(z + 8);
  Split(near.x, near.y, high[0], low[0]);
  Split(far.x, far.y, high[2], low[2]);
  high[1] = high[0], high[3] = high[2];
  low[1] = low[0], low[3] = low[2];
}

// An operand of ones: each row of the tail adds one to the column.
constexpr uint32_t kTwoOnes = 0x3f803f80u;

__device__ inline float Divided(const RecurCall& call, float x, float normaliser) {
  const float denominator = normaliser + call.denominator_eps;
  return call.reciprocal ? x * (1.0f / denominator) : x / denominator;
}

// A block's copy of its unit's normaliser. `block`: of those of the segment.
__device__ inline float* NormaliserAt(const RecurCall& call, uint32_t slot, uint32_t block) {
  return reinterpret_cast<float*>(call.slots.bases + slot * call.slots.base_stride +
                                  call.normaliser_offset) +
         size_t{block} * call.padded_key;
}

// z after a fold, from the keys [C, stride] in shared memory as the fold weights them.
template <int kParts>
__device__ void FoldNormaliser(const RecurCall& call, const bf16* k, uint32_t stride, float weight,
                               bool fresh, float* z, float* to) {
  for (uint32_t d = threadIdx.x; d < call.padded_key; d += blockDim.x) {
    float sum = fresh ? 0.0f : z[d] * weight;
    for (uint32_t s = 0; s < kChunk; ++s) {
      sum += LoadParts<kParts>(k + s * stride + d, kChunk * stride);
    }
    z[d] = sum;
    to[d] = sum;
  }
}

// By all threads of a block: row_at(a) of the tail for rows below `count`, in the background where
// rows are bf16, and zeros for rows from `end` to C. Those between are the caller's.
template <int kParts, typename RowAt>
__device__ void StageRows(bf16* to, uint32_t stride, uint32_t width, uint32_t count, uint32_t end,
                          RowAt&& row_at) {
  const size_t part = size_t{kChunk} * stride;
  const uint32_t step = kParts == 1 ? 8 : 4, steps = width / step;
  for (uint32_t i = threadIdx.x; i < kChunk * steps; i += blockDim.x) {
    const uint32_t a = i / steps, column = i % steps * step;
    if (a >= count && a < end) continue;
    bf16* place = to + a * stride + column;
    if (a >= end) {
      StoreFour<kParts>(place, part, {0, 0, 0, 0});
      if constexpr (kParts == 1) StoreFour<1>(place + 4, part, {0, 0, 0, 0});
    } else if constexpr (kParts == 1) {
      CopyAsync(place, row_at(a) + column);
    } else {
      StoreFour<kParts>(place, part, *reinterpret_cast<const float4*>(row_at(a) + column));
    }
  }
}

// Lays out a block's shared memory: takes pieces that are aligned to 16 bytes.
class Taker {
 public:
  explicit Taker(uint32_t start) : next_(start) {}
  uint32_t Take(uint32_t bytes) {
    const uint32_t at = next_;
    next_ += (bytes + 15) / 16 * 16;
    return at;
  }
  uint32_t Aligned() const { return (next_ + 127) / 128 * 128; }

 private:
  uint32_t next_;
};

// Warps of a block: as many as the unit has tiles of 16 value columns, fewer while that leaves
// processors without work. Bits do not depend on it. With a normaliser a unit has as many blocks as
// there are copies.
inline uint32_t WarpsOf(const RecurCall& call, int processors) {
  const uint32_t tiles = (call.padded_value + 15) / 16;
  uint32_t warps = kMostWarps;
  while (warps > 1 && warps / 2 >= tiles) warps /= 2;
  if (call.normaliser) return warps;
  const auto blocks = [&](uint32_t w) {
    return call.units * call.rows.segment_count * ((tiles + w - 1) / w);
  };
  while (warps > 1 && blocks(warps) < static_cast<uint32_t>(processors)) warps /= 2;
  return warps;
}

struct UnpreparedRows;  // row_convolution.cuh
// sums_decode.cu: one token a segment, for what it says of the call. False: not such a call.
// `rows`: what the kernel is to prepare itself, where CanGate; null: q, k, v and g are
// prepared.
bool LaunchDecode(const RecurCall& call, const LaunchContext& context,
                  const UnpreparedRows* rows = nullptr);
// sums_stream.cu: the same for many segments. `next`: of the product that reads gated outputs.
bool LaunchStream(const RecurCall& call, const NextWeights& next, const LaunchContext& context);

// sum_program_stream.cu: a program for one token a segment, for what it says of the call. False:
// not such a call.
bool LaunchProgramStream(const SumProgramCall& call, const LaunchContext& context);

// Whether sums_decode_plain.cuh has a kernel for single tokens of the call, which sums_decode.cu
// prefers to those of sums_decode_many.cuh.
constexpr bool IsPlainSum(const RecurCall& call) {
  // It computes places within slots and within matrices of rows in 32 bits.
  constexpr uint64_t kMost = ~uint32_t{0};
  const uint64_t stride = std::max({call.q_stride, call.k_stride, call.v_stride, call.g_stride,
                                    call.beta_stride, call.gated.gate_stride});
  return call.slots.base_stride <= kMost && call.slots.tail_stride <= kMost &&
         call.rows.tokens * stride <= kMost && call.padded_key == kHeldTiles * 16 &&
         call.padded_value % (kMostWarps * 16) == 0 && !call.normaliser &&
         call.decay != Decay::kChannel && (call.skip == nullptr || call.gated.gate != nullptr);
}

// Whether the kernels of sums_decode.cu and sums_stream.cu can gate the call's outputs.
constexpr bool CanGate(const RecurCall& call) {
  return !call.delta && !call.normaliser && call.decay != Decay::kChannel && call.unit_heads == 1 &&
         call.padded_key <= kHeldTiles * 16;
}
// gated_outputs.cu: gates the outputs of the call's tokens, which are stored as they are.
void LaunchGateOutputs(const RecurCall& call, const LaunchContext& context);

// sums_keep.cu: the rows that blocks of sums.cu share, which a kernel after it writes.
void LaunchKeepRows(const RecurCall& call, bool fp32_rows, const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_CUH_
