// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The input map of a layer, row preparation and the recurrence of one token in one launch, where
// heads and inputs are few (Mamba-2 130M). A block has 16 value columns of a head. Before the
// kernel before has ended, its weights are in shared memory: those of its values, its gate, the
// head's step, and a share of the keys and queries that all blocks of its cluster need. After the
// wait, warps multiply them by the token and send keys and queries to the blocks of the cluster,
// and two warps go on as sums_decode_unit.cuh does. So there is no kernel between the map and the
// recurrence, and no way through device memory.
//
// Four warps multiply 64 rows of weights by the token. The warpgroup's instruction has eight
// columns; one is the token, the others are not used. A fifth warp multiplies the last eight rows,
// the second half of the gate, by its own instruction. Nothing is split over K. The order of every
// sum is that of the product and of sums.cu, so the bits are the same.
//
// Unlike most kernels of few blocks, this one does not rehearse (rehearsal.cuh): its blocks begin
// when those of the layer before end, while the kernel between is at work on the same processors
// (docs/gpu_notes.md#a-layers-first-half-in-one-kernel).
//
// Bytes expected: outputs · inputs · 2 of weights and once the state. From L2: the weights of keys
// and queries once for each cluster, and eight rows with those of the step for each block.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/product_outputs.cuh"
#include "kernels/device/product_rings.cuh"
#include "kernels/device/projected_row.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/row_convolution.cuh"
#include "kernels/device/sums_decode_unit.cuh"
#include "kernels/device/warpgroup_product.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kClusterBlocks = 8;
constexpr uint32_t kBlockValues = ProjectedRow::kValues;
constexpr uint32_t kInputs = 768;     // of the map: Mamba-2 130M
constexpr uint32_t kSlabOutputs = 8;  // rows of the map that lie together in shared memory
constexpr uint32_t kShareOutputs = ProjectedRow::kOfCluster / kClusterBlocks;  // of a block

// A block's slabs, in their order.
constexpr uint32_t kValueSlab = kShareOutputs / kSlabOutputs, kStepSlab = kValueSlab + 2;
constexpr uint32_t kGateSlab = kStepSlab + 1, kLastSlab = kGateSlab + 1;
constexpr uint32_t kSlabs = kLastSlab + 1;
static_assert(kBlockValues == 2 * kSlabOutputs && kLastSlab == 8, "64 rows of the instruction");

constexpr uint32_t kBoxBytes = kSlabOutputs * kBoxRowBytes;
constexpr uint32_t kChunkNumbers = 8;    // of 16 bytes
constexpr uint32_t kTokenDistance = 32;  // bytes, from a chunk of the token to the next
// Bytes behind the last chunk. The instruction reads eight columns of 16 bytes; compute-sanitizer
// counts 256 bytes from each step's first chunk.
constexpr uint32_t kTokenEnd = 256;

// Warps: those that read the state; one that brings weights and does the last slab; one that
// computes the row's factor; those that multiply.
constexpr uint32_t kBringer = ProjectedRow::kReaders / 32, kScaler = kBringer + 1;
constexpr uint32_t kFirstMultiplier = kScaler + 1, kMultipliers = 4;
constexpr uint32_t kThreads = (kFirstMultiplier + kMultipliers) * 32;
static_assert(kFirstMultiplier % 4 == 0 && kMultipliers == 4, "a warpgroup");
constexpr uint32_t kProducers = (kMultipliers + 1) * 32;  // threads with outputs
// Limits registers as if a block had so many threads, so that blocks of other kernels find some.
constexpr uint32_t kRegisterThreads = 384;

// Of the map's outputs, the first of each kind.
struct ProjectedColumns {
  uint32_t gate, value, key, query, step;
};

struct ProjectCall {
  CUtensorMap weights;  // in slabs with all inputs
  Operand x;
  ProductOutputs out;  // its factor
  ProjectedColumns columns;
};

__device__ inline void MeetProducers() {
  asm volatile("bar.sync 1, %0;\n" ::"n"(kProducers) : "memory");
}
__device__ inline void AwaitFactor() { AwaitFactors<1>(kProducers); }

class Projector {
 public:
  static constexpr uint32_t kSlabBytes = kInputs * kSlabOutputs * sizeof(bf16);
  static constexpr size_t kBytes =
      kSlabs * kSlabBytes + kInputs / kChunkNumbers * kTokenDistance + kTokenEnd;

