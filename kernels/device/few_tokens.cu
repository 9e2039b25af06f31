// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ + b for at most 8 tokens in bf16, where latency counts. A warp owns 8 outputs and walks
// all of K; nothing is split over K, so each output is one chain. Its weights come through a ring
// of shared memory that only this warp uses and that is as deep as there is room for: the kernel
// asks for them before it waits for the kernel before it. The tokens are held in shared memory.
//
// Bytes expected: outputs · stride · 2 of weights.
#include <algorithm>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/products.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kStageNumbersOfTile = 8 * kStageInputs;  // of 8 outputs
// Stages that are copied and multiplied together: a warp issues its instructions in order, so
// everything else has to find room between the matrix instructions of one straight run.
constexpr uint32_t kGroupStages = 4;
constexpr uint32_t kGroupNumbers = kGroupStages * kStageNumbersOfTile;
constexpr uint32_t kPairs = kGroupStages * kStageInputs / 32;  // of k16 steps
constexpr uint32_t kMostWarps = 16;
constexpr uint32_t kMostFewTokens = 8;
// Of a processor; what is left is for small kernels beside this one.
constexpr size_t kSharedOfProcessor = 204 << 10;
constexpr size_t kReservedOfBlock = 1 << 10;

// Of a token's row in shared memory: rows begin in different banks.
__host__ __device__ constexpr uint32_t RowStride(uint32_t stride) { return stride + 8; }

struct FewTokensCall {
  DeviceLinear linear;
  Operand x;
  FloatMatrix y;
  uint32_t pace;       // groups of a warp that are on their way at the start
  uint32_t rehearsed;  // blocks
  WeightsAhead ahead;
};

// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void LoadMatrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// For weights, which nothing reads again in the step: they leave L2 first, so that instructions,
// arguments and the rows of small kernels stay there.
__device__ inline uint64_t ReadOnce() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

// CopyAsync under a policy.
__device__ inline void CopyOnce(void* shared, const void* global, uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(shared)),
      "l"(global), "l"(policy));
}

// The operands of two k16 steps. The matrix instruction takes 16 rows: the upper eight are zeros.
struct Pair {
  uint32_t weights[4], tokens[4];

  __device__ void Multiply(float (&sum)[4]) const {
    MultiplyAdd(sum, {tokens[0], 0, tokens[1], 0}, weights[0], weights[1]);
    MultiplyAdd(sum, {tokens[2], 0, tokens[3], 0}, weights[2], weights[3]);
  }
};

// kDepth: groups of a ring.
template <int kDepth>
class FewTokens {
 public:
  __device__ FewTokens(const FewTokensCall& call, std::byte* memory)
      : c_(call),
        lane_(threadIdx.x % 32),
        output_((blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 8),
        stages_(output_ < call.linear.outputs ? call.linear.stride / kStageInputs : 0),
        stride_(RowStride(call.linear.stride)) {
    const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;
    ring_ = reinterpret_cast<bf16*>(memory) + warp * kDepth * kGroupNumbers;
    tokens_ = reinterpret_cast<bf16*>(memory) + warps * kDepth * kGroupNumbers;
    held_ = reinterpret_cast<uint64_t*>(tokens_ + c_.x.rows * stride_);
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t row = min(output_ + lane_ / 8 + i * 4, call.linear.outputs - 1);
      sources_[i] = call.linear.high + size_t{row} * call.linear.stride + lane_ % 8 * 8;
    }
  }

