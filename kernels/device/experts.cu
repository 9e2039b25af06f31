// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mixtures of experts: the choice, the order of the pairs, products with an expert for each tile of
// rows, and the sum (experts_operations.h).
//
// A grid depends on the number of tokens alone, so a step can be recorded: there are blocks for as
// many tiles as any choices could need, and those without a tile end at once.
//
// Bytes expected: the weights of each chosen expert once for each tile of its rows, of which the
// second and later ones come from L2.
#include "kernels/device/experts.cuh"
#include "kernels/device/experts_operations.h"
#include "kernels/device/fours.cuh"
#include "kernels/device/products.cuh"
#include "kernels/device/warp_scan.cuh"

namespace rivulet::cuda {
namespace {

// --- choice ------------------------------------------------------------------------------------

constexpr uint32_t kRouteWarps = 32;  // of a block, a token each: the bits of one word of members
constexpr uint32_t kRouteThreads = kRouteWarps * 32;

// Keys have the order in which experts are chosen: the larger logit, then the lower id. No two
// experts have the same one, and none is 0.
__device__ uint64_t ChoiceKey(float logit, uint32_t id) {
  const uint32_t bits = __float_as_uint(logit);
  uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  if (logit == 0.0f) order = 0x80000000u;  // -0 is 0
  if (logit != logit) order = 0;
  return static_cast<uint64_t>(order) << 32 | static_cast<uint32_t>(~id);
}

// The largest key below `bound` among a token's, in every lane.
__device__ uint64_t LargestKeyBelow(const float* logits, uint32_t experts, uint64_t bound) {
  uint64_t best = 0;
  for (uint32_t id = threadIdx.x % 32; id < experts; id += 32) {
    const uint64_t key = ChoiceKey(logits[id], id);
    if (key < bound && key > best) best = key;
  }
  return best;
}

__device__ uint64_t WarpLargest(uint64_t x) {
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), step);
    x = max(x, other);
  }
  return x;
}

// --- scores of a choice by sigmoid

__device__ float ScoreSigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ bool Above(float a, float b) { return a > b || (a == a && b != b); }

// The sum of the two largest of a group's scores, found as on the CPU.
__device__ float GroupScore(const float* scores, uint32_t size) {
  float first = scores[0], second = -__builtin_huge_valf();
  for (uint32_t i = 1; i < size; ++i) {
    const float score = scores[i];
    if (Above(score, first)) {
      second = first;
      first = score;
    } else if (Above(score, second)) {
      second = score;
    }
  }
  return first + second;
}

// The scores of a warp's token in groups that are not among the best become NaN, which is chosen
// last.
__device__ void ExcludeGroups(const RouteCall& call, float* scores) {
  const uint32_t lane = threadIdx.x % 32, size = call.routing.experts / call.groups;
  float* sums = scores + call.routing.experts;
  for (uint32_t g = lane; g < call.groups; g += 32) sums[g] = GroupScore(scores + g * size, size);
  __syncwarp();
  for (uint32_t g = lane; g < call.groups; g += 32) {
    const uint64_t key = ChoiceKey(sums[g], g);
    uint32_t before = 0;
    for (uint32_t other = 0; other < call.groups; ++other) {
      if (ChoiceKey(sums[other], other) > key) ++before;
    }
    if (before < call.groups_per_token) continue;
    for (uint32_t i = 0; i < size; ++i) scores[g * size + i] = __int_as_float(0x7fffffff);
  }
  __syncwarp();
}

// The scores [X] of a warp's token.
__device__ const float* ScoreExperts(const RouteCall& call, const float* logits, uint32_t token) {
  float* scores = call.scores.data + token * call.scores.stride;
  for (uint32_t id = threadIdx.x % 32; id < call.routing.experts; id += 32) {
    const float correction = call.correction == nullptr ? 0.0f : call.correction[id];
    scores[id] = ScoreSigmoid(logits[id]) + correction;
  }
  __syncwarp();
  if (call.groups_per_token < call.groups) ExcludeGroups(call, scores);
  return scores;
}

// --- a token's choice

