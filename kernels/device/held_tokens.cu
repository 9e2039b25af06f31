// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ + b for up to four tokens, weights in bf16, and maps with few outputs, by the
// warpgroup's matrix instruction. A block has up to 32 outputs and walks all of K; nothing is split
// over K, so each output is one chain. A step of the chain takes 18 to 22 cycles, where that of a
// warp's instruction takes 32. One warp brings the weights through a ring and begins before the
// kernel before this one has ended; when it has asked for all of them, it asks for weights of the
// next product until the chain has ended. The tokens are held in shared memory: through a ring they
// would come no faster than its slots go back and forth between blocks and L2.
//
// The instruction reads 64 tokens: rows of 16 bytes in groups of 8. Here 16 bytes of each held
// token lie side by side, then the next 16 bytes of each. So the instruction takes what follows for
// the other tokens. Each token has its own sums, and theirs are not written.
//
// Bytes expected: outputs · stride · 2 of weights, and from L2 rows · stride · 2 for each block.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/product_outputs.cuh"
#include "kernels/device/product_rings.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/warpgroup_product.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kMostHeldTokens = 4, kMostHeldTiles = 4;
// Warps: those that multiply, the one that brings weights, the one that computes factors.
constexpr uint32_t kMultipliers = 4, kBringer = kMultipliers, kScaler = kBringer + 1;
constexpr uint32_t kHeldThreads = (kScaler + 1) * 32;
constexpr uint32_t kStageBoxes = 4;
constexpr uint32_t kStageInputs = kStageBoxes * kBoxColumns;
constexpr uint32_t kChunkNumbers = 8;  // of 16 bytes
constexpr uint32_t kRowsOfGroup = 8;   // of the instruction's tokens
// Of an operand of tokens, if its groups did not lie at the same place: so compute-sanitizer takes
// it, and so much is there behind the last chunk.
constexpr uint32_t kOperandBytes = 64 * 32;
// From a chunk of a token to its next, counted in chunks.
constexpr uint32_t DistanceOf(uint32_t tokens) { return tokens < 2 ? 2 : tokens; }

struct HeldCall {
  CUtensorMap weights;
  Operand x;
  ProductOutputs out;
  uint32_t stages;
  uint32_t slots;       // of the ring
  uint32_t on_the_way;  // stages that are asked for and have not come
  WeightsAhead ahead;
};

// Of the warps that multiply.
__device__ inline void MeetMultipliers() {
  asm volatile("bar.sync 1, %0;\n" ::"n"(kMultipliers * 32) : "memory");
}

// kTiles: of 8 outputs. kTokens: that are held; those that are not there are copies of the last.
template <int kTiles, int kTokens>
class HeldTokens {
 public:
  static constexpr uint32_t kOutputs = kTiles * 8;
  static constexpr uint32_t kBoxBytes = kOutputs * kBoxRowBytes;
  static constexpr uint32_t kStageBytes = kStageBoxes * kBoxBytes;