  // memory: of kBytes, where boxes may lie.
  __device__ Projector(const ProjectCall& call, uint32_t splits, ProjectedRow& row, uint32_t memory)
      : c_(call),
        row_(row),
        weights_(memory),
        token_(memory + kSlabs * kSlabBytes),
        unit_(blockIdx.x / splits),
        warp_(threadIdx.x / 32 - kFirstMultiplier),
        lane_(threadIdx.x % 32) {}

  // By one thread.
  __device__ void BringWeights() const {
    row_.Init(kSlabs * kSlabBytes);
    FenceBarrierInit();
    FenceBeforeBulkCopy();
    const uint64_t again = ReadAgain(), once = ReadOnce();
#pragma unroll
    for (uint32_t slab = 0; slab < kSlabs; ++slab) {
      const bool read_again = slab < kValueSlab || slab == kStepSlab;  // by other blocks
      CopyBoxes(weights_ + slab * kSlabBytes, c_.weights, RowOf(slab), 0, &row_.weights_full,
                read_again ? again : once);
    }
  }

  // By the warps that multiply.
  __device__ void MakeOutputs() const {
    // A zero that the assembler does not know of. Otherwise the first instruction would not add to
    // it, and the sum of zeros could be -0.
    const float zero = static_cast<float>(c_.out.rows - 1);
    float sum[4] = {zero, zero, zero, zero};
    AwaitLastKernel();
    HoldToken();
    WaitBarrier(&row_.weights_full, 0);
    Multiply(sum);
    AwaitFactor();
    // Lanes of the token's column have an output in each of the warp's two slabs.
    const float near = row_.factor * sum[0], far = row_.factor * sum[2];
    if (warp_ < 2) return SendToCluster(near, far);
    if (warp_ == 2) return LeaveValues(near, far);
    LeaveStepAndGate(near, far);
  }

  // By another warp: the second half of the gate.
  __device__ void MakeLastSlab() const {
    MeetProducers();
    WaitBarrier(&row_.weights_full, 0);
    float sum[4] = {};
    MultiplyLast(sum);
    AwaitFactor();
    float* const gate = row_.gate + kSlabOutputs + lane_ * 2;
    if (lane_ < 4) gate[0] = row_.factor * sum[0], gate[1] = row_.factor * sum[1];
    ArriveTogether(&row_.gate_full);
  }

 private:
  __device__ uint32_t FirstOfShare() const { return BlockOfCluster() * kShareOutputs; }
  // The map's row where a slab begins.
  __device__ uint32_t RowOf(uint32_t slab) const {
    const ProjectedColumns& first = c_.columns;
    const uint32_t block = blockIdx.x * kBlockValues, share = FirstOfShare();
    if (slab == kStepSlab) return first.step + unit_;
    if (slab >= kGateSlab) return first.gate + block + (slab - kGateSlab) * kSlabOutputs;
    if (slab >= kValueSlab) return first.value + block + (slab - kValueSlab) * kSlabOutputs;
    const uint32_t key =
        share < ProjectedRow::kKey ? first.key + share : first.query + share - ProjectedRow::kKey;
    return key + slab * kSlabOutputs;
  }

  __device__ void HoldToken() const {
    constexpr uint32_t kStep = kMultipliers * 32;
#pragma unroll
    for (uint32_t chunk = threadIdx.x - kFirstMultiplier * 32; chunk < kInputs / kChunkNumbers;
         chunk += kStep) {
      StoreShared(token_ + chunk * kTokenDistance,
                  ReadLate(reinterpret_cast<const uint4*>(c_.x.data) + chunk));
    }
    FenceBeforeBulkCopy();  // the instruction reads as the copy engine does
    MeetProducers();
  }

  // Of the slabs before the last, two for each warp.
  __device__ void Multiply(float (&sum)[4]) const {
    constexpr uint32_t kBoxSteps = kBoxColumns / 16, kStepBytes = 32;
    const MatrixOperand weights = BoxOperand(weights_, kSlabBytes);
    const MatrixOperand token = NarrowOperand(token_, kTokenDistance);
    BeginProducts();
#pragma unroll
    for (uint32_t step = 0; step < kInputs / 16; ++step) {
      const uint32_t at = step / kBoxSteps * kBoxBytes + step % kBoxSteps * kStepBytes;
      WarpgroupProduct<1>::MultiplyAdd(sum, weights + at / 16,
                                       token + step * 2 * kTokenDistance / 16);
    }
    EndProducts();
    AwaitSums(sum);
  }

