// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ + b for a few tokens, one if weights are in fp8, where latency counts. A warp owns 8
// outputs and walks all of K; nothing is split over K, so each output is one chain. Its weights
// come through a ring of shared memory that only this warp uses and that is as deep as
// there is room for: the kernel asks for them before it waits for the kernel before it. The tokens
// are held in shared memory.
//
// Bytes expected: outputs · stride of weights, times 2 in bf16.
#include <algorithm>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/fp8_products.cuh"
#include "kernels/device/product_outputs.cuh"
#include "kernels/device/products.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {
namespace {

// Of an output, in one stage. A stage has 8 outputs: 8 rows of 8 chunks of 16 bytes.
constexpr uint32_t kStageRowBytes = 128;
constexpr uint32_t kStageBytes = 8 * kStageRowBytes;
// Inputs whose weights are copied and multiplied together: a warp issues its instructions in order,
// so everything else has to find room between the matrix instructions of one straight run.
constexpr uint32_t kGroupInputs = 256;
constexpr uint32_t kMostWarps = 16;
constexpr uint32_t kMostTokens = 4;
// Of a processor; what is left is for small kernels beside this one.
constexpr size_t kSharedOfProcessor = 204 << 10;
constexpr size_t kReservedOfBlock = 1 << 10;

struct FewTokensCall {
  DeviceLinear linear;
  Operand x;
  ProductOutputs out;
  uint32_t pace;       // groups of a warp that are on their way at the start
  uint32_t rehearsed;  // blocks
  WeightsAhead ahead;
};

__device__ inline uint2 LoadShared(uint32_t address) {
  uint2 two;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];\n" : "=r"(two.x), "=r"(two.y) : "r"(address));
  return two;
}

// The kinds of weights. Each has the operands of as many k16 steps as four matrices of 8 rows of 16
// bytes hold, and says where they are. The matrix instruction takes 16 rows of tokens: the upper
// eight are zeros.
struct Bf16Weights {
  static constexpr uint32_t kBytes = 2;  // of a number
  // Of a token's row in shared memory: rows begin in different banks.
  static __host__ __device__ uint32_t RowStride(uint32_t stride) { return stride + 8; }
  static __host__ __device__ const void* Of(const DeviceLinear& linear) { return linear.high; }
  // What the lane gives for the tokens: row l % 8 of matrix l / 8.
  static __device__ uint32_t TokenPlace(uint32_t lane, uint32_t rows, uint32_t stride) {
    return min(lane % 8, rows - 1) * stride + lane / 8 * 8;
  }
  static __device__ float Finished(const DeviceLinear&, uint32_t, float sum) { return sum; }

  uint32_t weights[4], tokens[4];

  __device__ void LoadTokens(uint32_t address) { LoadMatrices(tokens, address); }
  __device__ void Multiply(float (&sum)[4]) const {
    MultiplyAdd(sum, {tokens[0], 0, tokens[1], 0}, weights[0], weights[1]);
    MultiplyAdd(sum, {tokens[2], 0, tokens[3], 0}, weights[2], weights[3]);
  }
};

// e4m3 numbers with a scale of each output: lane 4g + t has numbers 4t to 4t + 3 of a k16 step, of
// weights and of tokens. The order within a step does not matter to the bits.
struct Float8Weights {
  static constexpr uint32_t kBytes = 1;
  static __host__ __device__ uint32_t RowStride(uint32_t stride) { return stride + 16; }
  static __host__ __device__ const void* Of(const DeviceLinear& linear) { return linear.float8; }
  static __device__ uint32_t TokenPlace(uint32_t lane, uint32_t rows, uint32_t stride) {
    return min(lane / 4, rows - 1) * stride + lane % 4 * 4;
  }
  static __device__ float Finished(const DeviceLinear& linear, uint32_t column, float sum) {
    return sum * linear.scale[column];
  }

  uint32_t weights[4];
  uint2 tokens[4];

