// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ + b for 17 to 128 tokens and weights in bf16, by the warpgroup's matrix instruction: for
// maps with few outputs, up to 64 tokens, where tens_of_tokens.cu leaves them or this is faster
// (IsFaster), and from 33 tokens on for maps with many. A warpgroup has 64 tokens and up to 128
// outputs and walks all of K; nothing is split over K, so each output is one chain. A step of such
// a chain takes 22 cycles (24 outputs), where that of a warp's instruction takes 32. One warp of a
// block brings weights through a ring and begins before the kernel before this one has ended;
// another brings the tokens through a second ring. Four blocks with different outputs form a
// cluster: they share out the tokens' numbers, and the copy engine writes what one reads to all.
//
// The instruction reads 64 tokens. Of up to 32, only those that are there are copied, and for the
// others it reads on in shared memory. Each token has its own sums, and theirs are not written.
//
// Bytes expected: outputs · stride · 2 of weights, and from L2 rows · stride · 2 for each cluster
// and round, which is why the library is faster with more tokens, and from 65 on with few outputs.
#include <algorithm>
#include <utility>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/product_outputs.cuh"
#include "kernels/device/product_rings.cuh"
#include "kernels/device/warpgroup_product.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kBlocksOfCluster = 4;
constexpr uint32_t kTokensOfGroup = 64, kMostGroups = 2;  // warpgroups
constexpr uint32_t kWarpsOfGroup = 4;
// More than any launch has; it sets how many registers a thread may have.
constexpr uint32_t kMostThreads =
    (kMostGroups * kWarpsOfGroup + kRingProducers + kFactorWarps) * 32;
constexpr uint32_t kMostFew = 32;  // tokens that are not padded to 64
// Boxes of a stage, of 64 columns. A few tokens' stages are long, so that a copy has many bytes.
constexpr uint32_t kFewBoxes = 4, kManyBoxes = 2;
constexpr uint32_t kFewOnTheWay = 48 << 10;  // of their maps' weights, at least
constexpr uint32_t kFewTiles = 4;            // the most of a map with few outputs

struct HundredShape {
  uint32_t blocks, rounds;
  uint32_t groups;
  uint32_t tiles;       // of 8 outputs, of a block in a round
  uint32_t token_rows;  // of a box
  RingSlots slots;

  __host__ __device__ uint32_t warps() const { return groups * kWarpsOfGroup; }
};

struct HundredCall {
  CUtensorMap weights, tokens;
  ProductOutputs out;
  uint32_t stages;
  uint32_t on_the_way;  // stages of weights that are asked for and have not come
  HundredShape shape;
  WeightsAhead ahead;
};

// Whether there are registers for the residual stream beside the chains. Above 64 rows no map adds.
template <int kTiles, int kStageBoxes>
constexpr bool kMayAdd = kTiles <= (kStageBoxes == kFewBoxes ? 3 : 4);

// Warps that bring factors. A block with two groups of tokens has 12 warps with two of them, three
// in each quarter of a processor. With up to 128 registers a thread they leave room for a block of
// row preparation. With one group the kernels are the same.
template <int kTiles>
constexpr uint32_t kFactorWarpsFor = kTiles > 4 ? 2 : kFactorWarps;

template <int kTiles, int kStageBoxes>
class HundredTokens {
 public:
  static constexpr uint32_t kStageInputs = kStageBoxes * kBoxColumns;
  static constexpr uint32_t kOutputs = kTiles * 8;
  static constexpr uint32_t kWeightBox = kOutputs * kBoxRowBytes;  // bytes
  static constexpr uint32_t kWeightStage = kStageBoxes * kWeightBox;