  __device__ HeldTokens(const HeldCall& call, ProductBarriers& barriers, float* factors,
                        uint32_t memory)
      : c_(call),
        b_(barriers),
        factors_(factors),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        weights_((memory + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment),
        tokens_(weights_ + call.slots * kStageBytes) {}

  __device__ void Start() {
    if (warp_ == kBringer && lane_ == 0) {
      StartWeights(c_.weights, Stages(), b_, FirstOutput(), kMultipliers);
    }
    __syncthreads();
  }

  __device__ void Run() {
    if (warp_ == kScaler) {
      if (c_.out.scales()) BringFactors<1, kTokens>(c_.out, 0, kWriters, factors_);
    } else if (warp_ == kBringer) {
      if (lane_ == 0) BringAllWeights();
      __syncwarp();
      FetchByWarp(c_.ahead, b_);
    } else {
      MakeOutputs();
    }
  }

 private:
  using Sums = float[4 * kTiles];

  static constexpr uint32_t kHolders = kMultipliers * 32;  // threads
  static constexpr uint32_t kWriters = 32;                 // threads
  static constexpr uint32_t kLoads = 5;                    // of each token
  static constexpr uint32_t kDistance = DistanceOf(kTokens);

  __device__ uint32_t FirstOutput() const { return blockIdx.x * kOutputs; }
  // Of a token, in shared memory.
  __device__ uint32_t Chunks() const { return c_.stages * kStageInputs / kChunkNumbers; }

  __device__ WeightStages Stages() const {
    return {weights_, kStageBytes, c_.slots, kStageInputs, c_.on_the_way, 1, c_.stages};
  }
  __device__ void BringAllWeights() const {
    BringWeights(c_.weights, Stages(), b_, [&](uint32_t) { return FirstOutput(); });
  }

  // By the warps that multiply. The first one stores the outputs.
  __device__ void MakeOutputs() {
    float2 weight[kTiles] = {}, before[kTiles] = {};
    const bool adds = warp_ == 0 && c_.out.adds();
    if (adds) ReadWeights(weight);
    AwaitLastKernel();
    if (adds) ReadBefore(before);
    Hold();
    MultiplyAll(before, weight);
  }

  __device__ void Hold() const {
#pragma unroll 1
    for (uint32_t chunk = threadIdx.x; chunk < Chunks(); chunk += kLoads * kHolders) {
      HoldSome(chunk);
    }
    FenceBeforeBulkCopy();  // the instruction reads as the copy engine does
    MeetMultipliers();
  }

  // Chunks `first`, first + kHolders, ... of all tokens, whose loads run at once: zeros where the
  // tokens' rows end before the weights' stages do.
  __device__ void HoldSome(uint32_t first) const {
    const uint32_t there = (c_.x.columns + kChunkNumbers - 1) / kChunkNumbers, last = c_.x.rows - 1;
    uint4 x[kLoads][kTokens];
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const uint32_t chunk = first + j * kHolders;
#pragma unroll
      for (uint32_t t = 0; t < kTokens; ++t) {
        const uint16_t* const row = c_.x.data + size_t{min(t, last)} * c_.x.stride;
        x[j][t] = chunk < there ? ReadLate(reinterpret_cast<const uint4*>(row) + chunk) : uint4{};
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kLoads; ++j) {
      const uint32_t chunk = first + j * kHolders;
      if (chunk >= Chunks()) break;
#pragma unroll
      for (uint32_t t = 0; t < kTokens; ++t) {
        StoreShared(tokens_ + (chunk * kDistance + t) * 16, x[j][t]);
      }
    }
  }

  __device__ void MultiplyAll(const float2 (&before)[kTiles], const float2 (&weight)[kTiles]) {
    RingPlace weights(weights_, kStageBytes, c_.slots, b_.weights_full);
    uint32_t tokens = tokens_;
    Sums sum;
#pragma unroll
    for (float& x : sum) x = 0.0f;
    uint32_t barrier = 0;  // of the stage before
#pragma unroll 1
    for (uint32_t stage = 0; stage < c_.stages; ++stage) {
      WaitBarrier(weights.barrier, weights.parity);
      MultiplyStage(tokens, weights.stage, sum);
      AwaitProducts<1>();
      if (stage > 0) ReleaseWeights(barrier);
      barrier = weights.barrier;
      weights.Advance();
      tokens += kStageInputs / kChunkNumbers * kDistance * 16;
    }
    AwaitProducts<0>();
    AnnounceEnd(b_);
    if (warp_ != 0) return;
    if (c_.out.scales()) AwaitFactors<1>(kWriters);
    Write(sum, before, weight);
  }

  __device__ uint32_t Column(uint32_t tile) const {
    return FirstOutput() + tile * 8 + lane_ % 4 * 2;
  }
  __device__ void ReadWeights(float2 (&weight)[kTiles]) const {
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n) weight[n] = ReadNormWeights(c_.out, Column(n));
  }
  __device__ void ReadBefore(float2 (&before)[kTiles]) const {
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n) before[n] = ReadResidual(c_.out, lane_ / 4, Column(n));
  }

  // Without a branch, as in hundred_tokens.cu.
  __device__ void MultiplyStage(uint32_t tokens, uint32_t weights, Sums& sum) const {
    constexpr uint32_t kBoxSteps = kBoxColumns / 16, kStepBytes = 32;
    constexpr uint32_t kTokenStep = 16 / kChunkNumbers * kDistance;
    const MatrixOperand token = NarrowOperand(tokens, kDistance * 16);
    const MatrixOperand weight = BoxOperand(weights);
    BeginProducts();
#pragma unroll
    for (uint32_t step = 0; step < kStageBoxes * kBoxSteps; ++step) {
      const uint32_t at = step / kBoxSteps * kBoxBytes + step % kBoxSteps * kStepBytes;
      WarpgroupProduct<kTiles>::MultiplyAdd(sum, token + step * kTokenStep, weight + at / 16);
    }
    EndProducts();
  }

  // By the first warp, which has the first 16 tokens.
  __device__ void Write(const Sums& sum, const float2 (&before)[kTiles],
                        const float2 (&weight)[kTiles]) const {
    WriteOutputs<1, kTiles>(
        c_.out, factors_, true, Column(0), [&](uint32_t) { return lane_ / 4; },
        [&](uint32_t, uint32_t n) {
          return float2{sum[n * 4], sum[n * 4 + 1]};
        },
        [&](uint32_t, uint32_t n) { return before[n]; }, [&](uint32_t n) { return weight[n]; });
  }

  const HeldCall& c_;
  ProductBarriers& b_;
  float* const factors_;  // of the tokens, in shared memory
  const uint32_t warp_, lane_;
  const uint32_t weights_, tokens_;  // in shared memory
};

template <int kTiles, int kTokens>
__global__ void __launch_bounds__(kHeldThreads, 1)
    HeldKernel(const __grid_constant__ HeldCall call) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ ProductBarriers barriers;
  __shared__ float factors[kMostHeldTokens];
  AllowNextKernel();
  HeldTokens<kTiles, kTokens> work(call, barriers, factors, SharedAddress(memory));
  work.Start();
  work.Run();
}

