// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ + b for 5 to 64 tokens (fewer where few_tokens.cu has no room for its rings) and weights
// in bf16, as fast as the weights can be read. A warp has 8 or 16 outputs of up to 32 tokens and
// walks all of K; nothing is split over K, so each output is one chain. One warp of a block
// brings weights through a ring in shared memory, as deep as there is room for, and begins before
// the kernel before this one has ended. Another brings the tokens through a second ring. Two blocks
// form a cluster: each reads half of the tokens' numbers, and the copy engine writes them to both.
// hundred_tokens.cu has maps with few outputs at 17 to 32 tokens, where it is faster, and at 33 to
// 64 those with few outputs and those with many (IsSlower).
//
// Few copies of many bytes: a copy takes a tenth of a microsecond, however small it is.
//
// Bytes expected: outputs · stride · 2 of weights, and from L2 rows · stride for each block and
// round.
#include <algorithm>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/product_outputs.cuh"
#include "kernels/device/product_rings.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kBlocksOfCluster = 2;
constexpr uint32_t kMostTokens = 64;
constexpr uint32_t kMostMultipliers = 8;  // warps

struct TensShape {
  uint32_t blocks, rounds;
  // A block multiplies so many groups of outputs in a round, each with so many parts of the tokens.
  uint32_t groups, parts;
  RingSlots slots;

  __host__ __device__ uint32_t multipliers() const { return groups * parts; }  // warps
};

struct TensCall {
  CUtensorMap weights, tokens;
  ProductOutputs out;
  uint32_t stages;
  uint32_t on_the_way;  // stages of weights that are asked for and have not come
  TensShape shape;
  WeightsAhead ahead;
};

// What two k16 steps are multiplied with.
template <int kTokenTiles, int kOutputTiles>
struct Operands {
  uint32_t tokens[2][kTokenTiles][4];
  uint32_t weights[kOutputTiles][4];

  // Where the first matrices of the two steps are, as the lane gives them; and those of the
  // weights.
  __device__ void Load(const uint32_t (&token)[2], uint32_t weight) {
#pragma unroll
    for (uint32_t n = 0; n < kOutputTiles; ++n) {
      LoadMatrices(weights[n], weight + n * 8 * kBoxRowBytes);
    }
#pragma unroll
    for (uint32_t step = 0; step < 2; ++step) {
#pragma unroll
      for (uint32_t m = 0; m < kTokenTiles; ++m) {
        LoadMatrices(tokens[step][m], token[step] + m * 16 * kBoxRowBytes);
      }
    }
  }

  // Zero, when what the second step is multiplied with has come, and everything that was multiplied
  // for these sums.
  __device__ uint32_t ZeroBehindAll(const float (&sum)[kTokenTiles][kOutputTiles][4]) const {
    uint32_t all = 0;
#pragma unroll
    for (uint32_t m = 0; m < kTokenTiles; ++m) all |= tokens[1][m][0] | BitsOfSums(sum[m]);
    return ZeroBehind(all);
  }

  // One of the two steps.
  __device__ void Multiply(uint32_t step, float (&sum)[kTokenTiles][kOutputTiles][4]) const {
#pragma unroll
    for (uint32_t n = 0; n < kOutputTiles; ++n) {
#pragma unroll
      for (uint32_t m = 0; m < kTokenTiles; ++m) {
        MultiplyAdd(sum[m][n], tokens[step][m], weights[n][step * 2], weights[n][step * 2 + 1]);
      }
    }
  }
};

template <int kTokenTiles, int kOutputTiles, int kStageBoxes>
class TensOfTokens {
 public:
  static constexpr uint32_t kStageInputs = kStageBoxes * kBoxColumns;
  static constexpr uint32_t kOutputs = kOutputTiles * 8;  // of a group
  static constexpr uint32_t kTokens = kTokenTiles * 16;   // of a part

