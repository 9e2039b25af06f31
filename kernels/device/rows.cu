// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What happens to a token's row between products: embedding, residual sum and norm, row finish
// (norm and gate). Row preparation is in prepare.cu.
//
// Bytes expected: each matrix once.
#include <algorithm>

#include "kernels/device/activations.cuh"
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/fours.cuh"
#include "kernels/device/held_row.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {
namespace {

// --- embedding ---------------------------------------------------------------------------------

__device__ float TableNumber(const DeviceTable& table, size_t index) {
  if (table.dtype == DType::kFloat32) return static_cast<const float*>(table.data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(table.data)[index];
  if (table.dtype == DType::kBFloat16) return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  __half_raw raw;
  raw.x = bits;
  return __half2float(__half(raw));
}

constexpr uint32_t kEmbedThreads = 512;

__global__ void EmbedKernel(DeviceTable table, const uint32_t* __restrict__ ids, DeviceRows rows,
                            const uint32_t* last_tokens, FloatMatrix x) {
  // The first kernel of a step: when later ones begin, everything before the step has ended, so
  // they may read states, pages and the step's description without waiting for each other.
  AwaitLastKernel();
  AllowNextKernel();
  const uint32_t token = blockIdx.x;
  uint32_t id = ids[token];
  if (id == UINT32_MAX) id = last_tokens[rows.segments[rows.segment_of[token]].tail];
  if (id >= table.vocab) id = 0;
#pragma unroll 8
  for (uint32_t i = threadIdx.x; i < table.width; i += kEmbedThreads) {
    x.data[token * x.stride + i] =
        TableNumber(table, static_cast<size_t>(id) * table.width + i) * table.multiplier;
  }
}

// --- residual sum and norm ---------------------------------------------------------------------

// row += factor · update, which becomes x. The sum of squares is the thread's part of the factor.
template <bool kAligned>
__device__ void AddUpdate(const AddNormCall& call, const float4 (&added)[kHeldFours], float squares,
                          float (&scratch)[32], bool real, float4 (&row)[kHeldFours]) {
  const auto columns = static_cast<uint32_t>(call.x.columns);
  const float factor = FactorOf(call.update_factor, squares, scratch);
  float* x = call.x.data + blockIdx.x * call.x.stride;
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = (threadIdx.x + j * blockDim.x) * 4;
    if (i >= columns) continue;
#pragma unroll
    for (int k = 0; k < 4; ++k) At(row[j], k) = fmaf(factor, At(added[j], k), At(row[j], k));
    if (real) WriteFour<kAligned>(x, i, columns, row[j]);
  }
}

// Of one row: x += factor · update, and its norm.
template <bool kAligned>
__device__ void AddNormRow(const AddNormCall& call, const NextWeights& next, Scratch& scratch,
                           bool real) {
  const uint32_t token = blockIdx.x, columns = static_cast<uint32_t>(call.x.columns);
  float4 weights[kHeldFours], row[kHeldFours], added[kHeldFours];
  const float* x = call.x.data + token * call.x.stride;
  const float* update = call.update.data;
  if (update != nullptr) update += token * call.update.stride;
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = (threadIdx.x + j * blockDim.x) * 4;
    row[j] = weights[j] = added[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (i >= columns) continue;
    if (call.weight != nullptr) weights[j] = LoadFour(call.weight + i);
    row[j] = ReadFour<kAligned>(x, i, columns);
    if (update != nullptr) added[j] = ReadFour<kAligned>(update, i, columns);
  }
  const float squares = SquaresOfThread(call.update_factor, token);
  if (real) FetchShare(next.weights, next.bytes);  // behind the loads, which must not wait for it
  if (update != nullptr) AddUpdate<kAligned>(call, added, squares, scratch[4 + real], real, row);
  if (call.y.data == nullptr) return;
  const RowNorm norm =
      NormOfRow(row, columns, call.bias != nullptr, call.eps, scratch[real], scratch[2 + real]);
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = (threadIdx.x + j * blockDim.x) * 4;
    if (i >= call.y.columns) continue;
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k >= columns) continue;
      At(value, k) = (At(row[j], k) - norm.mean) * norm.scale * At(weights[j], k);
      if (call.bias != nullptr) At(value, k) += call.bias[i + k];
    }
    if (real) StoreOperandFour(call.y, token, i, value);
  }
}