  __device__ void LoadTokens(uint32_t address) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) tokens[i] = LoadShared(address + i * 32);
  }
  __device__ void Multiply(float (&sum)[4]) const {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint2 wide = fp8::WidenFour(weights[i]);
      MultiplyAdd(sum, {tokens[i].x, 0, tokens[i].y, 0}, wide.x, wide.y);
    }
  }
};

// Inputs of a stage, stages of a group, inputs of the operands that are loaded together, and how
// many of these a group has.
template <typename Weights>
constexpr uint32_t kInputsOfStage = kStageRowBytes / Weights::kBytes;
template <typename Weights>
constexpr uint32_t kGroupStages = kGroupInputs / kInputsOfStage<Weights>;
template <typename Weights>
constexpr uint32_t kOperandInputs = 64 / Weights::kBytes;
template <typename Weights>
constexpr uint32_t kOperands = kGroupInputs / kOperandInputs<Weights>;

// kDepth: groups of a ring.
template <typename Weights, int kDepth>
class FewTokens {
 public:
  __device__ FewTokens(const FewTokensCall& call, std::byte* memory, float* factors)
      : c_(call),
        factors_(factors),
        lane_(threadIdx.x % 32),
        output_((blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 8),
        stages_(output_ < call.linear.outputs ? call.linear.stride / kInputsOfStage<Weights> : 0),
        stride_(Weights::RowStride(call.linear.stride)) {
    const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;
    ring_ = SharedAddress(memory) + warp * kDepth * kGroupBytes;
    // The compiler must not see that the warps' rings have a common base address: with CUDA 13.0 it
    // puts that in a uniform register of the copies beside their policy, which the GPU refuses as
    // an illegal instruction.
    asm volatile("" : "+r"(ring_));
    tokens_ = reinterpret_cast<bf16*>(memory + warps * kDepth * kGroupBytes);
    held_ = reinterpret_cast<uint64_t*>(tokens_ + c_.x.rows * stride_);
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t row = min(output_ + lane_ / 8 + i * 4, call.linear.outputs - 1);
      sources_[i] = static_cast<const std::byte*>(Weights::Of(call.linear)) +
                    size_t{row} * call.linear.stride * Weights::kBytes + lane_ % 8 * 16;
    }
  }

  static __host__ size_t SharedBytes(uint32_t warps, uint32_t rows, uint32_t stride) {
    return size_t{warps} * kDepth * kGroupBytes +
           size_t{rows} * Weights::RowStride(stride) * sizeof(bf16) + sizeof(uint64_t);
  }

  // Weights do not depend on the kernel before this one. They are asked for a few groups at a time:
  // the kernels before this one are still running, and what they read would have to wait behind
  // everything that is on its way.
  __device__ void Start() {
    if (threadIdx.x == 0) InitBarrier(held_, 1);
    FenceBarrierInit();
    for (uint32_t i = 0; i < kDepth; ++i) {
      if (c_.pace == 1) WaitForCopies<0>();
      if (c_.pace == 2) WaitForCopies<1>();
      if (c_.pace == 3) WaitForCopies<2>();
      if (c_.pace == 4) WaitForCopies<3>();
      LoadGroup(i, i);
      CommitCopies();
    }
    FillEnds();
    if (c_.out.adds()) weight_ = ReadNormWeights(c_.out, FirstColumn());
    __syncthreads();
  }

  __device__ void Run(bool real) {
    BringTokens();
    float2 before = {};
    if (c_.out.adds()) before = ReadResidual(c_.out, lane_ / 4, FirstColumn());
    if (c_.out.scales()) BringFactors();
    AwaitTokens();
    float sum[4] = {};
    const uint32_t groups = stages_ / kGroupStages<Weights>;
    RunChain(real ? groups : min(groups, 1), real, sum);
    if (real) RunRest(sum);
    // Factors are there, and in a rehearsal the tokens are not held again before they were read.
    if (c_.out.scales() || !real) __syncthreads();
    Write({sum[0], sum[1]}, before, real);
    if (!real) FenceBeforeBulkCopy();
  }