  __device__ TensOfTokens(const TensCall& call, ProductBarriers& barriers, float* factors,
                          uint32_t memory)
      : c_(call),
        s_(call.shape),
        b_(barriers),
        factors_(factors),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        token_box_(s_.parts * kTokens * kBoxRowBytes),
        weight_box_(s_.groups * kOutputs * kBoxRowBytes),
        tokens_((memory + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment),
        weights_(tokens_ + s_.slots.tokens * kStageBoxes * token_box_),
        part_(warp_ % s_.parts),
        group_(warp_ / s_.parts),
        token_place_((part_ * kTokens + lane_ % 16) * kBoxRowBytes + (lane_ / 16 ^ lane_ % 8) * 16),
        weight_place_((group_ * kOutputs + lane_ % 8) * kBoxRowBytes +
                      (lane_ / 8 ^ lane_ % 8) * 16),
        token_ring_(tokens_, kStageBoxes * token_box_, s_.slots.tokens, b_.tokens_full),
        weight_ring_(weights_, kStageBoxes * weight_box_, s_.slots.weights, b_.weights_full) {
    // In registers, or the compiler computes them anew for each stage.
    asm volatile("" : "+r"(token_box_), "+r"(weight_box_), "+r"(token_place_), "+r"(weight_place_));
  }

  __device__ void Start() {
    if (warp_ == s_.multipliers() && lane_ == 0) {
      StartWeights(c_.weights, Stages(), b_, FirstOutput(0), s_.multipliers());
    }
    if (threadIdx.x == 0) {
      StartTokens(c_.tokens, b_, s_.slots.tokens, kBlocksOfCluster * s_.multipliers());
    }
    __syncwarp();
    MeetCluster();
  }

  __device__ void Run() {
    RunWarps(
        s_.multipliers(), c_.ahead, b_, [this] { MultiplyAll(); }, [this] { BringWeights(); },
        [this] { BringTokens(); },
        [this](uint32_t warp) { BringFactors(c_.out, warp, s_.multipliers() * 32, factors_); });
  }

 private:
  using TensOperands = Operands<kTokenTiles, kOutputTiles>;
  // Of the tokens' halves of eight.
  using Residuals = float2[kTokenTiles][2][kOutputTiles];
  using NormWeights = float2[kOutputTiles];
  // Whether there are registers for the residual stream beside the chains.
  static constexpr bool kReadsAhead = kTokenTiles * kOutputTiles <= 2;
  // Of a stage: each has the operands of two k16 steps.
  static constexpr uint32_t kStageLoads = kStageInputs / 32;

  // The first of the block's outputs in a round.
  __device__ uint32_t FirstOutput(uint32_t round) const {
    return (blockIdx.x * s_.rounds + round) * s_.groups * kOutputs;
  }

  __device__ WeightStages Stages() const {
    return {weights_,         kStageBoxes * weight_box_,
            s_.slots.weights, kStageInputs,
            c_.on_the_way,    s_.rounds,
            c_.stages};
  }
  __device__ void BringWeights() const {
    cuda::BringWeights(c_.weights, Stages(), b_,
                       [&](uint32_t round) { return FirstOutput(round); });
  }

  // Of each stage its share of the boxes, for both blocks.
  __device__ void BringTokens() {
    constexpr uint32_t kShare = kStageBoxes / kBlocksOfCluster;
    const uint32_t first = BlockOfCluster() * kShare;
    AwaitLastKernel();
    Ring slot;
    for (uint32_t round = 0; round < s_.rounds; ++round) {
      for (uint32_t stage = 0; stage < c_.stages; ++stage) {
        if (!slot.first_round) WaitBarrier(&b_.tokens_empty[slot.at], slot.parity ^ 1);
        uint64_t* const full = &b_.tokens_full[slot.at];
        ArriveExpecting(full, kStageBoxes * token_box_);
        for (uint32_t box = first; box < first + kShare; ++box) {
          CopyBoxToAll(tokens_ + (slot.at * kStageBoxes + box) * token_box_, c_.tokens, 0,
                       stage * kStageInputs + box * kBoxColumns, full, (1 << kBlocksOfCluster) - 1);
        }
        slot.Advance(s_.slots.tokens);
      }
    }
  }

  // Two k16 steps of a stage. A row's chunks are exchanged by its number, so that chunks 2 and 4 on
  // are other bits of the address.
  __device__ void Load(TensOperands& operands, uint32_t token_stage, uint32_t weight_stage,
                       uint32_t load) const {
    const uint32_t box = load / 2, half = load % 2 * 64;
    const uint32_t token = token_stage + box * token_box_;
    const uint32_t weight = weight_stage + box * weight_box_;
    operands.Load({token + (token_place_ ^ half), token + (token_place_ ^ (half + 32))},
                  weight + (weight_place_ ^ half));
  }

  __device__ bool HasStage() const {
    return TestBarrier(weight_ring_.barrier, weight_ring_.parity) &
           TestBarrier(token_ring_.barrier, token_ring_.parity);
  }
  __device__ void AwaitStage() const {
    WaitBarrier(weight_ring_.barrier, weight_ring_.parity);
    WaitBarrier(token_ring_.barrier, token_ring_.parity);
  }

  // Outputs that are not there have weights of zero, so that all warps do the same. What is done
  // with outputs is rehearsed before the tokens are there (rehearsal.cuh).
  __device__ void MultiplyAll() {
    TensOperands operands[2];
    NormWeights weight = {};
    Residuals before = {};
    uint32_t left = s_.rounds * c_.stages;
#pragma unroll 1
    for (uint32_t pass = 0; pass <= s_.rounds; ++pass) {
      uint32_t real = pass;
      asm volatile("" : "+r"(real));
      const uint32_t round = real == 0 ? 0 : pass - 1;
      float sum[kTokenTiles][kOutputTiles][4] = {};
      if constexpr (kReadsAhead) {
        if (c_.out.adds()) ReadWeights(round, weight);
      }
      if (real != 0) {
        if (c_.out.scales() || c_.out.adds()) {
          AwaitLastKernel();
          if (pass == 1) clock_.Stamp(BlockEvent::kAwaited);
        }
        if constexpr (kReadsAhead) {
          if (c_.out.adds()) ReadBefore(round, before);
        }
        if (pass == 1) {
          AwaitStage();
          clock_.Stamp(BlockEvent::kLoaded);
          Load(operands[0], token_ring_.stage, weight_ring_.stage, 0);
        }
        const uint32_t last = left - c_.stages;
#pragma unroll 1
        while (left > last) MultiplyStage(--left, operands, sum);
        if (last == 0) clock_.Stamp(BlockEvent::kMultiplied);
        if (last == 0) EndChains(b_);
        if (c_.out.scales() && pass == 1) AwaitFactors(s_.multipliers() * 32);
      }
      Write(round, sum, before, weight, real != 0);
    }
    clock_.Stamp(BlockEvent::kEnds);
  }

  // A warp issues its instructions in order, and a matrix instruction waits for the one before it
  // in the chain. Everything else is written where it has to wait anyway: between the two steps of
  // operands, the next ones are loaded.
  __device__ void MultiplyStage(uint32_t left, TensOperands (&operands)[2],
                                float (&sum)[kTokenTiles][kOutputTiles][4]) {
    const bool more = left > 0;
    const RingPlace tokens = token_ring_, weights = weight_ring_;
    token_ring_.Advance(), weight_ring_.Advance();
    bool ready = true;
#pragma unroll
    for (uint32_t i = 0; i + 1 < kStageLoads; ++i) {
      operands[i % 2].Multiply(0, sum);
      Load(operands[(i + 1) % 2], tokens.stage, weights.stage, i + 1);
      if (i + 2 == kStageLoads && more) ready = HasStage();
      operands[i % 2].Multiply(1, sum);
    }
    operands[1].Multiply(0, sum);
    if (!ready) AwaitStage();
    if (more) Load(operands[0], token_ring_.stage, weight_ring_.stage, 0);
    const uint32_t zero = operands[1].ZeroBehindAll(sum);
    ReleaseStage(weights.barrier + zero, tokens.barrier + zero, kBlocksOfCluster,
                 left >= s_.slots.tokens);
    operands[1].Multiply(1, sum);
  }

  __device__ uint32_t Column(uint32_t round, uint32_t tile) const {
    return FirstOutput(round) + group_ * kOutputs + tile * 8 + lane_ % 4 * 2;
  }
  __device__ uint32_t Token(uint32_t tile, uint32_t half) const {
    return part_ * kTokens + tile * 16 + half * 8 + lane_ / 4;
  }

  // visit(token tile, half of its tokens, output tile)
  template <typename Visit>
  static __device__ void ForEachPair(const Visit& visit) {
#pragma unroll
    for (uint32_t n = 0; n < kOutputTiles; ++n) {
#pragma unroll
      for (uint32_t i = 0; i < 2 * kTokenTiles; ++i) visit(i / 2, i % 2, n);
    }
  }
  __device__ void ReadWeights(uint32_t round, NormWeights& weight) const {
#pragma unroll
    for (uint32_t n = 0; n < kOutputTiles; ++n) {
      weight[n] = ReadNormWeights(c_.out, Column(round, n));
    }
  }
  __device__ void ReadBefore(uint32_t round, Residuals& before) const {
    ForEachPair([&](uint32_t m, uint32_t half, uint32_t n) {
      before[m][half][n] = ReadResidual(c_.out, Token(m, half), Column(round, n));
    });
  }
  __device__ void Write(uint32_t round, const float (&sum)[kTokenTiles][kOutputTiles][4],
                        const Residuals& before, const NormWeights& weight, bool real) const {
    WriteOutputs<2 * kTokenTiles, kOutputTiles>(
        c_.out, factors_, real, Column(round, 0), [&](uint32_t i) { return Token(i / 2, i % 2); },
        [&](uint32_t i, uint32_t n) {
          const float(&four)[4] = sum[i / 2][n];
          return float2{four[i % 2 * 2], four[i % 2 * 2 + 1]};
        },
        [&](uint32_t i, uint32_t n) {
          if constexpr (kReadsAhead) return before[i / 2][i % 2][n];
          return ReadResidual(c_.out, Token(i / 2, i % 2), Column(round, n));
        },
        [&](uint32_t n) {
          if constexpr (kReadsAhead) return weight[n];
          return ReadNormWeights(c_.out, Column(round, n));
        });
  }

  const BlockClock clock_ = {};
  const TensCall& c_;
  const TensShape& s_;
  ProductBarriers& b_;
  float* const factors_;  // of the tokens, in shared memory
  const uint32_t warp_, lane_;
  uint32_t token_box_, weight_box_;  // bytes
  const uint32_t tokens_, weights_;  // in shared memory
  const uint32_t part_, group_;
  // What the lane gives for the first matrices of a box: rows l % 16 of tokens, l % 8 of weights.
  uint32_t token_place_, weight_place_;
  RingPlace token_ring_, weight_ring_;  // of a warp that multiplies
};

// Threads by which the compiler reckons how many registers each may have. The kernel has 448; with
// 640 it takes at most 96, so that blocks of the next kernels find registers, too.
constexpr uint32_t kRegisterThreads = 640;

template <int kTokenTiles, int kOutputTiles, int kStageBoxes>
__global__ void __cluster_dims__(kBlocksOfCluster) __launch_bounds__(kRegisterThreads)
    TensKernel(const __grid_constant__ TensCall call) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ ProductBarriers barriers;
  __shared__ float factors[kMostBroughtFactors];
  AllowNextKernel();
  TensOfTokens<kTokenTiles, kOutputTiles, kStageBoxes> work(call, barriers, factors,
                                                            SharedAddress(memory));
  work.Start();
  work.Run();
}