  __device__ HundredTokens(const HundredCall& call, ProductBarriers& barriers, float* factors,
                           uint32_t memory)
      : c_(call),
        s_(call.shape),
        b_(barriers),
        factors_(factors),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        token_box_(s_.token_rows * kBoxRowBytes),
        token_stage_(s_.groups * kStageBoxes * token_box_),
        tokens_((memory + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment),
        weights_(tokens_ + s_.slots.tokens * token_stage_) {}

  __device__ void Start() {
    if (warp_ == s_.warps() && lane_ == 0) {
      StartWeights(c_.weights, Stages(), b_, FirstOutput(0), s_.warps());
    }
    if (threadIdx.x == 0) {
      StartTokens(c_.tokens, b_, s_.slots.tokens, kBlocksOfCluster * s_.warps());
    }
    __syncwarp();
    MeetCluster();
  }

  __device__ void Run() {
    RunWarps(
        s_.warps(), c_.ahead, b_, [this] { MultiplyAll(); }, [this] { BringAllWeights(); },
        [this] { BringTokens(); },
        [this](uint32_t warp) {
          BringFactors<kFactorWarpsFor<kTiles>>(c_.out, warp, s_.warps() * 32, factors_);
        });
  }

 private:
  using Sums = float[4 * kTiles];
  using Residuals = float2[kTiles][2];  // of the tokens' halves of eight
  using NormWeights = float2[kTiles];
  static constexpr bool kAdds = kMayAdd<kTiles, kStageBoxes>;

  __device__ uint32_t FirstOutput(uint32_t round) const {
    return (blockIdx.x * s_.rounds + round) * kOutputs;
  }

  __device__ WeightStages Stages() const {
    return {weights_,      kWeightStage, s_.slots.weights, kStageInputs,
            c_.on_the_way, s_.rounds,    c_.stages};
  }
  __device__ void BringAllWeights() const {
    BringWeights(c_.weights, Stages(), b_, [&](uint32_t round) { return FirstOutput(round); });
  }

  // Of each stage this block's share of the boxes, for all blocks. The boxes of a warpgroup follow
  // each other.
  __device__ void BringTokens() const {
    const uint32_t boxes = s_.groups * kStageBoxes;
    const uint32_t share = (boxes + kBlocksOfCluster - 1) / kBlocksOfCluster;
    const uint32_t first = min(BlockOfCluster() * share, boxes), end = min(first + share, boxes);
    AwaitLastKernel();
    Ring slot;
    for (uint32_t n = 0; n < s_.rounds * c_.stages; ++n, slot.Advance(s_.slots.tokens)) {
      if (!slot.first_round) WaitBarrier(&b_.tokens_empty[slot.at], slot.parity ^ 1);
      uint64_t* const full = &b_.tokens_full[slot.at];
      ArriveExpecting(full, token_stage_);
      for (uint32_t box = first; box < end; ++box) {
        const uint32_t column = n % c_.stages * kStageBoxes + box % kStageBoxes;
        CopyBoxToAll(tokens_ + slot.at * token_stage_ + box * token_box_, c_.tokens,
                     box / kStageBoxes * kTokensOfGroup, column * kBoxColumns, full,
                     (1 << kBlocksOfCluster) - 1);
      }
    }
  }

  // Outputs and tokens that are not there are zeros, so that all warps do the same.
  __device__ void MultiplyAll() {
    const uint32_t group = warp_ / kWarpsOfGroup;
    RingPlace tokens(tokens_, token_stage_, s_.slots.tokens, b_.tokens_full);
    RingPlace weights(weights_, kWeightStage, s_.slots.weights, b_.weights_full);
    uint32_t left = s_.rounds * c_.stages;
    NormWeights weight = {};
    Residuals before = {};
#pragma unroll 1
    for (uint32_t pass = 0; pass <= s_.rounds; ++pass) {
      uint32_t real = pass;
      asm volatile("" : "+r"(real));
      const uint32_t round = real == 0 ? 0 : pass - 1;
      Sums sum;
#pragma unroll
      for (float& x : sum) x = 0.0f;
      if (kAdds && c_.out.adds()) ReadWeights(round, weight);
      if (real != 0) {
        if (c_.out.scales() || c_.out.adds()) {
          AwaitLastKernel();
          if (pass == 1) clock_.Stamp(BlockEvent::kAwaited);
        }
        if (kAdds && c_.out.adds()) ReadBefore(round, before);
        uint32_t weight_barrier = 0, token_barrier = 0;  // of the stage before
#pragma unroll 1
        for (uint32_t stage = 0; stage < c_.stages; ++stage) {
          WaitBarrier(weights.barrier, weights.parity);
          WaitBarrier(tokens.barrier, tokens.parity);
          if (pass == 1 && stage == 0) clock_.Stamp(BlockEvent::kLoaded);
          MultiplyStage(tokens.stage + group * kStageBoxes * token_box_, weights.stage, sum);
          AwaitProducts<1>();
          if (stage > 0) Release(weight_barrier, token_barrier, left--);
          weight_barrier = weights.barrier, token_barrier = tokens.barrier;
          tokens.Advance(), weights.Advance();
        }
        AwaitSums(sum);
        if (pass == s_.rounds) clock_.Stamp(BlockEvent::kMultiplied);
        Release(weight_barrier, token_barrier, left--);
        if (left == 0) EndChains(b_);
        if (c_.out.scales() && pass == 1) AwaitFactors<kFactorWarpsFor<kTiles>>(s_.warps() * 32);
      }
      Write(round, sum, before, weight, real != 0);
    }
    clock_.Stamp(BlockEvent::kEnds);
  }

  // Without a branch: the compiler lets the products of a loop follow each other only then, and
  // waits for each otherwise.
  __device__ void MultiplyStage(uint32_t tokens, uint32_t weights, Sums& sum) const {
    constexpr uint32_t kStep = 32;  // bytes of k16
    const MatrixOperand weight = BoxOperand(weights);
    MatrixOperand token[kStageBoxes];
#pragma unroll
    for (uint32_t box = 0; box < kStageBoxes; ++box) {
      token[box] = BoxOperand(tokens + box * token_box_);
    }
    BeginProducts();
#pragma unroll
    for (uint32_t box = 0; box < kStageBoxes; ++box) {
#pragma unroll
      for (uint32_t k = 0; k < kBoxRowBytes; k += kStep) {
        WarpgroupProduct<kTiles>::MultiplyAdd(sum, token[box] + k / 16,
                                              weight + (box * kWeightBox + k) / 16);
      }
    }
    EndProducts();
  }

  // `left`: stages of the block, this one included.
  __device__ void Release(uint32_t weight_barrier, uint32_t token_barrier, uint32_t left) const {
    ReleaseStage(weight_barrier, token_barrier, kBlocksOfCluster, left > s_.slots.tokens);
  }

  __device__ uint32_t Token(uint32_t half) const {
    return warp_ / kWarpsOfGroup * kTokensOfGroup + warp_ % kWarpsOfGroup * 16 + half * 8 +
           lane_ / 4;
  }
  __device__ uint32_t Column(uint32_t round, uint32_t tile) const {
    return FirstOutput(round) + tile * 8 + lane_ % 4 * 2;
  }
  __device__ void ReadWeights(uint32_t round, NormWeights& weight) const {
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n) weight[n] = ReadNormWeights(c_.out, Column(round, n));
  }
  __device__ void ReadBefore(uint32_t round, Residuals& before) const {
#pragma unroll
    for (uint32_t i = 0; i < 2 * kTiles; ++i) {
      before[i / 2][i % 2] = ReadResidual(c_.out, Token(i % 2), Column(round, i / 2));
    }
  }
  __device__ void Write(uint32_t round, const Sums& sum, const Residuals& before,
                        const NormWeights& weight, bool real) const {
    WriteOutputs<2, kTiles, kAdds>(
        c_.out, factors_, real, Column(round, 0), [&](uint32_t half) { return Token(half); },
        [&](uint32_t half, uint32_t n) {
          return float2{sum[n * 4 + half * 2], sum[n * 4 + half * 2 + 1]};
        },
        [&](uint32_t half, uint32_t n) { return before[n][half]; },
        [&](uint32_t n) { return weight[n]; });
  }