 private:
  static constexpr uint32_t kGroupBytes = kGroupStages<Weights> * kStageBytes;
  // Of a token's numbers for some operands.
  static constexpr uint32_t kTokenBytes = kOperandInputs<Weights> * sizeof(bf16);

  // Chunks of a stage are exchanged so that 8 rows are read without bank conflicts.
  __device__ void LoadGroup(uint32_t group, uint32_t slot) {
    constexpr uint32_t kStages = kGroupStages<Weights>;
    const uint32_t stages = stages_ - min(stages_, group * kStages);
    const uint32_t to = ring_ + slot * kGroupBytes + lane_ / 8 * kStageRowBytes;
    const uint32_t near = (lane_ % 8 ^ lane_ / 8) * 16;
    const uint32_t far = (lane_ % 8 ^ (lane_ / 8 + 4)) * 16 + 4 * kStageRowBytes;
    const size_t k = size_t{group} * kStages * kStageRowBytes;
#pragma unroll
    for (uint32_t s = 0; s < kStages; ++s) {
      if (s >= stages) continue;
      CopyAsync(to + s * kStageBytes + near, sources_[0] + k + s * kStageRowBytes, once_);
      CopyAsync(to + s * kStageBytes + far, sources_[1] + k + s * kStageRowBytes, once_);
    }
  }

  // Zeros where a token's row ends before the weights' rows do.
  __device__ void FillEnds() {
    const uint32_t first = (c_.x.columns + 7) / 8 * 8;
    for (uint32_t token = 0; token < c_.x.rows; ++token) {
      for (uint32_t i = first + threadIdx.x; i < c_.linear.stride; i += blockDim.x) {
        tokens_[token * stride_ + i] = bf16{};
      }
    }
  }

  __device__ void BringTokens() {
    const uint32_t bytes = (c_.x.columns + 7) / 8 * 16;
    if (threadIdx.x != 0) return;
    ArriveExpecting(held_, bytes * c_.x.rows);
    for (uint32_t token = 0; token < c_.x.rows; ++token) {
      BulkCopy(tokens_ + token * stride_, c_.x.data + size_t{token} * c_.x.stride, bytes, held_);
    }
  }
  __device__ void AwaitTokens() {
    WaitBarrier(held_, held_phase_);
    held_phase_ ^= 1;
  }

  // A token's by a warp, from the last one on: the first brings the tokens.
  __device__ void BringFactors() {
    const RowFactor& factor = c_.out.factor;
    const uint32_t rows = c_.x.rows, warps = blockDim.x / 32;
    if (factor.values != nullptr) {
      if (threadIdx.x < rows) factors_[threadIdx.x] = ReadLate(factor.values + threadIdx.x);
      return;
    }
#pragma unroll 1
    for (uint32_t token = warps - 1 - threadIdx.x / 32; token < rows; token += warps) {
      ComputeFactors<1>(factor, token, 1, token, rows, factors_);
    }
  }

  __device__ uint32_t FirstColumn() const { return output_ + lane_ % 4 * 2; }

  // What the lane gives for the weights of some operands: matrix l / 8 has 16 bytes of each row.
  __device__ uint32_t WeightAddress(uint32_t slot, uint32_t operands) const {
    const uint32_t row = lane_ % 8, chunk = operands % 2 * 4 + lane_ / 8;
    return ring_ + slot * kGroupBytes + operands / 2 * kStageBytes + row * kStageRowBytes +
           (chunk ^ row) * 16;
  }

  // Rows that are not there are copies of the last: nothing of them is written.
  __device__ uint32_t TokenAddress() const {
    return SharedAddress(tokens_ + Weights::TokenPlace(lane_, c_.x.rows, stride_));
  }