  // The last slab's numbers of 32 inputs are loaded while those before them are multiplied.
  __device__ void MultiplyLast(float (&sum)[4]) const {
    constexpr uint32_t kLoads = kInputs / 32;
    uint32_t weights[2][4], token[2][4];
    LoadLast(0, weights[0], token[0]);
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      if (i + 1 < kLoads) LoadLast(i + 1, weights[(i + 1) % 2], token[(i + 1) % 2]);
      const uint32_t(&w)[4] = weights[i % 2], (&t)[4] = token[i % 2];
      MultiplyAdd(sum, {t[0], 0, t[1], 0}, w[0], w[1]);
      MultiplyAdd(sum, {t[2], 0, t[3], 0}, w[2], w[3]);
    }
  }
  // Four matrices of 16 bytes a row each, half a box. All rows of tokens are the token.
  __device__ void LoadLast(uint32_t load, uint32_t (&weights)[4], uint32_t (&token)[4]) const {
    const uint32_t row = lane_ % 8, chunk = load % 2 * 4 + lane_ / 8;
    LoadMatrices(weights, weights_ + kLastSlab * kSlabBytes + load / 2 * kBoxBytes +
                              row * kBoxRowBytes + (chunk ^ row) * 16);
    LoadMatrices(token, token_ + (load * 4 + lane_ / 8) * kTokenDistance);
  }

  // Each lane sends four of the warp's numbers to one block.
  __device__ void SendToCluster(float near, float far) const {
    const uint32_t four = lane_ / kClusterBlocks, block = lane_ % kClusterBlocks;
    float x[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t lane = (four % 2 * 4 + i) * 4;
      const float upper = __shfl_sync(0xffffffffu, near, lane);
      const float lower = __shfl_sync(0xffffffffu, far, lane);
      x[i] = four < 2 ? upper : lower;
    }
    float* const to = row_.of_cluster + FirstOfShare() + warp_ * 2 * kSlabOutputs + four * 4;
    SendFour(to, &row_.numbers_full, block, {x[0], x[1], x[2], x[3]});
  }

  // To the block's own warps.
  __device__ void LeaveValues(float near, float far) const {
    float* const to = row_.values + lane_ / 4;
    if (lane_ % 4 == 0) to[0] = near, to[kSlabOutputs] = far;
    ArriveTogether(&row_.numbers_full);
  }
  __device__ void LeaveStepAndGate(float step, float gate) const {
    if (lane_ == 0) row_.step = step;
    if (lane_ % 4 == 0) row_.gate[lane_ / 4] = gate;
    ArriveTogether(&row_.numbers_full);
    ArriveTogether(&row_.gate_full);
  }
  // What the lanes have written comes before that.
  __device__ void ArriveTogether(uint64_t* barrier) const {
    __syncwarp();
    if (lane_ == 0) Arrive(barrier);
  }

  const ProjectCall& c_;
  ProjectedRow& row_;
  const uint32_t weights_, token_;  // in shared memory
  const uint32_t unit_;
  const uint32_t warp_, lane_;  // warp: of those that multiply
};

template <bool kBf16State>
using ProjectForm = UnitForm<kBf16State, static_cast<int>(kHeldTiles), /*kNormaliser=*/false,
                             /*kHeld=*/true, /*kPrepares=*/true, /*kProjects=*/true>;

// unit_bytes: of the shared memory, for the recurrence.
template <bool kBf16State>
__global__ void __launch_bounds__(kRegisterThreads, 1)
    ProjectAndRecurKernel(const __grid_constant__ ProjectCall call,
                          const __grid_constant__ RecurCall recur,
                          const __grid_constant__ UnpreparedRows rows, uint32_t unit_bytes) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ ProjectedRow row;
  __builtin_assume(!recur.delta);
  AllowNextKernel();
  if (recur.rows.segments[0].tokens == 0) return AwaitLastKernel();  // all blocks
  const uint32_t boxes = SharedAddress(memory) + unit_bytes + kBoxAlignment - 1;
  Projector projector(call, recur.padded_value / kBlockValues, row,
                      boxes / kBoxAlignment * kBoxAlignment);
  const uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x == kBringer * 32) projector.BringWeights();
  __syncwarp();
  MeetCluster();
  if (warp < kBringer) {
    DecodeByUnit<ProjectForm<kBf16State>>(recur, kBlockValues, memory, &rows, &row).Run(0);
  } else if (warp == kBringer) {
    projector.MakeLastSlab();
  } else if (warp == kScaler) {
    BringFactors<1, 1>(call.out, 0, kProducers, &row.factor);
  } else {
    projector.MakeOutputs();
  }
}

// --- launch --------------------------------------------------------------------------------------