  const BlockClock clock_ = {};
  const HundredCall& c_;
  const HundredShape& s_;
  ProductBarriers& b_;
  float* const factors_;  // of the tokens, in shared memory
  const uint32_t warp_, lane_;
  const uint32_t token_box_, token_stage_;  // bytes
  const uint32_t tokens_, weights_;         // in shared memory
};

// Of few tokens: by threads and blocks the compiler takes at most 72 registers a thread, which
// leaves some for blocks of the kernels that follow. A quarter of a processor has 16 384, for up to
// three warps of this block. What three tiles add to needs 80.
template <int kTiles, int kStageBoxes>
constexpr uint32_t kRegisterThreads = (kStageBoxes == kFewBoxes && kTiles == 3) ? 384
                                                                                : kMostThreads;
template <int kStageBoxes>
constexpr uint32_t kBlocksByRegisters = kStageBoxes == kFewBoxes ? 2 : 1;

template <int kTiles, int kStageBoxes>
__global__ void __launch_bounds__(kRegisterThreads<kTiles, kStageBoxes>,
                                  kBlocksByRegisters<kStageBoxes>)
    HundredKernel(const __grid_constant__ HundredCall call) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ ProductBarriers barriers;
  __shared__ float factors[kMostBroughtFactors];
  AllowNextKernel();
  HundredTokens<kTiles, kStageBoxes> work(call, barriers, factors, SharedAddress(memory));
  work.Start();
  work.Run();
}