template <bool kAligned>
__global__ void __launch_bounds__(kMostThreads)
    AddNormKernel(const __grid_constant__ AddNormCall call, NextWeights next, uint32_t rehearsed) {
  __shared__ Scratch scratch;
  AllowNextKernel();
  RunRehearsed(rehearsed, [&](bool real) { AddNormRow<kAligned>(call, next, scratch, real); });
}

// --- row finish --------------------------------------------------------------------------------

// Groups of up to so many numbers are a warp's, others a block's.
constexpr uint32_t kMostOfAWarp = 512;

// Which numbers of a row a thread finishes: some of one group. Four neighbours at a time: heads,
// strides and groups are multiples of four (LaunchFinish).
template <bool kWarp>
struct GroupThread {
  const uint32_t columns;  // of the row
  const uint32_t token, first;
  const uint32_t thread, threads;
  const uint32_t count;  // numbers of the group, if it begins in the row

  __device__ explicit GroupThread(const FinishCall& call)
      : columns(call.heads * call.width),
        token(blockIdx.y),
        first((kWarp ? blockIdx.x * 4 + threadIdx.x / 32 : blockIdx.x) * call.norm_width),
        thread(kWarp ? threadIdx.x % 32 : threadIdx.x),
        threads(kWarp ? 32 : blockDim.x),
        count(min(call.norm_width, columns - first)) {}

  // The first number of the thread's four number j, counted in the group.
  __device__ uint32_t Place(uint32_t j) const { return (thread + j * threads) * 4; }
};

template <bool kWarp, uint32_t kFours>
__device__ void LoadNormWeights(const FinishCall& call, const GroupThread<kWarp>& at,
                                float4 (&weights)[kFours]) {
#pragma unroll
  for (uint32_t j = 0; j < kFours; ++j) {
    const uint32_t i = at.Place(j);
    weights[j] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (i >= at.count || call.weight == nullptr) continue;
    const uint32_t column =
        call.weight_period == at.columns ? at.first + i : (at.first + i) % call.weight_period;
    weights[j] = *reinterpret_cast<const float4*>(call.weight + column);
  }
}

// `gate`: the token's row; null: none.
template <bool kWarp, uint32_t kFours>
__device__ void LoadRow(const FinishCall& call, const GroupThread<kWarp>& at, const float* gate,
                        float4 (&row)[kFours], float4 (&gates)[kFours]) {
  const float* o = call.o.data + at.token * call.o.stride;
#pragma unroll
  for (uint32_t j = 0; j < kFours; ++j) {
    const uint32_t i = at.Place(j);
    uint32_t column = at.first + i;
    row[j] = gates[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (i >= at.count) continue;
    if (gate != nullptr) gates[j] = ReadLate(reinterpret_cast<const float4*>(gate + column));
    if (call.padded != call.width) {
      column = column / call.width * call.padded + column % call.width;
    }
    row[j] = ReadLate(reinterpret_cast<const float4*>(o + column));
  }
}

// Both functions, and the gate where it comes before the norm. The sum of the thread's squares.
template <bool kWarp, uint32_t kFours>
__device__ float ApplyFunctions(const FinishCall& call, const GroupThread<kWarp>& at, bool gated,
                                float4 (&row)[kFours], float4 (&gates)[kFours]) {
  Apply(call.f, row);
  if (gated) Apply(call.gate_f, gates);
  float squares = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kFours; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float& x = At(row[j], k);
      if (call.order != FinishOrder::kNormThenGate && gated) x *= At(gates[j], k);
      if (at.Place(j) < at.count) squares = fmaf(x, x, squares);
    }
  }
  return squares;
}

template <bool kWarp>
__device__ float GroupScale(const FinishCall& call, float squares, float (&scratch)[32]) {
  if (call.order == FinishOrder::kGateOnly) return 1.0f;
  squares = kWarp ? WarpSum(squares) : SumOfBlock(squares, scratch);
  return 1.0f / sqrtf(squares / static_cast<float>(call.norm_width) + call.eps);
}