// How a kernel does its part: what its template has.
struct TensTiles {
  uint32_t tokens, outputs, stage_boxes;

  uint32_t stage_inputs() const { return stage_boxes * kBoxColumns; }
};

constexpr uint32_t kFewTiles = 3;  // the most of a map with few outputs

// Of 8 outputs, for each processor.
uint32_t TilesOfBlock(uint32_t outputs, uint32_t processors) {
  return Parts(Parts(outputs, 8), processors);
}

// A warp with more outputs reads the tokens' numbers less often. Where a block has few, a chain's
// length is what counts: each warp has one tile, and stages are long.
TensTiles TilesFor(uint32_t outputs, uint32_t rows, uint32_t processors) {
  const uint32_t tokens = rows <= 16 ? 1 : 2;
  const bool few = TilesOfBlock(outputs, processors) <= kFewTiles;
  return few ? TensTiles{tokens, 1, 4} : TensTiles{tokens, 2, 2};
}

// Than hundred_tokens.cu, of more than 32 tokens: where a block has few outputs, or many, the warps
// here read shared memory more often than the warpgroup's instruction does. That kernel adds few
// outputs only. Where it cannot run, CudaDevice::PlainProduct takes these products.
bool IsSlower(uint32_t outputs, bool adds, uint32_t processors) {
  constexpr uint32_t kManyTiles = 8;
  const uint32_t tiles = TilesOfBlock(outputs, processors);
  return tiles <= kFewTiles || (tiles >= kManyTiles && !adds);
}

