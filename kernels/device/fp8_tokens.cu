// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = scale ∘ (x Wᵀ) + b for 2 to 128 tokens (one where few_tokens.cu has no room for its rings)
// and weights in fp8. A warp has 16 outputs of up to 64
// tokens and walks all of K; nothing is split over K, so each output is one chain. The weights are
// the left operand of the matrix instruction: a lane reads its numbers from shared memory as they
// lie in device memory and widens them to bf16 while the instructions of the step before run. So a
// weight is widened once for 64 tokens. Weights and tokens come through rings, as in
// tens_of_tokens.cu.
//
// Widening is exact, so the chains have the bits of a product of bf16 weights with the same
// numbers. A sum is multiplied with its output's scale before anything else is done with it.
//
// Bytes expected: outputs · stride of weights, and from L2 rows · stride for each block and round.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/fp8_products.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/product_outputs.cuh"
#include "kernels/device/product_rings.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kBlocksOfCluster = 2;
constexpr uint32_t kTileOutputs = 16;  // of a warp
constexpr uint32_t kMostGroups = 8;    // of so many outputs, of a block
constexpr uint32_t kMostWarps = 12;    // those that multiply
constexpr uint32_t kScalers = 2;       // warps that compute factors
constexpr uint32_t kMostRows = 128;
static_assert(kMostRows <= kMostBroughtFactors, "factors of all rows are in shared memory");
// A stage of weights has boxes as they lie in memory, and so the inputs of more boxes of tokens.
constexpr uint32_t kCodeBoxes = 2, kCodeInputs = kBoxRowBytes;
constexpr uint32_t kWeightInputs = kCodeBoxes * kCodeInputs;
// Of the chain, of k16.
constexpr uint32_t kStageSteps = kWeightInputs / 16;
constexpr uint32_t kStepsOfBox = kBoxColumns / 16, kStepsOfCodeBox = kCodeInputs / 16;
// Boxes of tokens in a stage of theirs, by the tiles of a warp.
constexpr uint32_t TokenBoxes(uint32_t tiles) { return tiles <= 4 ? 4 : 2; }

struct Float8Shape {
  uint32_t blocks, rounds;
  // A block has so many groups of kTileOutputs in a round, each with so many parts of the tokens.
  uint32_t groups, parts;
  RingSlots slots;

  __host__ __device__ uint32_t multipliers() const { return groups * parts; }  // warps
  __host__ __device__ uint32_t outputs() const { return groups * kTileOutputs; }
};

struct Float8Call {
  CUtensorMap weights, tokens;
  ProductOutputs out;
  uint32_t stages;      // of weights
  uint32_t on_the_way;  // stages of weights that are asked for and have not come
  Float8Shape shape;
  WeightsAhead ahead;
};

// Two e4m3 numbers.
__device__ inline uint32_t LoadTwo(uint32_t address) {
  uint16_t two;
  asm volatile("ld.shared.u16 %0, [%1];\n" : "=h"(two) : "r"(address));
  return two;
}

// An 8 x 8 block of sums, whose rows are outputs: lane 4g + t has numbers 2t and 2t + 1 of row g.
// The same of the transposed block, whose rows are tokens.
__device__ inline float2 Transposed(float first, float second) {
  const uint32_t lane = threadIdx.x % 32, from = lane % 4 * 8 + lane / 8;
  const bool odd = lane / 4 % 2 != 0;
  float x[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const float a = __shfl_sync(0xffffffffu, first, from + i * 4);
    const float b = __shfl_sync(0xffffffffu, second, from + i * 4);
    x[i] = odd ? b : a;
  }
  return {x[0], x[1]};
}

// What a step is multiplied with.
template <int kTokenTiles>
struct StepOperands {
  uint32_t weights[4];
  uint32_t tokens[kTokenTiles][2];
};