  static __device__ void Load(Weights& operands, uint32_t weights, uint32_t tokens) {
    LoadMatrices(operands.weights, weights);
    operands.LoadTokens(tokens);
  }

  // Some operands are loaded while those before them are multiplied.
  __device__ void RunChain(uint32_t groups, bool refill, float (&sum)[4]) {
    if (groups == 0) return;
    constexpr uint32_t kCount = kOperands<Weights>, kBytes = kTokenBytes;
    WaitForCopies<kDepth - 1>();
    __syncwarp();
    uint32_t tokens = TokenAddress(), slot = 0;
    Weights operands[2];
    Load(operands[0], WeightAddress(0, 0), tokens);
#pragma unroll 1
    for (uint32_t group = 0; group < groups; ++group) {
      const uint32_t next = slot + 1 == kDepth ? 0 : slot + 1;
#pragma unroll
      for (uint32_t i = 0; i + 1 < kCount; ++i) {
        Load(operands[(i + 1) % 2], WeightAddress(slot, i + 1), tokens + (i + 1) * kBytes);
        operands[i % 2].Multiply(sum);
      }
      WaitForCopies<kDepth - 2>();
      __syncwarp();
      // After the last group these numbers are not used.
      if (group + 1 < groups) tokens += kCount * kBytes;
      Load(operands[kCount % 2], WeightAddress(next, 0), tokens);
      operands[(kCount - 1) % 2].Multiply(sum);
      if (!refill) continue;
      LoadGroup(group + kDepth, slot);
      CommitCopies();
      slot = next;
    }
  }

  // The stages after the last whole group.
  __device__ void RunRest(float (&sum)[4]) {
    const uint32_t groups = stages_ / kGroupStages<Weights>;
    const uint32_t rest = stages_ % kGroupStages<Weights>;
    WaitForCopies<0>();
    __syncwarp();
#pragma unroll 1
    for (uint32_t i = 0; i < rest * 2; ++i) {
      Weights operands;
      Load(operands, WeightAddress(groups % kDepth, i),
           TokenAddress() + (groups * kOperands<Weights> + i) * kTokenBytes);
      operands.Multiply(sum);
    }
  }

  __device__ void Write(float2 sum, float2 before, bool real) const {
    if (stages_ == 0) return;
    const uint32_t column = FirstColumn(), last = c_.linear.outputs - 1;
    sum.x = Weights::Finished(c_.linear, min(column, last), sum.x);
    sum.y = Weights::Finished(c_.linear, min(column + 1, last), sum.y);
    WriteOutputs<1, 1>(
        c_.out, factors_, real, column, [&](uint32_t) { return lane_ / 4; },
        [&](uint32_t, uint32_t) { return sum; }, [&](uint32_t, uint32_t) { return before; },
        [&](uint32_t) { return weight_; });
  }

  const FewTokensCall& c_;
  float* const factors_;  // of the tokens, in shared memory
  float2 weight_ = {};    // of the norm
  const uint64_t once_ = ReadOnce();
  const uint32_t lane_, output_, stages_, stride_;
  const std::byte* sources_[2];  // what the lane copies: rows l / 8 and l / 8 + 4 of the outputs
  uint32_t ring_;                // in shared memory
  bf16* tokens_;
  uint64_t* held_;
  uint32_t held_phase_ = 0;
};

// Asks for weights of the next product, which may come from L2 then.
__device__ void FetchAhead(const WeightsAhead& ahead) {
  ahead.ForEachRow(blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x,
                   [&](const std::byte* row) {
                     FetchToL2(row, ahead.count);
                     return true;
                   });
}