// Each block gets the same number of adjacent outputs.
TensShape ShapeFor(const DeviceLinear& linear, uint32_t rows, const TensTiles& tiles,
                   uint32_t processors) {
  TensShape shape;
  shape.parts = Parts(rows, tiles.tokens * 16);
  const uint32_t groups = Parts(linear.outputs, tiles.outputs * 8);
  const uint32_t of_block = Parts(groups, processors);
  shape.rounds = Parts(of_block, kMostMultipliers / shape.parts);
  shape.groups = Parts(of_block, shape.rounds);
  shape.blocks =
      Parts(Parts(groups, shape.rounds * shape.groups), kBlocksOfCluster) * kBlocksOfCluster;
  const uint32_t stages = Parts(linear.stride, tiles.stage_inputs()) * shape.rounds;
  const uint32_t row_bytes = tiles.stage_boxes * kBoxRowBytes;
  const uint32_t token_bytes = shape.parts * tiles.tokens * 16 * row_bytes;
  const uint32_t weight_bytes = shape.groups * tiles.outputs * 8 * row_bytes;
  const uint32_t of_tokens = (rows <= 32 ? 64 : 96) << 10;
  shape.slots = SlotsFor(stages, weight_bytes, stages, token_bytes, of_tokens);
  return shape;
}