// kTokenTiles: of 8 tokens, of a warp.
template <int kTokenTiles>
class Float8Tokens {
 public:
  static constexpr uint32_t kTokens = kTokenTiles * 8;
  static constexpr uint32_t kTokenBoxes = TokenBoxes(kTokenTiles);
  static_assert(kTokenBoxes % kBlocksOfCluster == 0, "each block brings its share");
  // Of tokens in one of weights, and steps of the chain in each.
  static constexpr uint32_t kTokenStages = kWeightInputs / (kTokenBoxes * kBoxColumns);
  static constexpr uint32_t kTokenSteps = kStageSteps / kTokenStages;

  __device__ Float8Tokens(const Float8Call& call, ProductBarriers& barriers, float* factors,
                          uint32_t memory)
      : c_(call),
        s_(call.shape),
        b_(barriers),
        factors_(factors),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        token_box_(s_.parts * kTokens * kBoxRowBytes),
        code_box_(s_.outputs() * kBoxRowBytes),
        tokens_((memory + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment),
        weights_(tokens_ + s_.slots.tokens * kTokenBoxes * token_box_),
        part_(warp_ % s_.parts),
        group_(warp_ / s_.parts),
        token_place_((part_ * kTokens + (kTokenTiles > 1 ? lane_ / 16 * 8 : 0) + lane_ % 8) *
                         kBoxRowBytes +
                     (lane_ / 8 % 2 ^ lane_ % 8) * 16),
        code_place_((group_ * kTileOutputs + lane_ / 4) * kBoxRowBytes + lane_ / 4 * 16 +
                    lane_ % 4 * 2),
        token_ring_(tokens_, kTokenBoxes * token_box_, s_.slots.tokens, b_.tokens_full),
        weight_ring_(weights_, kCodeBoxes * code_box_, s_.slots.weights, b_.weights_full) {
    // In registers, or the compiler computes them anew for each stage.
    asm volatile("" : "+r"(token_box_), "+r"(code_box_), "+r"(token_place_), "+r"(code_place_));
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
        s_.multipliers(), c_.ahead, b_, [this] { MultiplyAll(); }, [this] { BringAllWeights(); },
        [this] { BringTokens(); },
        [this](uint32_t warp) {
          BringFactors<kScalers>(c_.out, warp, s_.multipliers() * 32, factors_);
        });
  }

 private:
  using Step = StepOperands<kTokenTiles>;
  using Sums = float[kTokenTiles][4];
  // Whether there are registers for the residual stream beside the chains.
  static constexpr bool kReadsAhead = kTokenTiles <= 4;
  using Residuals = float2[kReadsAhead ? kTokenTiles : 1][2];
  using Pairs = float2[2];  // of a warp's two tiles of 8 outputs

  __device__ uint32_t FirstOutput(uint32_t round) const {
    return (blockIdx.x * s_.rounds + round) * s_.outputs();
  }
  // A box has 128 bytes of a row, which the copy engine counts as 64 numbers of bf16.
  __device__ WeightStages Stages() const {
    return {weights_,         kCodeBoxes * code_box_,
            s_.slots.weights, kCodeBoxes * kBoxColumns,
            c_.on_the_way,    s_.rounds,
            c_.stages};
  }
  __device__ void BringAllWeights() const {
    BringWeights(c_.weights, Stages(), b_, [&](uint32_t round) { return FirstOutput(round); });
  }

  // Of each stage this block's share of the boxes, for both blocks.
  __device__ void BringTokens() const {
    constexpr uint32_t kShare = kTokenBoxes / kBlocksOfCluster;
    const uint32_t first = BlockOfCluster() * kShare, stages = c_.stages * kTokenStages;
    AwaitLastKernel();
    Ring slot;
    for (uint32_t n = 0; n < s_.rounds * stages; ++n, slot.Advance(s_.slots.tokens)) {
      if (!slot.first_round) WaitBarrier(&b_.tokens_empty[slot.at], slot.parity ^ 1);
      uint64_t* const full = &b_.tokens_full[slot.at];
      ArriveExpecting(full, kTokenBoxes * token_box_);
      for (uint32_t box = first; box < first + kShare; ++box) {
        CopyBoxToAll(tokens_ + (slot.at * kTokenBoxes + box) * token_box_, c_.tokens, 0,
                     (n % stages * kTokenBoxes + box) * kBoxColumns, full,
                     (1 << kBlocksOfCluster) - 1);
      }
    }
  }