// A warp's token: its experts, their weights, and a bit for each in chosen [X / 32 rounded up].
template <bool kSigmoid>
__device__ void Choose(const RouteCall& call, uint32_t token, uint32_t* chosen) {
  constexpr float kLeastSum = 1e-20f;
  const ExpertRouting& r = call.routing;
  const uint32_t lane = threadIdx.x % 32;
  const float* logits = call.logits.data + token * call.logits.stride;
  const float* scores = logits;
  if constexpr (kSigmoid) scores = ScoreExperts(call, logits, token);
  // A lane holds its largest key until it is taken, and then looks for the next.
  uint64_t mine = LargestKeyBelow(scores, r.experts, UINT64_MAX), first = 0, last = 0;
  for (uint32_t i = 0; i < r.per_token; ++i) {
    last = WarpLargest(mine);
    if (i == 0) first = last;
    if (mine == last) mine = LargestKeyBelow(scores, r.experts, last);
  }
  const float largest = kSigmoid ? 0.0f : logits[static_cast<uint32_t>(~first)];
  const auto is_chosen = [&](uint32_t id) {
    return id < r.experts && ChoiceKey(scores[id], id) >= last;
  };
  // A weight, before it is divided by the sum of all that count.
  const auto share = [&](uint32_t id) {
    return kSigmoid ? ScoreSigmoid(logits[id]) : expf(logits[id] - largest);
  };
  const bool all_count = !kSigmoid && !call.weights_sum_to_one;
  float sum = 0.0f;
  for (uint32_t id = lane; id < r.experts; id += 32) {
    if (all_count || is_chosen(id)) sum += share(id);
  }
  sum = WarpSum(sum);
  if constexpr (kSigmoid) sum = call.weights_sum_to_one ? sum + kLeastSum : 1.0f;
  uint32_t place = token * r.per_token;
  for (uint32_t begin = 0; begin < r.experts; begin += 32) {
    const uint32_t id = begin + lane;
    const bool mark = is_chosen(id);
    const uint32_t word = __ballot_sync(kAllLanes, mark);
    if (lane == 0) chosen[begin / 32] = word;
    if (mark) {
      const uint32_t pair = place + __popc(word & ((1u << lane) - 1));
      r.expert[pair] = id;
      r.weight[pair] = share(id) / sum * call.scaling;
    }
    place += __popc(word);
  }
}

__device__ void ChooseNone(const RouteCall& call, uint32_t token, uint32_t* chosen) {
  const ExpertRouting& r = call.routing;
  for (uint32_t i = threadIdx.x % 32; i < (r.experts + 31) / 32; i += 32) chosen[i] = 0;
  if (token >= call.rows.tokens) return;
  for (uint32_t i = threadIdx.x % 32; i < r.per_token; i += 32) {
    r.expert[token * r.per_token + i] = UINT32_MAX;
    r.weight[token * r.per_token + i] = 0.0f;
  }
}

__device__ bool IsThere(const DeviceRows& rows, uint32_t token) {
  if (token >= rows.tokens) return false;
  return rows.segments[SegmentOf(rows, token)].tokens != 0;
}

// --- order -------------------------------------------------------------------------------------

// The sum over the threads before this one. `scratch` [kRouteWarps]. total: of all threads.
__device__ uint32_t SumBefore(uint32_t x, uint32_t* scratch, uint32_t& total) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t sum = WarpScan(x, lane);
  __syncthreads();  // an earlier sum may still be read
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  uint32_t before = 0;
  total = 0;
  for (uint32_t w = 0; w < kRouteWarps; ++w) {
    if (w < warp) before += scratch[w];
    total += scratch[w];
  }
  return before + sum - x;
}

// The tokens of an expert among the first 32 · words.
__device__ uint32_t CountMembers(const ExpertRouting& r, uint32_t expert, uint32_t words) {
  uint32_t count = 0;
  for (uint32_t word = 0; word < words; ++word) {
    count += __popc(r.members[static_cast<size_t>(word) * r.experts + expert]);
  }
  return count;
}

// Where each expert's rows begin, in first_row [X] in shared memory; the first block also writes
// the tiles.
__device__ void PlaceExperts(const ExpertRouting& r, uint32_t words, uint32_t* first_row) {
  __shared__ uint32_t scratch[kRouteWarps];
  const uint32_t each = (r.experts + kRouteThreads - 1) / kRouteThreads;
  const uint32_t begin = min(threadIdx.x * each, r.experts), end = min(begin + each, r.experts);
  uint32_t rows = 0, tiles = 0, all_rows, all_tiles;
  for (uint32_t expert = begin; expert < end; ++expert) {
    const uint32_t count = CountMembers(r, expert, words);
    rows += count;
    tiles += (count + r.tile_rows - 1) / r.tile_rows;
  }
  uint32_t row = SumBefore(rows, scratch, all_rows), tile = SumBefore(tiles, scratch, all_tiles);
  for (uint32_t expert = begin; expert < end; ++expert) {
    const uint32_t count = CountMembers(r, expert, words);
    first_row[expert] = row;
    for (uint32_t done = 0; blockIdx.x == 0 && done < count; done += r.tile_rows) {
      r.tiles[tile++] = {expert, row + done, min(r.tile_rows, count - done), 0};
    }
    row += count;
  }
  if (blockIdx.x != 0) return;
  for (uint32_t i = all_tiles + threadIdx.x; i < r.most_tiles; i += kRouteThreads) {
    r.tiles[i] = {0, 0, 0, 0};
  }
}