// What the norm makes of the numbers, and the gate where it comes after it.
template <bool kWarp, uint32_t kFours>
__device__ void WriteGroup(const FinishCall& call, const GroupThread<kWarp>& at, bool gated,
                           float scale, float4 (&row)[kFours], const float4 (&gates)[kFours],
                           const float4 (&weights)[kFours], bool real) {
#pragma unroll
  for (uint32_t j = 0; j < kFours; ++j) {
    const uint32_t i = at.Place(j);
    if (i >= at.count) continue;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float y = At(row[j], k) * scale * At(weights[j], k);
      if (call.order == FinishOrder::kNormThenGate && gated) y *= At(gates[j], k);
      At(row[j], k) = y;
    }
    KeepInRegisters(row[j]);
    if (real) StoreOperandFour(call.y, at.token, at.first + i, row[j]);
  }
}

// Zeros behind the row, by its last group.
template <bool kWarp>
__device__ void PadRow(const FinishCall& call, const GroupThread<kWarp>& at) {
  if (at.first + call.norm_width < at.columns) return;
  for (uint32_t i = at.columns + at.thread; i < call.y.columns; i += at.threads) {
    StoreOperand(call.y, at.token, i, 0.0f);
  }
}

template <bool kWarp, uint32_t kFours>
__device__ void FinishGroup(const FinishCall& call, const NextWeights& next, Scratch& scratch,
                            bool real) {
  const GroupThread<kWarp> at(call);
  if (at.first >= at.columns) {
    if (real) FetchShare(next.weights, next.bytes);
    return;
  }
  float4 row[kFours], gates[kFours], weights[kFours];
  LoadNormWeights(call, at, weights);
  const float* gate = call.gate.data;
  if (gate != nullptr) gate += at.token * call.gate.stride;
  LoadRow(call, at, gate, row, gates);
  if (real) FetchShare(next.weights, next.bytes);
  const float squares = ApplyFunctions(call, at, gate != nullptr, row, gates);
  const float scale = GroupScale<kWarp>(call, squares, scratch[real]);
  WriteGroup(call, at, gate != nullptr, scale, row, gates, weights, real);
  if (real) PadRow(call, at);
}

template <bool kWarp, uint32_t kFours>
__global__ void __launch_bounds__(kWarp ? 128 : kMostThreads)
    FinishKernel(const __grid_constant__ FinishCall call, NextWeights next, uint32_t rehearsed) {
  __shared__ Scratch scratch;
  AllowNextKernel();
  RunRehearsed(rehearsed,
               [&](bool real) { FinishGroup<kWarp, kFours>(call, next, scratch, real); });
}

// The same for any widths, a number at a time.
template <int kThreads>
__global__ void __launch_bounds__(kThreads == 32 ? 128 : kThreads)
    FinishAnyKernel(const __grid_constant__ FinishCall call, NextWeights, uint32_t) {
  __shared__ float scratch[kThreads / 32];
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t columns = call.heads * call.width;
  const uint32_t group = kThreads == 32 ? blockIdx.x * 4 + threadIdx.x / 32 : blockIdx.x;
  const uint32_t token = blockIdx.y, first = group * call.norm_width;
  const uint32_t thread = kThreads == 32 ? threadIdx.x % 32 : threadIdx.x;
  if (first >= columns) return;
  const uint32_t count = min(call.norm_width, columns - first);
  const auto number = [&](uint32_t i, float& gate) {
    const uint32_t column = first + i;
    const float o =
        call.o
            .data[token * call.o.stride + column / call.width * call.padded + column % call.width];
    gate = 1.0f;
    if (call.gate.data != nullptr) {
      gate = Function(call.gate_f, call.gate.data[token * call.gate.stride + column]);
    }
    const float x = Function(call.f, o);
    return call.order == FinishOrder::kNormThenGate ? x : x * gate;
  };
  float gate, squares = 0.0f;
  for (uint32_t i = thread; i < count; i += kThreads) {
    const float x = number(i, gate);
    squares = fmaf(x, x, squares);
  }
  float scale = 1.0f;
  if (call.order != FinishOrder::kGateOnly) {
    squares = kThreads == 32 ? WarpSum(squares) : BlockSum<kThreads>(squares, scratch);
    scale = 1.0f / sqrtf(squares / static_cast<float>(call.norm_width) + call.eps);
  }
  for (uint32_t i = thread; i < count; i += kThreads) {
    float y = number(i, gate) * scale;
    if (call.weight != nullptr) y *= call.weight[(first + i) % call.weight_period];
    if (call.order == FinishOrder::kNormThenGate) y *= gate;
    StoreOperand(call.y, token, first + i, y);
  }
  if (first + call.norm_width < columns) return;
  for (uint32_t i = columns + thread; i < call.y.columns; i += kThreads) {
    StoreOperand(call.y, token, i, 0.0f);
  }
}