  static __host__ size_t SharedBytes(uint32_t warps, uint32_t rows, uint32_t stride) {
    return sizeof(bf16) *
               (size_t{warps} * kDepth * kGroupNumbers + size_t{rows} * RowStride(stride)) +
           sizeof(uint64_t);
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
      LoadGroup(i, i);
      CommitCopies();
    }
    FillEnds();
    __syncthreads();
  }

  __device__ void Run(bool real) {
    HoldTokens();
    float sum[4] = {};
    const uint32_t groups = stages_ / kGroupStages;
    RunChain(real ? groups : min(groups, 1), real, sum);
    if (real) {
      RunRest(sum);
      return Write(sum);
    }
    __syncthreads();  // before the tokens are held again
    FenceBeforeBulkCopy();
  }

 private:
  // Of one stage in shared memory: 8 rows of 8 chunks of 16 bytes, exchanged so that 8 rows are
  // read without bank conflicts.
  __device__ void LoadGroup(uint32_t group, uint32_t slot) {
    const uint32_t stages = stages_ - min(stages_, group * kGroupStages);
    bf16* to = ring_ + slot * kGroupNumbers + lane_ / 8 * kStageInputs;
    const uint32_t near = (lane_ % 8 ^ lane_ / 8) * 8;
    const uint32_t far = (lane_ % 8 ^ (lane_ / 8 + 4)) * 8 + 4 * kStageInputs;
    const size_t k = size_t{group} * kGroupStages * kStageInputs;
#pragma unroll
    for (uint32_t s = 0; s < kGroupStages; ++s) {
      if (s >= stages) continue;
      CopyOnce(to + s * kStageNumbersOfTile + near, sources_[0] + k + s * kStageInputs, once_);
      CopyOnce(to + s * kStageNumbersOfTile + far, sources_[1] + k + s * kStageInputs, once_);
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

  __device__ void HoldTokens() {
    const uint32_t bytes = (c_.x.columns + 7) / 8 * 16;
    if (threadIdx.x == 0) {
      ArriveExpecting(held_, bytes * c_.x.rows);
      for (uint32_t token = 0; token < c_.x.rows; ++token) {
        BulkCopy(tokens_ + token * stride_, c_.x.data + size_t{token} * c_.x.stride, bytes, held_);
      }
    }
    WaitBarrier(held_, held_phase_);
    held_phase_ ^= 1;
  }

  // What the lane gives for the weights of a pair: matrix l / 8 has 8 numbers of K.
  __device__ uint32_t WeightAddress(uint32_t slot, uint32_t pair) const {
    const uint32_t row = lane_ % 8, chunk = pair % 2 * 4 + lane_ / 8;
    return SharedAddress(ring_) + (slot * kGroupNumbers + pair / 2 * kStageNumbersOfTile +
                                   row * kStageInputs + (chunk ^ row) * 8) *
                                      2;
  }

  // Rows that are not there are copies of the last: nothing of them is written.
  __device__ uint32_t TokenAddress() const {
    return SharedAddress(tokens_ + min(lane_ % 8, c_.x.rows - 1) * stride_ + lane_ / 8 * 8);
  }

  static __device__ void Load(Pair& pair, uint32_t weights, uint32_t tokens) {
    LoadMatrices(pair.weights, weights);
    LoadMatrices(pair.tokens, tokens);
  }

  // The operands of one pair are loaded while those of the pair before are multiplied.
  __device__ void RunChain(uint32_t groups, bool refill, float (&sum)[4]) {
    if (groups == 0) return;
    WaitForCopies<kDepth - 1>();
    __syncwarp();
    uint32_t tokens = TokenAddress(), slot = 0;
    Pair pairs[2];
    Load(pairs[0], WeightAddress(0, 0), tokens);
#pragma unroll 1
    for (uint32_t group = 0; group < groups; ++group) {
      const uint32_t next = slot + 1 == kDepth ? 0 : slot + 1;
#pragma unroll
      for (uint32_t p = 0; p + 1 < kPairs; ++p) {
        Load(pairs[(p + 1) % 2], WeightAddress(slot, p + 1), tokens + (p + 1) * 64);
        pairs[p % 2].Multiply(sum);
      }
      WaitForCopies<kDepth - 2>();
      __syncwarp();
      // After the last group these numbers are not used.
      if (group + 1 < groups) tokens += kPairs * 64;
      Load(pairs[kPairs % 2], WeightAddress(next, 0), tokens);
      pairs[(kPairs - 1) % 2].Multiply(sum);
      if (!refill) continue;
      LoadGroup(group + kDepth, slot);
      CommitCopies();
      slot = next;
    }
  }

  // The stages after the last whole group.
  __device__ void RunRest(float (&sum)[4]) {
    const uint32_t groups = stages_ / kGroupStages, rest = stages_ % kGroupStages;
    WaitForCopies<0>();
    __syncwarp();
#pragma unroll 1
    for (uint32_t p = 0; p < rest * (kStageInputs / 32); ++p) {
      Pair pair;
      Load(pair, WeightAddress(groups % kDepth, p), TokenAddress() + (groups * kPairs + p) * 64);
      pair.Multiply(sum);
    }
  }

  __device__ void Write(const float (&sum)[4]) const {
    if (stages_ == 0) return;
    const uint32_t token = lane_ / 4;
    if (token >= c_.x.rows) return;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t column = output_ + lane_ % 4 * 2 + i;
      if (column >= c_.linear.outputs) continue;
      const float bias = c_.linear.bias == nullptr ? 0.0f : c_.linear.bias[column];
      c_.y.data[token * c_.y.stride + column] = sum[i] + bias;
    }
  }

  const FewTokensCall& c_;
  const uint64_t once_ = ReadOnce();
  const uint32_t lane_, output_, stages_, stride_;
  const uint16_t* sources_[2];  // what the lane copies: rows l / 8 and l / 8 + 4 of the outputs
  bf16 *ring_, *tokens_;
  uint64_t* held_;
  uint32_t held_phase_ = 0;
};

// Asks for weights of the next product, which may come from L2 then.
__device__ void FetchAhead(const WeightsAhead& ahead) {
  const uint32_t threads = gridDim.x * blockDim.x;
  for (uint32_t n = blockIdx.x * blockDim.x + threadIdx.x; n < ahead.outputs; n += threads) {
    FetchToL2(ahead.weights + size_t{n} * ahead.stride + ahead.first, ahead.count * sizeof(bf16));
  }
}