  // Outputs that are not there have weights of zero, so that all warps do the same. What is done
  // with outputs is rehearsed before the tokens are there (rehearsal.cuh).
  __device__ void MultiplyAll() {
    uint32_t left = s_.rounds * c_.stages;
    Pairs weight = {}, scale = {};
    Residuals before = {};
    Step operands[2];
    uint32_t codes[2][4];
#pragma unroll 1
    for (uint32_t pass = 0; pass <= s_.rounds; ++pass) {
      uint32_t real = pass;
      asm volatile("" : "+r"(real));
      const uint32_t round = real == 0 ? 0 : pass - 1;
      Sums sum = {};
      ReadPairs(round, weight, scale);
      if (real != 0) {
        if (c_.out.scales() || c_.out.adds()) AwaitLastKernel();
        if constexpr (kReadsAhead) {
          if (c_.out.adds()) ReadBefore(round, before);
        }
        if (pass == 1) LoadFirst(operands[0], codes);
        const uint32_t last = left - c_.stages;
#pragma unroll 1
        while (left > last) MultiplyStage(--left, operands, codes, sum);
        if (last == 0) EndChains(b_);
        if (c_.out.scales() && pass == 1) AwaitFactors<kScalers>(s_.multipliers() * 32);
      }
      Write(round, sum, before, weight, scale, real != 0);
    }
  }

  // Of the first step, and the numbers of the two behind it.
  __device__ void LoadFirst(Step& first, uint32_t (&codes)[2][4]) {
    WaitBarrier(weight_ring_.barrier, weight_ring_.parity);
    LoadCodes(weight_ring_.stage, 0, codes[0]);
    LoadCodes(weight_ring_.stage, 1, codes[1]);
    Widen(codes[0], first.weights);
    LoadCodes(weight_ring_.stage, 2, codes[0]);
    WaitBarrier(token_ring_.barrier, token_ring_.parity);
    LoadTokens(token_ring_.stage, 0, first.tokens);
  }

  // A warp issues its instructions in order, and a matrix instruction waits for the one before it
  // in the chain. Meanwhile the operands of the next step are made, from numbers that were asked
  // for two steps before. `left`: stages of weights behind this one.
  __device__ void MultiplyStage(uint32_t left, Step (&operands)[2], uint32_t (&codes)[2][4],
                                Sums& sum) {
    constexpr uint32_t kCodesAhead = 3;  // steps
    const bool more = left > 0;
    const uint32_t barrier = weight_ring_.barrier;
    uint32_t source = weight_ring_.stage;
    weight_ring_.Advance();
#pragma unroll
    for (uint32_t step = 0; step < kStageSteps; ++step) {
      const uint32_t next = (step + 1) % kStageSteps;
      Step& coming = operands[(step + 1) % 2];
      const uint32_t tokens_left = (left + 1) * kTokenStages - 1 - step / kTokenSteps;
      const uint32_t zero = step % kTokenSteps == 0 ? ZeroBehind(BitsOfSums(sum)) : 0;
      Multiply(operands[step % 2], sum);
      if (step == 0 && read_weights_ != 0) ReleaseWeights(read_weights_ + zero);
      if (step % kTokenSteps == 0) ReleaseLastTokens(zero, tokens_left + 1);
      if (next % kTokenSteps == 0) MoveTokens(tokens_left);
      if (more || next != 0) LoadTokens(token_ring_.stage, next, coming.tokens);
      Widen(codes[(step + 1) % 2], coming.weights);
      if (step + kCodesAhead == kStageSteps && more) {
        WaitBarrier(weight_ring_.barrier, weight_ring_.parity);
        source = weight_ring_.stage;
      }
      LoadCodes(source, (step + kCodesAhead) % kStageSteps, codes[(step + 1) % 2]);
    }
    read_weights_ = barrier;
  }