// A block of kRouteThreads; first_row [X] is shared memory.
__device__ void OrderPairs(const RouteCall& call, uint32_t* first_row) {
  const ExpertRouting& r = call.routing;
  PlaceExperts(r, (call.rows.tokens + 31) / 32, first_row);
  __syncthreads();
  const uint32_t pairs = call.rows.tokens * r.per_token;
  for (uint32_t pair = blockIdx.x * kRouteThreads + threadIdx.x; pair < pairs;
       pair += gridDim.x * kRouteThreads) {
    const uint32_t expert = r.expert[pair], token = pair / r.per_token;
    if (expert == UINT32_MAX) {
      r.row[pair] = UINT32_MAX;
      continue;
    }
    const uint32_t word = r.members[static_cast<size_t>(token / 32) * r.experts + expert];
    const uint32_t row = first_row[expert] + CountMembers(r, expert, token / 32) +
                         __popc(word & ((1u << token % 32) - 1));
    r.row[pair] = row;
    r.token_of_row[row] = token;
  }
}

// 32 tokens a block; alone, it orders the pairs too. Shared memory: first_row [X], and a word of
// each token's choices for every 32 experts.
template <bool kSigmoid>
__global__ void __launch_bounds__(kRouteThreads)
    RouteKernel(const __grid_constant__ RouteCall call) {
  extern __shared__ uint32_t routing_shared[];
  const ExpertRouting& r = call.routing;
  const uint32_t words = (r.experts + 31) / 32;
  uint32_t* chosen = routing_shared + r.experts;
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t warp = threadIdx.x / 32, token = blockIdx.x * kRouteWarps + warp;
  if (IsThere(call.rows, token)) {
    Choose<kSigmoid>(call, token, chosen + warp * words);
  } else {
    ChooseNone(call, token, chosen + warp * words);
  }
  __syncthreads();
  for (uint32_t expert = threadIdx.x; expert < r.experts; expert += kRouteThreads) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < kRouteWarps; ++i) {
      word |= (chosen[i * words + expert / 32] >> expert % 32 & 1) << i;
    }
    r.members[static_cast<size_t>(blockIdx.x) * r.experts + expert] = word;
  }
  if (gridDim.x != 1) return;
  __syncthreads();
  OrderPairs(call, routing_shared);
}

__global__ void __launch_bounds__(kRouteThreads)
    OrderKernel(const __grid_constant__ RouteCall call) {
  extern __shared__ uint32_t routing_shared[];
  AllowNextKernel();
  AwaitLastKernel();
  OrderPairs(call, routing_shared);
}

// --- products ----------------------------------------------------------------------------------

__device__ DeviceLinear MapOf(const DeviceLinear& first, uint32_t expert) {
  DeviceLinear map = first;
  const size_t offset = static_cast<size_t>(expert) * first.outputs * first.stride;
  map.high += offset;
  if (map.low != nullptr) map.low += offset;
  return map;
}

template <int kTokenTiles, int kOutputTiles, int kParts>
__global__ void __launch_bounds__(kWarps * 32)
    ExpertProductKernel(const __grid_constant__ ExpertProductCall call) {
  extern __shared__ __align__(128) bf16 shared[];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t output = (blockIdx.x * kWarps + warp) * kOutputTiles * 8;
  AllowNextKernel();
  if (output >= call.map.outputs) return;
  AwaitLastKernel();  // which wrote the tiles, so the weights to read are not known before
  const ExpertTile tile = call.routing.tiles[blockIdx.y];
  if (tile.rows == 0) return;
  const DeviceLinear map = MapOf(call.map, tile.expert);
  bf16* ring =
      shared + warp * kRingStages<kOutputTiles, kParts> * kStageNumbers<kOutputTiles, kParts>;
  StartRing<kOutputTiles, kParts>(map, output, ring);
  const TileRows<kTokenTiles> rows(call, tile);
  float sum[kTokenTiles][kOutputTiles][4] = {};
  RunChains<kTokenTiles, kOutputTiles, kParts>(map, rows, output, ring, sum);
  const uint32_t g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kTokenTiles * kOutputTiles * 4; ++i) {
    const int m = i / 4 / kOutputTiles, n = i / 4 % kOutputTiles;
    const uint32_t column = output + n * 8 + t * 2 + i % 2;
    const uint32_t row = m * 16 + g + i % 4 / 2 * 8;
    if (column >= map.outputs || row >= tile.rows) continue;
    call.y.data[(tile.first_row + row) * call.y.stride + column] = sum[m][n][i % 4];
  }
}