template <int kDepth>
__global__ void __launch_bounds__(kMostWarps * 32)
    FewTokensKernel(const __grid_constant__ FewTokensCall call) {
  extern __shared__ __align__(128) std::byte memory[];
  AllowNextKernel();
  FewTokens<kDepth> work(call, memory);
  work.Start();
  FetchAhead(call.ahead);
  RunRehearsed(call.rehearsed, [&](bool real) { work.Run(real); });
}

// Of a launch: its blocks' warps, and the groups of each warp's ring.
struct FewTokensShape {
  uint32_t warps = 0, depth = 0, resident = 0;

  // Enough to keep the memory busy.
  uint32_t Pace() const {
    constexpr uint32_t kOnTheWay = (40 << 10) / (kGroupNumbers * sizeof(bf16));  // of a processor
    return std::clamp(kOnTheWay / (warps * resident), 1u, 3u);
  }
};

constexpr uint32_t kDepths[] = {20, 16, 12, 8, 6, 4, 3, 2};

size_t SharedBytes(uint32_t warps, uint32_t depth, uint32_t rows, uint32_t stride) {
  const size_t without = FewTokens<2>::SharedBytes(0, rows, stride);
  return without + size_t{warps} * depth * kGroupNumbers * sizeof(bf16);
}

// The deepest ring if `resident` blocks share a processor; 0: no room.
uint32_t DepthFor(const DeviceLinear& linear, uint32_t rows, uint32_t warps, uint32_t resident) {
  const size_t room = kSharedOfProcessor / resident - kReservedOfBlock;
  const uint32_t stages = linear.stride / kStageInputs;
  const uint32_t groups = (stages + kGroupStages - 1) / kGroupStages;
  for (const uint32_t depth : kDepths) {
    if (depth > std::max(groups, 2u)) continue;
    if (SharedBytes(warps, depth, rows, linear.stride) <= room) return depth;
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

template <int kDepth>
void Launch(const FewTokensCall& call, uint32_t warps, const LaunchContext& context) {
  const auto kernel = FewTokensKernel<kDepth>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfProcessor);
  context.Check(prepared);
  const uint32_t tiles = (call.linear.outputs + 7) / 8;
  context.Run(kernel, dim3((tiles + warps - 1) / warps), warps * 32,
              SharedBytes(warps, kDepth, call.x.rows, call.linear.stride), call);
}

void LaunchDepth(const FewTokensCall& call, const FewTokensShape& shape,
                 const LaunchContext& context) {
  switch (shape.depth) {
    case 20:
      return Launch<20>(call, shape.warps, context);
    case 16:
      return Launch<16>(call, shape.warps, context);
    case 12:
      return Launch<12>(call, shape.warps, context);
    case 8:
      return Launch<8>(call, shape.warps, context);
    case 6:
      return Launch<6>(call, shape.warps, context);
    case 4:
      return Launch<4>(call, shape.warps, context);
    case 3:
      return Launch<3>(call, shape.warps, context);
    default:
      return Launch<2>(call, shape.warps, context);
  }
}

}  // namespace

// While a map whose weights are nearly all in rings is multiplied, memory has nothing to do.
WeightsAhead AheadOf(const DeviceLinear& linear, const DeviceLinear& next, uint32_t rows,
                     const LaunchContext& context) {
  constexpr size_t kMostBytes = size_t{24} << 20;  // half of L2
  constexpr uint32_t kGroupInputs = kGroupStages * kStageInputs;
  if (rows > kMostFewTokens || next.high == nullptr || next.low != nullptr) return {};
  const FewTokensShape here = ShapeFor(linear, rows, context);
  const FewTokensShape there = ShapeFor(next, rows, context);
  const bool idle = here.depth * kGroupInputs * 2 > linear.stride;
  const uint32_t first = there.depth * kGroupInputs;
  if (!idle || there.warps == 0 || first >= next.stride) return {};
  const auto most = static_cast<uint32_t>(kMostBytes / sizeof(bf16) / next.outputs / 8 * 8);
  return {next.high, next.outputs, next.stride, first, std::min(next.stride - first, most)};
}

bool LaunchFewTokens(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                     const WeightsAhead& ahead, const LaunchContext& context) {
  if (x.rows == 0 || x.rows > kMostFewTokens || linear.low != nullptr) return false;
  const FewTokensShape shape = ShapeFor(linear, x.rows, context);
  if (shape.warps == 0) return false;
  const FewTokensCall call = {linear, x, y, shape.Pace(), context.RehearsedBlocks(1), ahead};
  LaunchDepth(call, shape, context);
  return true;
}

}  // namespace rivulet::cuda
