// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How kernels are launched: on the device's stream, each allowed to start before the last one has
// ended (it waits where it needs the last one's results), with the first error kept.
#ifndef RIVULET_KERNELS_DEVICE_LAUNCH_CUH_
#define RIVULET_KERNELS_DEVICE_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/device/buckets_operations.h"
#include "kernels/device/device.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/experts_operations.h"
#include "kernels/device/features_operations.h"
#include "kernels/device/fenwick_operations.h"
#include "kernels/device/gate_operations.h"
#include "kernels/device/ngram_operations.h"
#include "kernels/device/pool_operations.h"
#include "kernels/device/softmax_operations.h"
#include "kernels/device/stream_operations.h"
#include "kernels/device/sum_program_operations.h"

namespace rivulet::cuda {

// Shared memory that the blocks of a processor may have, and what of it each needs beside its own.
constexpr uint32_t kSharedOfBlocks = 227 << 10;
constexpr uint32_t kSharedReserve = 1 << 10;

// Lets one block of the kernel have all of it.
template <typename Kernel>
cudaError_t AllowAllShared(Kernel kernel) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfBlocks - kSharedReserve);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
}

// Weights that the next product reads later than those it asks for itself: of `share` of every
// kEvery rows of a map, bytes first to first + count. Some rows whole rather than the beginnings of
// all: then memory is read from the product's beginning on, not only when what L2 has is used up.
struct WeightsAhead {
  static constexpr uint32_t kEvery = 16;

  const std::byte* weights = nullptr;
  uint32_t outputs = 0, stride = 0, first = 0, count = 0, share = 0;

  // visit(row) for part `part` of `parts` of those rows, until it returns false. However far the
  // parts come, the rows that they visit lie evenly over the map.
  template <typename Visit>
  __device__ void ForEachRow(uint32_t part, uint32_t parts, const Visit& visit) const {
    const uint32_t groups = (outputs + kEvery - 1) / kEvery;
#pragma unroll 1
    for (uint32_t i = part; i < groups * share; i += parts) {
      const uint32_t row = i % groups * kEvery + i / groups;
      if (row < outputs && !visit(weights + size_t{row} * stride + first)) return;
    }
  }
};

// Of a map whose product asks for the first `held` bytes of each row itself: as much of the rest as
// half of L2 has room for.
inline WeightsAhead RestOfRows(const void* weights, uint32_t outputs, uint32_t row_bytes,
                               uint32_t held) {
  constexpr size_t kMostBytes = size_t{24} << 20;
  if (held >= row_bytes) return {};
  const uint32_t rest = row_bytes - held;
  const size_t most = kMostBytes * WeightsAhead::kEvery / (size_t{outputs} * rest);
  const auto share = static_cast<uint32_t>(std::min(size_t{WeightsAhead::kEvery}, most));
  return {static_cast<const std::byte*>(weights), outputs, row_bytes, held, rest, share};
}

// The beginning of the weights that the next product reads, for a kernel before it to bring into
// L2.
struct NextWeights {
  const std::byte* weights = nullptr;  // null: none
  uint32_t bytes = 0;
};

struct LaunchContext {
  cudaStream_t stream = nullptr;
  cudaError_t* first_error = nullptr;
  // Whether the next launch may begin before the last one has ended.
  bool* overlaps = nullptr;
  // While a step is recorded: launches that were not Run's (see OverlapWithOthers).
  std::vector<cudaGraphNode_t>* others = nullptr;
  int processors = 132;
  // A number that is zero when a kernel's blocks first look at it after AwaitLastKernel, and that
  // the kernel leaves zero.
  uint32_t* counter = nullptr;
  // Whether a processor is to have as much shared memory as it can while it runs the launch.
  // Otherwise it has as much as this kernel's blocks need, and blocks of the next kernels may not
  // fit beside them.
  bool most_shared = false;

  LaunchContext WithMostShared(bool most) const {
    LaunchContext context = *this;
    context.most_shared = most;
    return context;
  }

  void Check(cudaError_t error) const {
    if (error != cudaSuccess && *first_error == cudaSuccess) *first_error = error;
  }

  template <typename... Parameters, typename... Arguments>
  void Run(void (*kernel)(Parameters...), dim3 grid, uint32_t threads, size_t shared,
           Arguments&&... arguments) const {
    RunInClusters(kernel, grid, 1, threads, shared, std::forward<Arguments>(arguments)...);
  }