  static __device__ void Multiply(const Step& operands, Sums& sum) {
    const uint32_t(&w)[4] = operands.weights;
#pragma unroll
    for (uint32_t i = 0; i < kTokenTiles; ++i) {
      MultiplyAdd(sum[i], {w[0], w[1], w[2], w[3]}, operands.tokens[i][0], operands.tokens[i][1]);
    }
  }

  // To the next stage of tokens, if `left` are behind this one.
  __device__ void MoveTokens(uint32_t left) {
    read_tokens_ = token_ring_.barrier;
    token_ring_.Advance();
    if (left > 0) WaitBarrier(token_ring_.barrier, token_ring_.parity);
  }
  // `left`: stages behind it.
  __device__ void ReleaseLastTokens(uint32_t zero, uint32_t left) const {
    __syncwarp();
    ReleaseTokens(read_tokens_ + zero, kBlocksOfCluster,
                  read_tokens_ != 0 && left >= s_.slots.tokens);
  }

  // Two tiles at once.
  __device__ void LoadTokens(uint32_t stage, uint32_t step,
                             uint32_t (&tokens)[kTokenTiles][2]) const {
    const uint32_t at = stage + step % kTokenSteps / kStepsOfBox * token_box_ +
                        (token_place_ ^ step % kStepsOfBox * 32);
#pragma unroll
    for (uint32_t i = 0; i < kTokenTiles; i += 2) {
      uint32_t four[4];
      LoadMatrices(four, at + i * 8 * kBoxRowBytes);
      tokens[i][0] = four[0], tokens[i][1] = four[1];
      if (i + 1 < kTokenTiles) tokens[i + 1][0] = four[2], tokens[i + 1][1] = four[3];
    }
  }