// kBlocks: for so many of the largest blocks a processor has registers. With one or two tokens a
// step is faster with more registers for each thread, with three or four if blocks of the next
// kernels find room.
template <typename Weights, int kDepth, int kBlocks>
__global__ void __launch_bounds__(kMostWarps * 32, kBlocks)
    FewTokensKernel(const __grid_constant__ FewTokensCall call) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ float factors[kMostTokens];
  AllowNextKernel();
  FewTokens<Weights, kDepth> work(call, memory, factors);
  work.Start();
  FetchAhead(call.ahead);
  RunRehearsed(call.rehearsed, [&](bool real) { work.Run(real); });
}

uint32_t BytesOfNumber(const DeviceLinear& linear) {
  return linear.float8 != nullptr ? Float8Weights::kBytes : Bf16Weights::kBytes;
}
// Of a group of 8 outputs.
uint32_t GroupBytes(const DeviceLinear& linear) { return 8 * kGroupInputs * BytesOfNumber(linear); }

// Of a launch: its blocks' warps, and the groups of each warp's ring.
struct FewTokensShape {
  uint32_t warps = 0, depth = 0, resident = 0;

  // Enough to keep the memory busy.
  uint32_t Pace(const DeviceLinear& linear) const {
    constexpr uint32_t kOnTheWay = 40 << 10;  // of a processor
    return std::clamp(kOnTheWay / GroupBytes(linear) / (warps * resident), 1u, 4u);
  }

  // Whether a ring has all weights of its outputs.
  bool HoldsAll(const DeviceLinear& linear) const { return depth * kGroupInputs >= linear.stride; }

  // Whether too few weights are on their way: long rows of several tokens leave no room for rings.
  bool Starves(const DeviceLinear& linear) const {
    constexpr uint32_t kLeastRings = 24 << 10;  // of a processor
    return !HoldsAll(linear) && resident * warps * depth * GroupBytes(linear) < kLeastRings;
  }
};

constexpr uint32_t kDepths[] = {20, 16, 12, 8, 6, 4, 3, 2};

size_t SharedBytes(const DeviceLinear& linear, uint32_t warps, uint32_t depth, uint32_t rows) {
  const size_t without = linear.float8 != nullptr
                             ? FewTokens<Float8Weights, 2>::SharedBytes(0, rows, linear.stride)
                             : FewTokens<Bf16Weights, 2>::SharedBytes(0, rows, linear.stride);
  return without + size_t{warps} * depth * GroupBytes(linear);
}

// The deepest ring if `resident` blocks share a processor; 0: no room.
uint32_t DepthFor(const DeviceLinear& linear, uint32_t rows, uint32_t warps, uint32_t resident) {
  const size_t room = kSharedOfProcessor / resident - kReservedOfBlock;
  const uint32_t groups = (linear.stride + kGroupInputs - 1) / kGroupInputs;
  for (const uint32_t depth : kDepths) {
    if (depth > std::max(groups, 2u)) continue;
    if (SharedBytes(linear, warps, depth, rows) <= room) return depth;
  }
  return 0;
}

// The fewest outputs for the busiest processor; then the most weights on their way at once.
FewTokensShape ShapeFor(const DeviceLinear& linear, uint32_t rows, const LaunchContext& context) {
  const auto processors = static_cast<uint32_t>(context.processors);
  const uint32_t tiles = (linear.outputs + 7) / 8;
  FewTokensShape best;
  uint32_t best_load = 0, best_ahead = 0;
  for (uint32_t warps = 1; warps <= kMostWarps; ++warps) {
    const uint32_t blocks = (tiles + warps - 1) / warps;
    const uint32_t of_processor = (blocks + processors - 1) / processors;
    uint32_t resident = std::min(of_processor, 2048 / (warps * 32));
    while (resident > 1 && DepthFor(linear, rows, warps, resident) < 3) --resident;
    const uint32_t depth = DepthFor(linear, rows, warps, resident);
    if (depth == 0) continue;
    const uint32_t load = of_processor * warps, ahead = resident * warps * depth;
    const bool better =
        best.warps == 0 || load < best_load || (load == best_load && ahead > best_ahead);
    if (!better) continue;
    best = {warps, depth, resident}, best_load = load, best_ahead = ahead;
  }
  return best;
}