  // So many neighbours of the grid form a cluster. 1: as the kernel says.
  template <typename... Parameters, typename... Arguments>
  void RunInClusters(void (*kernel)(Parameters...), dim3 grid, uint32_t blocks_of_cluster,
                     uint32_t threads, size_t shared, Arguments&&... arguments) const {
    cudaLaunchAttribute attributes[3] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    uint32_t count = 1;
    if (blocks_of_cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {blocks_of_cluster, 1, 1};
    }
    if (most_shared) {
      attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
      attributes[count++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    Check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
    *overlaps = true;
  }

  // After a launch by a library.
  void AfterOther() const {
    *overlaps = others != nullptr;
    if (others == nullptr) return;
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    Check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
    others->insert(others->end(), nodes, nodes + count);
  }

  // The most blocks of a processor that a kernel which rehearses has.
  static constexpr uint32_t kMostRehearsing = 2;
  // Blocks of `blocks` that rehearse (rehearsal.cuh): one a processor, if there is time for it and
  // the kernel is short.
  uint32_t RehearsedBlocks(uint32_t blocks) const {
    const auto one = static_cast<uint32_t>(processors);
    return *overlaps && blocks <= kMostRehearsing * one ? one : 0;
  }
};

DeviceLimits MeasureLimits(const LaunchContext& context);
// The most tokens of LaunchFewTokens; with more, LaunchTensOfTokens and LaunchFloat8Tokens are
// faster.
constexpr uint32_t MostFewTokens(const DeviceLinear& linear) {
  return linear.float8 != nullptr ? 1 : 4;
}
// What to bring into L2 for a product of so few tokens by `next` while the one by `linear` runs.
WeightsAhead AheadOf(const DeviceLinear& linear, const DeviceLinear& next, uint32_t rows,
                     const LaunchContext& context);
// The same for those of LaunchTensOfTokens and of LaunchFloat8Tokens (product_outputs.cuh has the
// launches).
WeightsAhead AheadOfTens(const DeviceLinear& linear, const DeviceLinear& next, uint32_t rows,
                         const LaunchContext& context);
WeightsAhead AheadOfFloat8(const DeviceLinear& linear, const DeviceLinear& next, uint32_t rows,
                           const LaunchContext& context);
// How many inputs of each output the ring of LaunchHeldTokens holds; 0: it declines.
uint32_t HeldInputs(const DeviceLinear& linear, uint32_t rows, const LaunchContext& context);
// A product by kernels of ours (products.cu), for any number of rows.
void LaunchChain(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                 const LaunchContext& context);
// The same by blocks of columns.
void LaunchBlockProduct(const BlockProductCall& call, const LaunchContext& context);
// y += the map's bias.
void LaunchAddBias(const DeviceLinear& linear, uint32_t rows, FloatMatrix y,
                   const LaunchContext& context);
void LaunchEmbed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
                 const uint32_t* last_tokens, FloatMatrix x, const LaunchContext& context);
void LaunchAddNorm(const AddNormCall& call, const NextWeights& next, const LaunchContext& context);
void LaunchAddLate(const AddLateCall& call, const NextWeights& next, const LaunchContext& context);
// y = factor · y.
void LaunchScaleRows(const RowFactor& factor, FloatMatrix y, const LaunchContext& context);
// The same where the call is not plain.
void LaunchResidual(const AddNormCall& call, const LaunchContext& context);
void LaunchScaleOperand(const ScaleOperandCall& call, const LaunchContext& context);
void LaunchCopyColumns(ConstFloatMatrix x, FloatMatrix y, const LaunchContext& context);
void LaunchCapLogits(FloatMatrix logits, float cap, const LaunchContext& context);
void LaunchPrepare(const PrepareCall& call, bool fp32_rows, const LaunchContext& context);
void LaunchRotate(const RotateCall& call, const LaunchContext& context);
void LaunchSumProgram(const SumProgramCall& call, bool fp32_rows, const LaunchContext& context);
void LaunchSplitHeads(const SplitHeadsCall& call, const LaunchContext& context);
void LaunchFeatures(const FeaturesCall& call, const LaunchContext& context);
void LaunchRecur(const RecurCall& call, const NextWeights& next, bool fp32_rows,
                 const LaunchContext& context);
// LaunchPrepare and LaunchRecur, in one launch where a kernel can do both and is faster so.
void LaunchPrepareAndRecur(const PrepareCall& prepare, const RecurCall& recur,
                           const NextWeights& next, bool fp32_rows, const LaunchContext& context);
// LaunchPrepareAndRecur and the product before it. False: not of a shape for which there is a
// kernel, and nothing is launched.
bool LaunchProjectAndRecur(const ProjectionCall& projection, const PrepareCall& prepare,
                           const RecurCall& recur, const LaunchContext& context);
void LaunchFenwick(const FenwickCall& call, bool fp32_rows, const LaunchContext& context);
void LaunchAttend(const AttendCall& call, bool fp32_products, const LaunchContext& context);
void LaunchPoolKeys(const PoolKeysCall& call, const LaunchContext& context);
void LaunchChoosePools(const ChoosePoolsCall& call, const LaunchContext& context);
void LaunchFinish(const FinishCall& call, const NextWeights& next, const LaunchContext& context);
void LaunchGatherRows(const GatherCall& call, const LaunchContext& context);
void LaunchSelectiveScan(const SelectiveScanCall& call, const LaunchContext& context);
void LaunchGatedScan(const GatedScanCall& call, const LaunchContext& context);
void LaunchFilter(const FilterCall& call, bool fp32_rows, const LaunchContext& context);
void LaunchModeScan(const ModeScanCall& call, const LaunchContext& context);
void LaunchTokenShift(const TokenShiftCall& call, bool fp32_rows, const LaunchContext& context);
void LaunchOwnMixtures(const OwnMixturesCall& call, const LaunchContext& context);
void LaunchTimeMix(const TimeMixCall& call, bool fp32_rows, const LaunchContext& context);
void LaunchSample(const SampleCall& call, const LaunchContext& context);
void LaunchGate(const GateCall& call, const LaunchContext& context);
void LaunchCollapseStreams(const CollapseStreamsCall& call, const LaunchContext& context);
void LaunchExpandStreams(const ExpandStreamsCall& call, const LaunchContext& context);
void LaunchNgramRows(const NgramRowsCall& call, const LaunchContext& context);
void LaunchNgramGate(const NgramGateCall& call, const LaunchContext& context);
void LaunchRoute(const RouteCall& call, const LaunchContext& context);
void LaunchExpertProduct(const ExpertProductCall& call, const LaunchContext& context);
void LaunchCombineExperts(const CombineExpertsCall& call, const LaunchContext& context);
void LaunchHash(const HashCall& call, const LaunchContext& context);
void LaunchBuckets(const BucketsCall& call, bool fp32_rows, const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_LAUNCH_CUH_