  // Of two rows of weights, numbers 2t, 2t + 1, 2t + 8 and 2t + 9 of a step.
  __device__ void LoadCodes(uint32_t stage, uint32_t step, uint32_t (&two)[4]) const {
    constexpr uint32_t kEightRows = 8 * kBoxRowBytes;
    const uint32_t at =
        stage + step / kStepsOfCodeBox * code_box_ + (code_place_ ^ step % kStepsOfCodeBox * 16);
    two[0] = LoadTwo(at);
    two[1] = LoadTwo(at + kEightRows);
    two[2] = LoadTwo(at + 8);
    two[3] = LoadTwo(at + kEightRows + 8);
  }
  static __device__ void Widen(const uint32_t (&two)[4], uint32_t (&weights)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) weights[i] = fp8::WidenTwo<0>(two[i]);
  }

  __device__ uint32_t Column(uint32_t round, uint32_t tile) const {
    return FirstOutput(round) + group_ * kTileOutputs + tile * 8 + lane_ % 4 * 2;
  }
  __device__ uint32_t Token(uint32_t tile) const { return part_ * kTokens + tile * 8 + lane_ / 4; }
  __device__ void ReadPairs(uint32_t round, Pairs& weight, Pairs& scale) const {
    const uint32_t last = c_.out.outputs - 1;
#pragma unroll
    for (uint32_t n = 0; n < 2; ++n) {
      const uint32_t at = Column(round, n);
      scale[n] = {c_.out.scale[min(at, last)], c_.out.scale[min(at + 1, last)]};
      if (c_.out.adds()) weight[n] = ReadNormWeights(c_.out, at);
    }
  }
  __device__ void ReadBefore(uint32_t round, Residuals& before) const {
#pragma unroll
    for (uint32_t i = 0; i < 2 * kTokenTiles; ++i) {
      before[i / 2][i % 2] = ReadResidual(c_.out, Token(i / 2), Column(round, i % 2));
    }
  }
  __device__ void Write(uint32_t round, const Sums& sum, const Residuals& before,
                        const Pairs& weight, const Pairs& scale, bool real) const {
    WriteOutputs<kTokenTiles, 2>(
        c_.out, factors_, real, Column(round, 0), [&](uint32_t i) { return Token(i); },
        [&](uint32_t i, uint32_t n) {
          const float2 two = Transposed(sum[i][n * 2], sum[i][n * 2 + 1]);
          return float2{two.x * scale[n].x, two.y * scale[n].y};
        },
        [&](uint32_t i, uint32_t n) {
          if constexpr (kReadsAhead) return before[i][n];
          return ReadResidual(c_.out, Token(i), Column(round, n));
        },
        [&](uint32_t n) { return weight[n]; });
  }

  const Float8Call& c_;
  const Float8Shape& s_;
  ProductBarriers& b_;
  float* const factors_;  // of the tokens, in shared memory
  const uint32_t warp_, lane_;
  uint32_t token_box_, code_box_;    // bytes
  const uint32_t tokens_, weights_;  // in shared memory
  const uint32_t part_, group_;
  // Of a box: what the lane gives for the first matrices of tokens, and its first two weights.
  uint32_t token_place_, code_place_;
  RingPlace token_ring_, weight_ring_;  // of a warp that multiplies
  // The barriers of the stages that were read last, 0: none. They are released when the next step
  // begins, which waits for these products anyway.
  uint32_t read_tokens_ = 0, read_weights_ = 0;
};

// By threads the compiler reckons how many registers each may have. With few tokens fewer are
// enough, and blocks of the next kernels find some.
template <int kTokenTiles>
constexpr uint32_t kRegisterThreads = kTokenTiles <= 2
                                          ? 640
                                          : (kMostWarps + kRingProducers + kScalers) * 32;

template <int kTokenTiles>
__global__ void __cluster_dims__(kBlocksOfCluster) __launch_bounds__(kRegisterThreads<kTokenTiles>)
    Float8TokensKernel(const __grid_constant__ Float8Call call) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ ProductBarriers barriers;
  __shared__ float factors[kMostBroughtFactors];
  AllowNextKernel();
  Float8Tokens<kTokenTiles> work(call, barriers, factors, SharedAddress(memory));
  work.Start();
  work.Run();
}

struct Float8Tiles {
  uint32_t tokens;  // tiles of a warp
  uint32_t parts;
};

// Parts of the tokens mean more warps, and more weights that are widened: measured
// (docs/gpu_notes.md#fp8-weights).
Float8Tiles TilesFor(uint32_t outputs, uint32_t rows, uint32_t processors) {
  const bool few = Parts(Parts(outputs, kTileOutputs), processors) <= 2;
  if (rows <= 8) return {1, 1};
  if (rows <= 16) return {2, 1};
  if (rows <= 32) return few ? Float8Tiles{2, 2} : Float8Tiles{4, 1};
  return rows <= 64 ? Float8Tiles{4, 2} : Float8Tiles{8, 2};
}