template <typename Weights, int kDepth, int kBlocks>
void Launch(const FewTokensCall& call, uint32_t warps, const LaunchContext& context) {
  const auto kernel = FewTokensKernel<Weights, kDepth, kBlocks>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfProcessor);
  context.Check(prepared);
  const uint32_t tiles = (call.linear.outputs + 7) / 8;
  context.WithMostShared(call.x.rows == 1)
      .Run(kernel, dim3((tiles + warps - 1) / warps), warps * 32,
           SharedBytes(call.linear, warps, kDepth, call.x.rows), call);
}

template <typename Weights, int kBlocks>
void LaunchDepth(const FewTokensCall& call, const FewTokensShape& shape,
                 const LaunchContext& context) {
  switch (shape.depth) {
    case 20:
      return Launch<Weights, 20, kBlocks>(call, shape.warps, context);
    case 16:
      return Launch<Weights, 16, kBlocks>(call, shape.warps, context);
    case 12:
      return Launch<Weights, 12, kBlocks>(call, shape.warps, context);
    case 8:
      return Launch<Weights, 8, kBlocks>(call, shape.warps, context);
    case 6:
      return Launch<Weights, 6, kBlocks>(call, shape.warps, context);
    case 4:
      return Launch<Weights, 4, kBlocks>(call, shape.warps, context);
    case 3:
      return Launch<Weights, 3, kBlocks>(call, shape.warps, context);
    default:
      return Launch<Weights, 2, kBlocks>(call, shape.warps, context);
  }
}

// Inputs of each output that the ring of a product of so few tokens holds; 0: other kernels do it.
uint32_t RingInputs(const DeviceLinear& linear, uint32_t rows, const LaunchContext& context) {
  const uint32_t held = HeldInputs(linear, rows, context);
  if (held != 0) return held;
  const FewTokensShape shape = ShapeFor(linear, rows, context);
  return shape.warps == 0 ? 0 : shape.depth * kGroupInputs;
}

}  // namespace

// While a map whose weights are nearly all in rings is multiplied, memory has nothing to do.
WeightsAhead AheadOf(const DeviceLinear& linear, const DeviceLinear& next, uint32_t rows,
                     const LaunchContext& context) {
  if (rows > MostFewTokens(linear) || next.low != nullptr) return {};
  const bool idle = RingInputs(linear, rows, context) * 2 > linear.stride;
  const uint32_t there = RingInputs(next, rows, context);
  if (!idle || there == 0) return {};
  const void* weights = next.float8 != nullptr ? Float8Weights::Of(next) : Bf16Weights::Of(next);
  const uint32_t bytes = BytesOfNumber(next);
  return RestOfRows(weights, next.outputs, next.stride * bytes, there * bytes);
}

bool LaunchFewTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                     const WeightsAhead& ahead, const LaunchContext& context) {
  if (x.rows == 0 || x.rows > MostFewTokens(linear) || x.two_parts) return false;
  const FewTokensShape shape = ShapeFor(linear, x.rows, context);
  if (shape.warps == 0 || shape.Starves(linear)) return false;
  // A rehearsal begins when the rings are full. Where they hold a part of the weights, that is
  // often after the row has come.
  const uint32_t rehearsed = shape.HoldsAll(linear) ? context.RehearsedBlocks(1) : 0;
  const FewTokensCall call = {linear, x, out, shape.Pace(linear), rehearsed, ahead};
  if (linear.float8 != nullptr) {
    LaunchDepth<Float8Weights, 2>(call, shape, context);
  } else if (x.rows <= 2) {
    LaunchDepth<Bf16Weights, 1>(call, shape, context);
  } else {
    LaunchDepth<Bf16Weights, 2>(call, shape, context);
  }
  return true;
}

}  // namespace rivulet::cuda