template <int kTokenTiles, int kOutputTiles, int kParts>
void LaunchProduct(const ExpertProductCall& call, const LaunchContext& context) {
  constexpr size_t kShared = kRingBytes<kOutputTiles, kParts>;
  const auto kernel = ExpertProductKernel<kTokenTiles, kOutputTiles, kParts>;
  static const cudaError_t prepared = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  context.Check(prepared);
  const uint32_t outputs = kWarps * kOutputTiles * 8;
  const dim3 grid((call.map.outputs + outputs - 1) / outputs, call.routing.most_tiles);
  context.Run(kernel, grid, kWarps * 32, kShared, call);
}

// --- sum ---------------------------------------------------------------------------------------

constexpr uint32_t kCombineThreads = 128;

__device__ void AddWeighted(float weight, const float4& x, float4& sum) {
  sum.x = fmaf(weight, x.x, sum.x);
  sum.y = fmaf(weight, x.y, sum.y);
  sum.z = fmaf(weight, x.z, sum.z);
  sum.w = fmaf(weight, x.w, sum.w);
}
__device__ void AddWeighted(float weight, float x, float& sum) { sum = fmaf(weight, x, sum); }
__device__ float Times(float x, float factor) { return x * factor; }
__device__ float4 Times(const float4& x, float factor) {
  return {x.x * factor, x.y * factor, x.z * factor, x.w * factor};
}

// A thread's column, or four (Numbers float4).
template <typename Numbers>
__global__ void __launch_bounds__(kCombineThreads)
    CombineKernel(const __grid_constant__ CombineExpertsCall call) {
  constexpr uint32_t kEach = sizeof(Numbers) / sizeof(float);
  AllowNextKernel();
  AwaitLastKernel();
  const ExpertRouting& r = call.routing;
  const uint32_t token = blockIdx.y;
  const uint32_t column = (blockIdx.x * kCombineThreads + threadIdx.x) * kEach;
  if (column >= call.y.columns) return;
  auto* y = reinterpret_cast<Numbers*>(call.y.data + token * call.y.stride + column);
  Numbers sum = {};
  if (call.adds) {
    sum = *y;
    if (call.gate.data != nullptr) {
      sum = Times(sum, Function(Activation::kSigmoid, call.gate.data[token * call.gate.stride]));
    }
  }
#pragma unroll 8
  for (uint32_t i = 0; i < r.per_token; ++i) {
    const uint32_t row = r.row[token * r.per_token + i];
    if (row == UINT32_MAX) continue;
    AddWeighted(
        r.weight[token * r.per_token + i],
        *reinterpret_cast<const Numbers*>(call.outputs.data + row * call.outputs.stride + column),
        sum);
  }
  *y = sum;
}

template <typename Numbers>
void LaunchCombine(const CombineExpertsCall& call, const LaunchContext& context) {
  const uint32_t columns = kCombineThreads * sizeof(Numbers) / sizeof(float);
  const dim3 grid((static_cast<uint32_t>(call.y.columns) + columns - 1) / columns,
                  static_cast<uint32_t>(call.y.rows));
  context.Run(CombineKernel<Numbers>, grid, kCombineThreads, 0, call);
}

}  // namespace

void LaunchRoute(const RouteCall& call, const LaunchContext& context) {
  const ExpertRouting& r = call.routing;
  if (r.experts > kMostDeviceExperts) context.Check(cudaErrorInvalidValue);
  const uint32_t blocks = (call.rows.tokens + kRouteWarps - 1) / kRouteWarps;
  const size_t first_rows = r.experts * sizeof(uint32_t);
  const size_t chosen = size_t{kRouteWarps} * ((r.experts + 31) / 32) * sizeof(uint32_t);
  context.Run(call.sigmoid ? RouteKernel<true> : RouteKernel<false>, dim3(blocks), kRouteThreads,
              first_rows + chosen, call);
  if (blocks == 1) return;
  const uint32_t pairs = call.rows.tokens * r.per_token;
  context.Run(OrderKernel, dim3((pairs + kRouteThreads - 1) / kRouteThreads), kRouteThreads,
              first_rows, call);
}

void LaunchExpertProduct(const ExpertProductCall& call, const LaunchContext& context) {
  if (call.map.float8 != nullptr) return LaunchFloat8ExpertProduct(call, context);
  if (call.map.low != nullptr) return LaunchProduct<1, 1, 2>(call, context);
  LaunchProduct<1, 1, 1>(call, context);
}

void LaunchCombineExperts(const CombineExpertsCall& call, const LaunchContext& context) {
  if (Aligned(call.y, call.y.columns) && Aligned(call.outputs, call.outputs.columns))
    return LaunchCombine<float4>(call, context);
  LaunchCombine<float>(call, context);
}

}  // namespace rivulet::cuda