struct HeldShape {
  uint32_t tiles, tokens, blocks, stages, slots;
  size_t token_bytes;
};

bool IsLong(const DeviceLinear& linear) { return linear.stride >= 2048; }

// Each block gets the same number of adjacent outputs. With short chains two rows are faster in the
// form for four, which leaves fewer registers to blocks of later kernels: those would start too
// early otherwise. 130M takes 0.326 instead of 0.350 ms.
HeldShape ShapeFor(const DeviceLinear& linear, uint32_t rows, uint32_t processors) {
  HeldShape shape;
  const uint32_t tiles = Parts(linear.outputs, 8);
  shape.tiles = Parts(tiles, processors);
  shape.blocks = Parts(tiles, shape.tiles);
  shape.stages = Parts(linear.stride, kStageInputs);
  shape.tokens = rows <= 2 && IsLong(linear) ? rows : kMostHeldTokens;
  // Behind the last chunk the instruction reads on to the end of a group.
  const uint32_t chunks = shape.stages * kStageInputs / kChunkNumbers;
  shape.token_bytes = (size_t{chunks} * DistanceOf(shape.tokens) + kRowsOfGroup) * 16;
  const size_t stage_bytes = size_t{shape.tiles} * 8 * kBoxRowBytes * kStageBoxes;
  const size_t slots =
      kRingRoom > shape.token_bytes ? (kRingRoom - shape.token_bytes) / stage_bytes : 0;
  shape.slots =
      static_cast<uint32_t>(std::min({slots, size_t{kMostWeightSlots}, size_t{shape.stages}}));
  return shape;
}

// Whether it is faster than few_tokens.cu, which begins sooner: measured with chains of 48, 96,
// 128, 256 and 320 steps (docs/gpu_notes.md#chains-of-few-outputs). A ring of fewer stages would be
// empty too often.
bool Serves(const DeviceLinear& linear, uint32_t rows, const HeldShape& shape) {
  constexpr uint32_t kLeastInputs = 768, kLeastSlots = 4;
  const bool few =
      IsLong(linear) ? shape.tiles < kMostHeldTiles : rows > 1 && linear.stride >= kLeastInputs;
  return few && rows <= kMostHeldTokens && shape.tiles <= kMostHeldTiles &&
         shape.slots >= std::min(kLeastSlots, shape.stages);
}

template <int kTiles, int kTokens>
bool Launch(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
            const HeldShape& shape, const WeightsAhead& ahead, const LaunchContext& context) {
  using Work = HeldTokens<kTiles, kTokens>;
  HeldCall call;
  call.x = x, call.out = out;
  call.stages = shape.stages, call.slots = shape.slots;
  call.on_the_way = StagesOnTheWay(Work::kStageBytes, shape.slots);
  call.ahead = ahead;
  if (!DescribeWholeMatrix(linear.high, linear.outputs, linear.stride, Work::kOutputs, kStageBoxes,
                           call.weights)) {
    return false;
  }
  static const cudaError_t prepared =
      cudaFuncSetAttribute(HeldKernel<kTiles, kTokens>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kSharedOfProduct + kOperandBytes);
  context.Check(prepared);
  const size_t shared =
      kBoxAlignment + size_t{shape.slots} * Work::kStageBytes + shape.token_bytes + kOperandBytes;
  context.WithMostShared(x.rows == 1)
      .Run(HeldKernel<kTiles, kTokens>, dim3(shape.blocks), kHeldThreads, shared, call);
  return true;
}

template <int kTokens>
bool LaunchTiles(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                 const HeldShape& shape, const WeightsAhead& ahead, const LaunchContext& context) {
  const auto launch = [&](auto function) {
    return function(linear, x, out, shape, ahead, context);
  };
  if (shape.tiles == 1) return launch(Launch<1, kTokens>);
  if (shape.tiles == 2) return launch(Launch<2, kTokens>);
  return launch(shape.tiles == 3 ? Launch<3, kTokens> : Launch<4, kTokens>);
}

}  // namespace

uint32_t HeldInputs(const DeviceLinear& linear, uint32_t rows, const LaunchContext& context) {
  if (linear.high == nullptr || linear.low != nullptr) return 0;
  const HeldShape shape = ShapeFor(linear, rows, static_cast<uint32_t>(context.processors));
  return Serves(linear, rows, shape) ? shape.slots * kStageInputs : 0;
}

bool LaunchHeldTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                      const WeightsAhead& ahead, const LaunchContext& context) {
  if (x.rows == 0 || x.two_parts || linear.high == nullptr || linear.low != nullptr) return false;
  const auto processors = static_cast<uint32_t>(context.processors);
  const HeldShape shape = ShapeFor(linear, x.rows, processors);
  if (!Serves(linear, x.rows, shape)) return false;
  const auto launch = [&](auto function) {
    return function(linear, x, out, shape, ahead, context);
  };
  if (shape.tokens == 1) return launch(LaunchTiles<1>);
  return launch(shape.tokens == 2 ? LaunchTiles<2> : LaunchTiles<kMostHeldTokens>);
}

}  // namespace rivulet::cuda