// One token, keys of one group, and values without padding.
bool Serves(const ProjectionCall& projection, const RecurCall& recur) {
  const DeviceLinear& linear = projection.linear;
  const bool product = projection.x.rows == 1 && projection.x.columns == kInputs &&
                       !projection.x.two_parts && projection.factor.given();
  const bool map = linear.high != nullptr && linear.low == nullptr && linear.bias == nullptr &&
                   linear.inputs == kInputs && linear.stride == kInputs;
  return product && map && recur.rows.segment_count == 1 && recur.units == recur.units_per_key &&
         recur.units_per_value == 1 && recur.padded_key == ProjectedRow::kKey &&
         recur.padded_value == recur.value_dim && recur.value_dim % kBlockValues == 0 &&
         recur.gated.gate_factors == nullptr;
}

// Where a row's numbers begin among the map's outputs; -1: they are not among them.
int64_t ColumnOf(const ProjectionCall& projection, const float* x, uint32_t stride) {
  const int64_t column = x - projection.y.data;
  const bool among = column >= 0 && column < projection.linear.outputs;
  return among && stride == projection.y.stride ? column : -1;
}

bool FindColumns(const ProjectionCall& projection, const RecurCall& recur,
                 ProjectedColumns& columns) {
  const int64_t gate = ColumnOf(projection, recur.gated.gate, recur.gated.gate_stride);
  const int64_t value = ColumnOf(projection, recur.v, recur.v_stride);
  const int64_t key = ColumnOf(projection, recur.k, recur.k_stride);
  const int64_t query = ColumnOf(projection, recur.q, recur.q_stride);
  const int64_t step = ColumnOf(projection, recur.g, recur.g_stride);
  if (std::min({gate, value, key, query, step}) < 0) return false;
  columns = {static_cast<uint32_t>(gate), static_cast<uint32_t>(value), static_cast<uint32_t>(key),
             static_cast<uint32_t>(query), static_cast<uint32_t>(step)};
  return true;
}

// Of a block's shared memory: for the recurrence, and for all.
struct ProjectBytes {
  uint32_t unit;
  size_t all;
};

template <bool kBf16State>
ProjectBytes BytesOf() {
  constexpr uint32_t kQueries = 1;
  const UnitLayout<ProjectForm<kBf16State>> layout(kQueries, kBlockValues, ProjectedRow::kKey);
  return {layout.bytes, layout.bytes + kBoxAlignment + Projector::kBytes};
}

// Blocks that run at once, in whole clusters; 0: this cannot be known.
template <bool kBf16State>
uint32_t MostBlocks() {
  static const uint32_t blocks = [] {
    const auto kernel = ProjectAndRecurKernel<kBf16State>;
    const size_t shared = BytesOf<kBf16State>().all;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kClusterBlocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kClusterBlocks), config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute, config.numAttrs = 1;
    int clusters = 0;
    const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(shared)) == cudaSuccess &&
                       cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
    cudaGetLastError();  // a machine on which this is not known uses other kernels
    return known ? static_cast<uint32_t>(clusters) * kClusterBlocks : 0u;
  }();
  return blocks;
}

template <bool kBf16State>
bool Launch(const ProjectionCall& projection, const ProjectedColumns& columns,
            const RecurCall& recur, const UnpreparedRows& rows, const LaunchContext& context) {
  const uint32_t blocks = recur.units * recur.padded_value / kBlockValues;
  if (blocks % kClusterBlocks != 0 || blocks > MostBlocks<kBf16State>()) return false;
  const DeviceLinear& linear = projection.linear;
  ProjectCall call;
  if (!DescribeWholeMatrix(linear.high, linear.outputs, linear.stride, kSlabOutputs,
                           kInputs / kBoxColumns, call.weights)) {
    return false;
  }
  call.x = projection.x, call.columns = columns;
  call.out.factor = projection.factor, call.out.rows = 1;
  const ProjectBytes bytes = BytesOf<kBf16State>();
  context.WithMostShared(true).RunInClusters(ProjectAndRecurKernel<kBf16State>, dim3(blocks),
                                             kClusterBlocks, kThreads, bytes.all, call, recur, rows,
                                             bytes.unit);
  return true;
}

}  // namespace

bool LaunchProjectAndRecur(const ProjectionCall& projection, const PrepareCall& prepare,
                           const RecurCall& recur, const LaunchContext& context) {
  if (!Serves(projection, recur)) return false;
  RecurCall unprepared = recur;
  UnpreparedRows rows;
  ProjectedColumns columns;
  if (!ReadUnprepared(prepare, unprepared, rows)) return false;
  if (!FindColumns(projection, unprepared, columns)) return false;
  const auto launch = recur.bf16_state ? Launch<true> : Launch<false>;
  return launch(projection, columns, unprepared, rows, context);
}

}  // namespace rivulet::cuda