template <int kTiles, int kStageBoxes>
cudaError_t AllowShared() {
  return cudaFuncSetAttribute(HundredKernel<kTiles, kStageBoxes>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfProduct);
}

// Blocks that run at once. They are fewer than processors: the four of a cluster need a place in
// one part of the chip (120 of 132 on an H100). Launches with other tiles and boxes have no more
// threads and no more shared memory than what is asked about here.
uint32_t MostBlocks() {
  static const uint32_t blocks = [] {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kBlocksOfCluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kBlocksOfCluster * 256);
    config.blockDim = dim3(kMostThreads);
    config.dynamicSmemBytes = kSharedOfProduct - sizeof(ProductBarriers);
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    const bool known = AllowShared<1, kManyBoxes>() == cudaSuccess &&
                       cudaOccupancyMaxActiveClusters(&clusters, HundredKernel<1, kManyBoxes>,
                                                      &config) == cudaSuccess;
    cudaGetLastError();  // a machine on which this is not known uses other kernels
    return known ? clusters * kBlocksOfCluster : 0u;
  }();
  return blocks;
}

// Bytes of shared memory that the rings have at most.
struct RingBytes {
  uint32_t tokens, weights;
};

// With larger rings of weights for few outputs, blocks of the kernel before this one find less room
// beside a block: with 120 KB and less on the way 24 and 32 rows of 2.7B took 2 % longer, and with
// 72 KB 40 to 64 rows up to 2 %. Where all weights fit, what is left lets blocks of the next
// product in earlier.
RingBytes MostBytes(uint32_t rows, const HundredShape& shape) {
  constexpr uint32_t kAll = kRingRoom;
  if (shape.groups > 1) return {96 << 10, kAll};
  if (shape.tiles > kFewTiles) return {64 << 10, kAll};
  return rows <= kMostFew ? RingBytes{80 << 10, 84 << 10} : RingBytes{128 << 10, 64 << 10};
}

// Each block gets the same number of adjacent outputs, in as few rounds as possible.
HundredShape ShapeFor(const DeviceLinear& linear, uint32_t rows, uint32_t most_blocks) {
  constexpr uint32_t kMostTiles = 16;
  HundredShape shape;
  const uint32_t tiles = Parts(linear.outputs, 8), of_block = Parts(tiles, most_blocks);
  shape.groups = Parts(rows, kTokensOfGroup);
  shape.rounds = Parts(of_block, kMostTiles);
  shape.tiles = Parts(of_block, shape.rounds);
  shape.blocks =
      Parts(Parts(tiles, shape.rounds * shape.tiles), kBlocksOfCluster) * kBlocksOfCluster;
  shape.token_rows = rows <= kMostFew ? Parts(rows, 8) * 8 : kTokensOfGroup;
  const uint32_t boxes = rows <= kMostFew ? kFewBoxes : kManyBoxes;
  const uint32_t stages = Parts(linear.stride, boxes * kBoxColumns) * shape.rounds;
  const uint32_t token_bytes = shape.groups * boxes * shape.token_rows * kBoxRowBytes;
  const uint32_t weight_bytes = shape.tiles * 8 * kBoxRowBytes * boxes;
  const RingBytes most = MostBytes(rows, shape);
  shape.slots = SlotsFor(stages, weight_bytes, stages, token_bytes, most.tokens);
  shape.slots.weights = std::min(shape.slots.weights, most.weights / weight_bytes);
  return shape;
}