template <int kTokenTiles, int kOutputTiles, int kStageBoxes>
bool Launch(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
            const TensShape& shape, const WeightsAhead& ahead, const LaunchContext& context) {
  using Work = TensOfTokens<kTokenTiles, kOutputTiles, kStageBoxes>;
  TensCall call;
  call.out = out;
  call.stages = Parts(linear.stride, Work::kStageInputs);
  call.shape = shape, call.ahead = ahead;
  const uint32_t outputs = shape.groups * Work::kOutputs, tokens = shape.parts * Work::kTokens;
  if (!DescribeWholeMatrix(linear.high, linear.outputs, linear.stride, outputs, kStageBoxes,
                           call.weights) ||
      !DescribeMatrix(x.data, x.rows, x.columns, x.stride, tokens, call.tokens)) {
    return false;
  }
  const uint32_t stage_bytes = kStageBoxes * outputs * kBoxRowBytes;
  // With two stages of 24 KB, 8 rows took up to 3 % longer, and 16 rows 1 %.
  call.on_the_way =
      StagesOnTheWay(stage_bytes, shape.slots.weights, stage_bytes <= (24 << 10) ? 3 : 2);
  const auto kernel = TensKernel<kTokenTiles, kOutputTiles, kStageBoxes>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfProduct);
  context.Check(prepared);
  const size_t shared = kBoxAlignment + shape.slots.tokens * kStageBoxes * tokens * kBoxRowBytes +
                        size_t{shape.slots.weights} * stage_bytes;
  const uint32_t warps = shape.multipliers() + kRingProducers + (out.scales() ? kFactorWarps : 0);
  context.Run(kernel, dim3(shape.blocks), warps * 32, shared, call);
  return true;
}

}  // namespace

// While a chain is multiplied whose weights are nearly all in the ring, memory has nothing to do.
WeightsAhead AheadOfTens(const DeviceLinear& linear, const DeviceLinear& next, uint32_t rows,
                         const LaunchContext& context) {
  if (rows > kMostTokens || next.high == nullptr || next.low != nullptr) return {};
  const auto processors = static_cast<uint32_t>(context.processors);
  const TensTiles here = TilesFor(linear.outputs, rows, processors);
  const TensTiles there = TilesFor(next.outputs, rows, processors);
  const TensShape shape = ShapeFor(linear, rows, here, processors);
  const bool idle = shape.slots.weights * here.stage_inputs() * 2 > linear.stride;
  if (!idle) return {};
  const RingSlots slots = ShapeFor(next, rows, there, processors).slots;
  return RestOfRows(next.high, next.outputs, next.stride * 2,
                    slots.weights * there.stage_inputs() * 2);
}

bool LaunchTensOfTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                        const WeightsAhead& ahead, const LaunchContext& context) {
  if (x.rows == 0 || x.rows > kMostTokens || x.two_parts) return false;
  if (linear.high == nullptr || linear.low != nullptr) return false;
  const auto processors = static_cast<uint32_t>(context.processors);
  const TensTiles tiles = TilesFor(linear.outputs, x.rows, processors);
  if (x.rows > 32 && IsSlower(linear.outputs, out.adds(), processors)) return false;
  const TensShape shape = ShapeFor(linear, x.rows, tiles, processors);
  const auto launch = [&](auto function) {
    return function(linear, x, out, shape, ahead, context);
  };
  if (tiles.outputs == 1) return launch(tiles.tokens == 1 ? Launch<1, 1, 4> : Launch<2, 1, 4>);
  return launch(tiles.tokens == 1 ? Launch<1, 2, 2> : Launch<2, 2, 2>);
}

}  // namespace rivulet::cuda