// Each block gets the same number of adjacent outputs, in as few rounds as possible.
Float8Shape ShapeFor(const DeviceLinear& linear, uint32_t rows, const Float8Tiles& tiles,
                     uint32_t processors) {
  Float8Shape shape;
  shape.parts = tiles.parts;
  const uint32_t groups = Parts(linear.outputs, kTileOutputs);
  const uint32_t of_block = Parts(groups, processors);
  shape.rounds = Parts(of_block, std::min(kMostGroups, kMostWarps / tiles.parts));
  shape.groups = Parts(of_block, shape.rounds);
  shape.blocks =
      Parts(Parts(groups, shape.rounds * shape.groups), kBlocksOfCluster) * kBlocksOfCluster;
  const uint32_t boxes = TokenBoxes(tiles.tokens);
  const uint32_t stages = Parts(linear.stride, kWeightInputs) * shape.rounds;
  const uint32_t token_bytes = tiles.parts * tiles.tokens * 8 * kBoxRowBytes * boxes;
  const uint32_t of_tokens = (rows <= 32 ? 64 : 96) << 10;
  const uint32_t token_stages = stages * (kWeightInputs / (boxes * kBoxColumns));
  shape.slots =
      SlotsFor(stages, shape.outputs() * kWeightInputs, token_stages, token_bytes, of_tokens);
  return shape;
}

template <int kTokenTiles>
bool Launch(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
            const Float8Shape& shape, const WeightsAhead& ahead, const LaunchContext& context) {
  using Work = Float8Tokens<kTokenTiles>;
  Float8Call call;
  call.out = out, call.shape = shape, call.ahead = ahead;
  call.stages = Parts(linear.stride, kWeightInputs);
  const uint32_t tokens = shape.parts * Work::kTokens;
  if (!DescribeWholeMatrix(linear.float8, linear.outputs, linear.stride / 2, shape.outputs(),
                           kCodeBoxes, call.weights) ||
      !DescribeMatrix(x.data, x.rows, x.columns, x.stride, tokens, call.tokens)) {
    return false;
  }
  const uint32_t stage_bytes = shape.outputs() * kWeightInputs;
  call.on_the_way = StagesOnTheWay(stage_bytes, shape.slots.weights);
  const auto kernel = Float8TokensKernel<kTokenTiles>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfProduct);
  context.Check(prepared);
  const size_t shared = kBoxAlignment +
                        size_t{shape.slots.tokens} * Work::kTokenBoxes * tokens * kBoxRowBytes +
                        size_t{shape.slots.weights} * stage_bytes;
  const uint32_t warps = shape.multipliers() + kRingProducers + (out.scales() ? kScalers : 0);
  context.Run(kernel, dim3(shape.blocks), warps * 32, shared, call);
  return true;
}

// Inputs of each output that the ring of a product of so many rows holds.
uint32_t HeldByRing(const DeviceLinear& linear, uint32_t rows, const LaunchContext& context) {
  const auto processors = static_cast<uint32_t>(context.processors);
  const Float8Tiles tiles = TilesFor(linear.outputs, rows, processors);
  return ShapeFor(linear, rows, tiles, processors).slots.weights * kWeightInputs;
}

}  // namespace

WeightsAhead AheadOfFloat8(const DeviceLinear& linear, const DeviceLinear& next, uint32_t rows,
                           const LaunchContext& context) {
  if (rows > kMostRows || next.float8 == nullptr) return {};
  // Else memory has enough to do meanwhile.
  if (HeldByRing(linear, rows, context) * 2 <= linear.stride) return {};
  return RestOfRows(next.float8, next.outputs, next.stride, HeldByRing(next, rows, context));
}

bool LaunchFloat8Tokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                        const WeightsAhead& ahead, const LaunchContext& context) {
  if (x.rows == 0 || x.rows > kMostRows || x.two_parts || linear.float8 == nullptr) return false;
  const auto processors = static_cast<uint32_t>(context.processors);
  const Float8Tiles tiles = TilesFor(linear.outputs, x.rows, processors);
  const Float8Shape shape = ShapeFor(linear, x.rows, tiles, processors);
  const auto launch = [&](auto function) {
    return function(linear, x, out, shape, ahead, context);
  };
  if (tiles.tokens == 1) return launch(Launch<1>);
  if (tiles.tokens == 2) return launch(Launch<2>);
  return launch(tiles.tokens == 4 ? Launch<4> : Launch<8>);
}

}  // namespace rivulet::cuda