// --- logits ------------------------------------------------------------------------------------

__global__ void GatherKernel(GatherCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const float* x = call.x.data + call.tokens[blockIdx.x] * call.x.stride;
  float* y = call.y.data + blockIdx.x * call.y.stride;
  for (uint32_t i = threadIdx.x; i < call.y.columns; i += blockDim.x) y[i] = x[i];
}

}  // namespace

void LaunchEmbed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
                 const uint32_t* last_tokens, FloatMatrix x, const LaunchContext& context) {
  context.Run(EmbedKernel, dim3(rows.tokens), kEmbedThreads, 0, table, ids, rows, last_tokens, x);
}

void LaunchAddNorm(const AddNormCall& call, const NextWeights& next, const LaunchContext& context) {
  if (!call.plain()) return LaunchResidual(call, context);
  const auto columns = static_cast<uint32_t>(std::max(call.x.columns, size_t{call.y.columns}));
  if (columns > kMostNormedWidth) context.Check(cudaErrorInvalidValue);
  const auto rows = static_cast<uint32_t>(call.x.rows);
  const bool aligned = Aligned(call.x, call.x.columns) &&
                       (call.update.data == nullptr || Aligned(call.update, call.x.columns));
  context.Run(aligned ? AddNormKernel<true> : AddNormKernel<false>, dim3(rows), ThreadsFor(columns),
              0, call, next, context.RehearsedBlocks(rows));
}

void LaunchFinish(const FinishCall& call, const NextWeights& next, const LaunchContext& context) {
  const uint32_t groups = (call.heads * call.width + call.norm_width - 1) / call.norm_width;
  const auto rows = static_cast<uint32_t>(call.o.rows);
  const auto fours = [](auto x) { return x % 4 == 0; };
  const bool aligned = fours(call.width) && fours(call.padded) && fours(call.norm_width) &&
                       fours(call.o.stride) && fours(call.gate.stride) &&
                       reinterpret_cast<uintptr_t>(call.gate.data) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(call.o.data) % 16 == 0;
  if (call.norm_width <= kMostOfAWarp) {
    const dim3 grid((groups + 3) / 4, rows);
    const uint32_t rehearsed = context.RehearsedBlocks(grid.x * grid.y);
    const auto kernel = !aligned                 ? FinishAnyKernel<32>
                        : call.norm_width <= 128 ? FinishKernel<true, 1>
                        : call.norm_width <= 256 ? FinishKernel<true, 2>
                                                 : FinishKernel<true, 4>;
    context.Run(kernel, grid, 128, 0, call, next, rehearsed);
    return;
  }
  const dim3 grid(groups, rows);
  if (!aligned || call.norm_width > kMostNormedWidth) {
    return context.Run(FinishAnyKernel<512>, grid, 512, 0, call, next, 0);
  }
  context.Run(FinishKernel<false, kHeldFours>, grid, ThreadsFor(call.norm_width), 0, call, next,
              context.RehearsedBlocks(groups * rows));
}

void LaunchGatherRows(const GatherCall& call, const LaunchContext& context) {
  if (call.count != 0) context.Run(GatherKernel, dim3(call.count), 256, 0, call);
}

}  // namespace rivulet::cuda