template <int kTiles, int kStageBoxes>
bool Launch(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
            const HundredShape& shape, const WeightsAhead& ahead, const LaunchContext& context) {
  using Work = HundredTokens<kTiles, kStageBoxes>;
  if (out.adds() && !kMayAdd<kTiles, kStageBoxes>) return false;
  HundredCall call;
  call.out = out;
  call.stages = Parts(linear.stride, Work::kStageInputs);
  call.shape = shape, call.ahead = ahead;
  if (!DescribeWholeMatrix(linear.high, linear.outputs, linear.stride, Work::kOutputs, kStageBoxes,
                           call.weights) ||
      !DescribeMatrix(x.data, x.rows, x.columns, x.stride, shape.token_rows, call.tokens)) {
    return false;
  }
  constexpr uint32_t kLeast = kStageBoxes == kFewBoxes ? kFewOnTheWay / Work::kWeightStage : 2;
  call.on_the_way = StagesOnTheWay(Work::kWeightStage, shape.slots.weights, kLeast);
  static const cudaError_t prepared = AllowShared<kTiles, kStageBoxes>();
  context.Check(prepared);
  const size_t tokens =
      size_t{shape.slots.tokens} * shape.groups * kStageBoxes * shape.token_rows * kBoxRowBytes;
  // Behind the tokens' last box the instruction reads as many bytes as 64 tokens have more.
  const size_t weights = std::max(size_t{shape.slots.weights} * Work::kWeightStage,
                                  size_t{kTokensOfGroup - shape.token_rows} * kBoxRowBytes);
  const size_t shared = kBoxAlignment + tokens + weights;
  const uint32_t factor_warps = out.scales() ? kFactorWarpsFor<kTiles> : 0;
  const uint32_t warps = shape.warps() + kRingProducers + factor_warps;
  context.RunInClusters(HundredKernel<kTiles, kStageBoxes>, dim3(shape.blocks), kBlocksOfCluster,
                        warps * 32, shared, call);
  return true;
}

// Of these numbers of tiles, the one that the shape has.
template <int kStageBoxes, int... kTiles>
bool LaunchTiles(std::integer_sequence<int, kTiles...>, const DeviceLinear& linear,
                 const Operand& x, const ProductOutputs& out, const HundredShape& shape,
                 const WeightsAhead& ahead, const LaunchContext& context) {
  return ((shape.tiles == kTiles &&
           Launch<kTiles, kStageBoxes>(linear, x, out, shape, ahead, context)) ||
          ...);
}

bool IsBf16(const DeviceLinear& linear, const Operand& x) {
  return linear.high != nullptr && linear.low == nullptr && !x.two_parts;
}

// Than tens_of_tokens.cu.
bool IsFaster(uint32_t rows, const HundredShape& shape) {
  return rows > 16 && rows <= kMostFew && shape.tiles <= kFewTiles;
}

}  // namespace

bool LaunchFewOutputs(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                      const WeightsAhead& ahead, const LaunchContext& context) {
  const uint32_t most_blocks = MostBlocks();
  if (x.rows == 0 || x.rows > kMostFew || !IsBf16(linear, x) || most_blocks == 0) return false;
  const HundredShape shape = ShapeFor(linear, x.rows, most_blocks);
  return IsFaster(x.rows, shape) && LaunchTiles<kFewBoxes>(std::integer_sequence<int, 1, 2, 3, 4>(),
                                                           linear, x, out, shape, ahead, context);
}

bool LaunchHundredTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                         const LaunchContext& context) {
  const uint32_t most_blocks = MostBlocks();
  if (x.rows <= kMostFew || x.rows > kMostGroups * kTokensOfGroup) return false;
  if (!IsBf16(linear, x) || most_blocks == 0) return false;
  const HundredShape shape = ShapeFor(linear, x.rows, most_blocks);
  const auto launch = [&](auto tiles) {
    return LaunchTiles<kManyBoxes>(tiles, linear, x, out, shape, {}, context);
  };
  return launch(std::integer_sequence<int, 8, 9, 10, 11, 12, 13, 14, 15, 16>()) ||
         (shape.groups == 1 && launch(std::integer_sequence<int, 1, 2, 3, 4>()));
}

}  // namespace rivulet::cuda
