// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The residual sum and a norm whose factor comes after the next map (LateNorm), where the product
// that makes the update does not do both (product_outputs.cuh); and such a factor, where nothing
// else applies it. A block has a row and computes its factor: where products added up the squares
// of 64 to 128 rows, steps were slower. A thread has four numbers at a time.
//
// Bytes expected: each matrix once.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/fours.cuh"
#include "kernels/device/held_row.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/product_outputs.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kScaleThreads = 256;

// The factor of a row's update, in each lane of a warp.
__device__ float FactorOfUpdate(const RowFactor& factor, uint32_t token) {
  if (factor.values != nullptr) return ReadLate(factor.values + token);
  if (factor.squares == nullptr) return 1.0f;
  return FactorOfLanes(SquaresOfLane(factor, token), factor.width, factor.eps);
}

// x + factor · update, of four numbers.
__device__ float4 Added(float4 x, float factor, float4 update) {
  return {fmaf(factor, update.x, x.x), fmaf(factor, update.y, x.y), fmaf(factor, update.z, x.z),
          fmaf(factor, update.w, x.w)};
}

// Of the eight neighbours that two lanes have.
__device__ float SquaresOfEight(float4 x) {
  const float squares = fmaf(x.y, x.y, x.x * x.x) + fmaf(x.w, x.w, x.z * x.z);
  return squares + __shfl_xor_sync(0xffffffffu, squares, 1);
}

// The first number of the thread's four number j.
__device__ uint32_t PlaceOf(uint32_t j) { return (threadIdx.x + j * blockDim.x) * 4; }

// The factor of a norm, by the first warp of the block, from the sums of the squares of eights.
__device__ void StoreFactor(const AddLateCall& call, const float* squares, bool real) {
  const auto columns = static_cast<uint32_t>(call.x.columns);
  float sum = 0.0f;
  for (uint32_t i = threadIdx.x; i < columns / LateNorm::kSquares / 4; i += 32) {
    const float4 four = LoadFour(squares + i * 4);
    sum += (four.x + four.y) + (four.z + four.w);
  }
  const float factor = FactorOfLanes(sum, columns, call.norm.eps);
  if (real && threadIdx.x == 0) call.norm.factors[blockIdx.x] = factor;
}

// Of one row.
__device__ void AddLateRow(const AddLateCall& call, const NextWeights& next,
                           const float4 (&weights)[kHeldFours], float* squares, bool real) {
  const auto columns = static_cast<uint32_t>(call.x.columns);
  const uint32_t token = blockIdx.x;
  float* const x = call.x.data + token * call.x.stride;
  const float* const update = call.update.data + token * call.update.stride;
  const bool adds = call.update.data != nullptr;
  float4 row[kHeldFours], added[kHeldFours];
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    row[j] = added[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (PlaceOf(j) >= columns) continue;
    row[j] = ReadFour<true>(x, PlaceOf(j), columns);
    if (adds) added[j] = ReadFour<true>(update, PlaceOf(j), columns);
  }
  const float factor = FactorOfUpdate(call.factor, token);
  if (real) FetchShare(next.weights, next.bytes);  // behind the loads, which must not wait for it
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = PlaceOf(j);
    if (adds) row[j] = Added(row[j], factor, added[j]);
    const float eight = SquaresOfEight(row[j]);
    if (i >= columns) continue;
    if (threadIdx.x % 2 == 0) squares[i / LateNorm::kSquares] = eight;
    const float4 w = weights[j];
    const float4 y = {w.x * row[j].x, w.y * row[j].y, w.z * row[j].z, w.w * row[j].w};
    KeepInRegisters(y);
    if (!real) continue;
    if (adds) StoreFour(x + i, row[j]);
    StoreOperandFour(call.norm.y, token, i, y);
  }
  __syncthreads();
  if (threadIdx.x < 32) StoreFactor(call, squares, real);
}

__global__ void __launch_bounds__(kMostThreads)
    AddLateKernel(const __grid_constant__ AddLateCall call, NextWeights next, uint32_t rehearsed) {
  __shared__ __align__(16) float squares[2][kMostNormedWidth / LateNorm::kSquares];
  AllowNextKernel();
  float4 weights[kHeldFours];
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    weights[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (PlaceOf(j) < call.x.columns) weights[j] = LoadFour(call.norm.weight + PlaceOf(j));
  }
  RunRehearsed(rehearsed, [&](bool real) { AddLateRow(call, next, weights, squares[real], real); });
}

__global__ void __launch_bounds__(kScaleThreads)
    ScaleRowsKernel(const __grid_constant__ RowFactor factor, FloatMatrix y) {
  AllowNextKernel();
  AwaitLastKernel();
  const float scale = FactorOfUpdate(factor, blockIdx.x);
  for (uint32_t i = threadIdx.x; i < y.columns; i += kScaleThreads) {
    y.data[blockIdx.x * y.stride + i] *= scale;
  }
}

}  // namespace

void LaunchAddLate(const AddLateCall& call, const NextWeights& next, const LaunchContext& context) {
  const auto columns = static_cast<uint32_t>(call.x.columns);
  const bool update = call.update.data != nullptr;
  if (columns > kMostNormedWidth || !LateNorm::Serves(columns) || !Aligned(call.x, columns) ||
      (update && !Aligned(call.update, columns))) {
    return context.Check(cudaErrorInvalidValue);
  }
  const auto rows = static_cast<uint32_t>(call.x.rows);
  context.Run(AddLateKernel, dim3(rows), ThreadsFor(columns), 0, call, next,
              context.RehearsedBlocks(rows));
}

void LaunchScaleRows(const RowFactor& factor, FloatMatrix y, const LaunchContext& context) {
  context.Run(ScaleRowsKernel, dim3(static_cast<uint32_t>(y.rows)), kScaleThreads, 0, factor, y);
}

}  // namespace rivulet::cuda
