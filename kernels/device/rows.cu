// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What happens to a token's row between products: embedding, residual sum and norm, row preparation
// (convolution, activations, norms of heads, gates), row finish (norm and gate).
//
// Bytes expected: each matrix once; for the convolution W - 1 rows of the tail read and one
// written.
#include <algorithm>

#include "kernels/device/activations.cuh"
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/bulk_copy.cuh"
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
  // they may read states and the step's description without waiting for each other.
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

constexpr int kNormThreads = 512;

// The most numbers of a row that a thread holds, so that all its loads run at once.
constexpr uint32_t kMostHeld = 16;

// Of one row: x += update, and its norm.
template <uint32_t kHeld>
__device__ void AddNormRow(const AddNormCall& call, const NextWeights& next, float* scratch,
                           bool real) {
  const uint32_t token = blockIdx.x, columns = static_cast<uint32_t>(call.x.columns);
  float weights[kHeld], row[kHeld];
  float* x = call.x.data + token * call.x.stride;
  const float* update = call.update.data;
  if (update != nullptr) update += token * call.update.stride;
#pragma unroll
  for (uint32_t j = 0; j < kHeld; ++j) {
    const uint32_t i = threadIdx.x + j * kNormThreads;
    row[j] = 0.0f;
    if (i >= columns) continue;
    if (call.weight != nullptr) weights[j] = call.weight[i];
    row[j] = ReadLate(x + i);
    if (update != nullptr) row[j] += ReadLate(update + i);
  }
  if (real) FetchShare(next.weights, next.bytes);  // behind the loads, which must not wait for it
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kHeld; ++j) {
    const uint32_t i = threadIdx.x + j * kNormThreads;
    if (i < columns && update != nullptr && real) x[i] = row[j];
    sum += row[j];
    squares = fmaf(row[j], row[j], squares);
  }
  if (call.y.data == nullptr) return;
  const auto count = static_cast<float>(columns);
  float mean = 0.0f;
  if (call.bias != nullptr) {
    mean = BlockSum<kNormThreads>(sum, scratch) / count;
    squares = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kHeld; ++j) {
      const float d = threadIdx.x + j * kNormThreads < columns ? row[j] - mean : 0.0f;
      squares = fmaf(d, d, squares);
    }
  }
  const float scale = 1.0f / sqrtf(BlockSum<kNormThreads>(squares, scratch) / count + call.eps);
#pragma unroll
  for (uint32_t j = 0; j < kHeld; ++j) {
    const uint32_t i = threadIdx.x + j * kNormThreads;
    if (i >= call.y.columns) continue;
    float value = 0.0f;
    if (i < columns) {
      value = (row[j] - mean) * scale * weights[j];
      if (call.bias != nullptr) value += call.bias[i];
    }
    if (real) StoreOperand(call.y, token, i, value);
  }
}

template <uint32_t kHeld>
__global__ void __launch_bounds__(kNormThreads, kHeld < kMostHeld ? 2 : 1)
    AddNormKernel(const __grid_constant__ AddNormCall call, NextWeights next, uint32_t rehearsed) {
  __shared__ float scratch[kNormThreads / 32];
  AllowNextKernel();
  RunRehearsed(rehearsed, [&](bool real) { AddNormRow<kHeld>(call, next, scratch, real); });
}

// --- row preparation ---------------------------------------------------------------------------

constexpr int kPrepareWarps = 8;

__host__ __device__ bool ByHead(const PreparedPart& part) {
  return part.norm != DeviceHeadNorm::kNone || part.padded != part.width || part.head_stride != 0;
}

// Numbers that a warp prepares at a time where heads need no norm.
__host__ __device__ uint32_t FlatNumbers(const PreparedPart& part) {
  return part.channel < 0 ? 32 : 128;
}

__host__ __device__ uint32_t TasksOf(const PreparedPart& part) {
  if (ByHead(part)) return part.heads;
  return (part.heads * part.width + FlatNumbers(part) - 1) / FlatNumbers(part);
}

// Where the inputs of a token's convolution are: its own segment, the tail, the base.
template <typename Row>
struct ConvolutionInputs {
  const DeviceConvolution* convolution;
  const DeviceSegment* segment;
  const Row* tail;    // [C, padded channels]
  const Row* before;  // [W - 1, padded channels]; null: zeros
  uint32_t token;     // in the step
  uint32_t start;     // place of the segment's first token

  // Of a token of this step.
  __device__ float Now(uint32_t which, uint32_t channel) const {
    const DeviceConvolution& c = *convolution;
    float x = ReadLate(c.x + static_cast<size_t>(which) * c.x_stride + channel);
    if (c.gate != nullptr) {
      x *= ReadLate(c.gate + static_cast<size_t>(which) * c.gate_stride + channel);
    }
    return AsStored(static_cast<const Row*>(nullptr), x);
  }

  // Of the token `back` before this one.
  __device__ float At(uint32_t back, uint32_t channel) const {
    const uint32_t index = token - segment->first_token;
    const DeviceConvolution& c = *convolution;
    if (back <= index) return Now(token - back, channel);
    const uint32_t older = back - index;  // before the segment
    if (older <= start) return Load(tail + (start - older) * c.weight_stride + channel);
    if (before == nullptr) return 0.0f;
    return Load(before + (c.window - 1 + start - older) * c.weight_stride + channel);
  }
};

template <typename Row>
__device__ ConvolutionInputs<Row> InputsOf(const PrepareCall& call, const DeviceSegment& segment,
                                           uint32_t token) {
  const DeviceConvolution& c = call.convolution;
  const auto* base = reinterpret_cast<const Row*>(
      call.slots.bases + segment.base_in * call.slots.base_stride + c.before_offset);
  return {.convolution = &c,
          .segment = &segment,
          .tail = reinterpret_cast<const Row*>(
              call.slots.tails + segment.tail * call.slots.tail_stride + c.tail_offset),
          .before = segment.position < call.fold_interval ? nullptr : base,
          .token = token,
          .start = static_cast<uint32_t>(segment.position % call.fold_interval)};
}

// The state that the only token of a segment leaves: its row, and at a border the last inputs.
template <typename Row>
__device__ void KeepToken(const PrepareCall& call, const ConvolutionInputs<Row>& inputs,
                          uint32_t channel, float x) {
  const DeviceConvolution& c = call.convolution;
  Store(const_cast<Row*>(inputs.tail) + inputs.start * c.weight_stride + channel, x);
  if (inputs.start + 1 != call.fold_interval) return;
  auto* after = reinterpret_cast<Row*>(
      call.slots.bases + inputs.segment->base_out * call.slots.base_stride + c.before_offset);
  for (uint32_t j = 0; j + 1 < c.window; ++j) {
    Store(after + j * c.weight_stride + channel, inputs.At(c.window - 2 - j, channel));
  }
}

template <typename Row>
__device__ float Convolve(const PrepareCall& call, const ConvolutionInputs<Row>& inputs,
                          uint32_t channel) {
  const DeviceConvolution& c = call.convolution;
  float sum = c.bias[channel];
  for (uint32_t j = 0; j < c.window; ++j) {
    sum = fmaf(c.weight[j * c.weight_stride + channel], inputs.At(c.window - 1 - j, channel), sum);
  }
  return c.silu ? Function(Activation::kSilu, sum) : sum;
}

// The convolution of a segment's only token with a window of four: every load at once.
template <typename Row>
struct FourInputs {
  const Row* rows[3];  // of the tokens before, oldest first; null: zeros

  __device__ FourInputs(const PrepareCall& call, const ConvolutionInputs<Row>& inputs) {
    const DeviceConvolution& c = call.convolution;
#pragma unroll
    for (uint32_t j = 0; j < 3; ++j) {
      const uint32_t back = 3 - j;
      rows[j] = nullptr;
      if (back <= inputs.start) {
        rows[j] = inputs.tail + (inputs.start - back) * c.weight_stride;
      } else if (inputs.before != nullptr) {
        rows[j] = inputs.before + (3 + inputs.start - back) * c.weight_stride;
      }
    }
  }
};

__device__ inline float4 Fused(float4 a, float4 b, float4 c) {
  return {fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w)};
}

// Whether PrepareConvolved does a part: four channels at a time, with nothing after the convolution
// but a function and a factor.
__device__ bool InFours(const PrepareCall& call, const PreparedPart& part) {
  const DeviceConvolution& c = call.convolution;
  const auto aligned = [](const float* x, uint32_t stride) {
    return reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride % 4 == 0;
  };
  return part.channel >= 0 && part.channel % 4 == 0 && call.rows.single && c.window == 4 &&
         c.gate == nullptr && part.bias == nullptr && part.rate == nullptr &&
         part.multiplier == nullptr && part.heads * part.width % 4 == 0 &&
         aligned(c.x, c.x_stride) && aligned(part.y, part.y_stride);
}

// PrepareNumbers for such a part: four numbers a lane, and every load at once.
template <typename Row>
__device__ void PrepareConvolved(const PrepareCall& call, const PreparedPart& part, uint32_t first,
                                 uint32_t count, uint32_t token,
                                 const ConvolutionInputs<Row>& inputs, bool real) {
  const DeviceConvolution& c = call.convolution;
  const uint32_t i = threadIdx.x % 32 * 4, channel = part.channel + first + i;
  if (i >= count) return;
  const FourInputs<Row> four(call, inputs);
  float4 weights[4], in[4];
  const float4 bias = LoadFour(c.bias + channel);
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) weights[j] = LoadFour(c.weight + j * c.weight_stride + channel);
#pragma unroll
  for (uint32_t j = 0; j < 3; ++j) {
    in[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (four.rows[j] != nullptr) in[j] = LoadFour(four.rows[j] + channel);
  }
  const Row* const stored = nullptr;
  const float* now = c.x + static_cast<size_t>(token) * c.x_stride + channel;
  const float4 x = ReadLate(reinterpret_cast<const float4*>(now));
  in[3] = {AsStored(stored, x.x), AsStored(stored, x.y), AsStored(stored, x.z),
           AsStored(stored, x.w)};
  float4 y[1] = {bias};
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) y[0] = Fused(weights[j], in[j], y[0]);
  if (c.silu) Apply(Activation::kSilu, y);
  Apply(part.f, y);
  y[0].x *= part.scale, y[0].y *= part.scale, y[0].z *= part.scale, y[0].w *= part.scale;
  KeepInRegisters(y[0]);
  if (!real) return;
  StoreFour(part.y + static_cast<size_t>(token) * part.y_stride + first + i, y[0]);
  StoreFour(const_cast<Row*>(inputs.tail) + inputs.start * c.weight_stride + channel, in[3]);
  if (inputs.start + 1 != call.fold_interval) return;
  auto* after = reinterpret_cast<Row*>(
      call.slots.bases + inputs.segment->base_out * call.slots.base_stride + c.before_offset);
#pragma unroll
  for (uint32_t k = 0; k < 3; ++k) StoreFour(after + k * c.weight_stride + channel, in[k + 1]);
}

// What a warp prepares: numbers `first` to first + count of a part, `padded` with zeros.
struct PrepareTask {
  uint32_t first, count, padded;
  uint32_t from, to;  // columns of x and y
};

__device__ PrepareTask TaskOf(const PreparedPart& part, uint32_t task) {
  if (ByHead(part)) {
    const uint32_t first = task * part.width;
    return {first, part.width, part.padded, part.head_stride == 0 ? first : task * part.head_stride,
            task * part.padded};
  }
  const uint32_t first = task * FlatNumbers(part);
  const uint32_t count = min(FlatNumbers(part), part.heads * part.width - first);
  return {first, count, count, first, first};
}

template <typename Row>
__device__ float PreparedNumber(const PrepareCall& call, const PreparedPart& part,
                                const PrepareTask& task, uint32_t i,
                                const ConvolutionInputs<Row>& inputs) {
  const uint32_t number = task.first + i;
  const float* at = part.x + static_cast<size_t>(inputs.token) * part.x_stride + task.from + i;
  float x = part.channel < 0 ? ReadLate(at) : Convolve(call, inputs, part.channel + number);
  if (part.multiplier != nullptr) x *= part.multiplier[number];
  if (part.bias != nullptr) x += part.bias[number];
  x = Function(part.f, x);
  if (part.rate != nullptr) x *= part.rate[number];
  return fminf(fmaxf(x, part.low), part.high);
}

// The factor of a head's numbers after their norm; `sum` is of the lane's numbers or squares.
__device__ float NormScale(const PreparedPart& part, float sum) {
  if (part.norm == DeviceHeadNorm::kNone) return part.scale;
  sum = WarpSum(sum);
  switch (part.norm) {
    case DeviceHeadNorm::kL2:
      return part.scale / sqrtf(sum + part.norm_eps);
    case DeviceHeadNorm::kRms:
      return part.scale / sqrtf(sum / static_cast<float>(part.width) + part.norm_eps);
    case DeviceHeadNorm::kSumOfPhi:
      return part.scale / (sum + 1e-4f);
    default:
      return sum == 0.0f ? 0.0f : part.scale / sum;
  }
}

// kHeld: numbers of a lane. As few as a task needs: each has its copy of the code.
template <typename Row, int kHeldNumbers>
__device__ void PrepareNumbers(const PrepareCall& call, const PreparedPart& part,
                               const PrepareTask& task, const ConvolutionInputs<Row>& inputs,
                               bool real) {
  const uint32_t lane = threadIdx.x % 32;
  float values[kHeldNumbers];
  float sum = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kHeldNumbers; ++j) {
    const uint32_t i = lane + 32 * j;
    values[j] = 0.0f;
    if (i >= task.count) continue;
    const float x = PreparedNumber(call, part, task, i, inputs);
    values[j] = x;
    sum = AddsUp(part.norm) ? sum + x : fmaf(x, x, sum);
  }
  const float scale = NormScale(part, sum);
  if (!real) return;
  // After all loads, which stores would hold up.
  if (call.rows.single && part.channel >= 0) {
    for (uint32_t i = lane; i < task.count; i += 32) {
      const uint32_t channel = part.channel + task.first + i;
      KeepToken(call, inputs, channel, inputs.At(0, channel));
    }
  }
  float* y = part.y + static_cast<size_t>(inputs.token) * part.y_stride + task.to;
#pragma unroll
  for (uint32_t j = 0; j < kHeldNumbers; ++j) {
    const uint32_t i = lane + 32 * j;
    if (i >= task.padded) continue;
    float number = values[j] * scale;
    if (part.norm_weight != nullptr && i < task.count) number *= part.norm_weight[i];
    y[i] = number;
  }
}

template <typename Row>
__device__ void PreparePart(const PrepareCall& call, const PreparedPart& part, uint32_t index,
                            uint32_t token, const DeviceSegment& segment, bool real) {
  const PrepareTask task = TaskOf(part, index);
  const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, segment, token);
  if (!ByHead(part) && InFours(call, part)) {
    return PrepareConvolved(call, part, task.first, task.count, token, inputs, real);
  }
  if (max(task.count, task.padded) <= 128) {
    return PrepareNumbers<Row, 4>(call, part, task, inputs, real);
  }
  PrepareNumbers<Row, kMostPreparedWidth / 32>(call, part, task, inputs, real);
}

// The warp's task, of the tokens that the grid's rows share out.
template <typename Row>
__device__ void PrepareTokens(const PrepareCall& call, const PreparedPart& part, uint32_t task,
                              bool real) {
  for (uint32_t token = blockIdx.y; token < call.rows.tokens; token += gridDim.y) {
    const uint32_t index = call.rows.single ? token : call.rows.segment_of[token];
    const DeviceSegment& segment = call.rows.segments[index];
    if (segment.tokens != 0) PreparePart<Row>(call, part, task, token, segment, real);
    if (!real) return;
  }
}

template <typename Row>
__device__ void PrepareWarp(const PrepareCall& call, bool real) {
  uint32_t task = blockIdx.x * kPrepareWarps + threadIdx.x / 32;
  for (uint32_t p = 0; p < call.part_count; ++p) {
    const uint32_t tasks = TasksOf(call.parts[p]);
    if (task < tasks) return PrepareTokens<Row>(call, call.parts[p], task, real);
    task -= tasks;
  }
}

// Few registers, so that blocks find room beside those of a sum's kernel.
template <typename Row>
__global__ void __maxnreg__(56)
    PrepareKernel(const __grid_constant__ PrepareCall call, uint32_t rehearsed) {
  AllowNextKernel();
  RunRehearsed(rehearsed, [&](bool real) { PrepareWarp<Row>(call, real); });
}

// The inputs before a border of the segment, of which some may be older than it.
template <typename Row>
__device__ void KeepInputsBefore(const PrepareCall& call, const DeviceSegment& segment,
                                 uint64_t border, uint32_t channel) {
  const DeviceConvolution& c = call.convolution;
  const auto last = segment.first_token + static_cast<uint32_t>(border - segment.position) - 1;
  const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, segment, last);
  const uint32_t slot = BaseAfter(call.rows, segment, last);
  auto* after =
      reinterpret_cast<Row*>(call.slots.bases + slot * call.slots.base_stride + c.before_offset);
  for (uint32_t j = 0; j + 1 < c.window; ++j) {
    Store(after + j * c.weight_stride + channel, inputs.At(c.window - 2 - j, channel));
  }
}

// The same for each border before the last one that has a base of its own.
template <typename Row>
__device__ void KeepInputsWithin(const PrepareCall& call, const DeviceSegment& segment,
                                 uint64_t last_border, uint32_t channel) {
  const uint64_t chunk = call.fold_interval;
  const uint64_t first = (segment.position / chunk + 1) * chunk;
  for (uint64_t border = first; border < last_border; border += chunk) {
    const uint64_t token = segment.first_token + (border - segment.position) - 1;
    if (call.rows.fold_bases[token] == segment.base_out) continue;
    KeepInputsBefore<Row>(call, segment, border, channel);
  }
}

// The convolution's state after segments of any length. A thread owns a channel of a segment: it
// reads what is needed of the old tail and base before it writes the new ones.
template <typename Row>
__global__ void KeepInputsKernel(const __grid_constant__ PrepareCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceConvolution& c = call.convolution;
  const DeviceSegment& segment = call.rows.segments[blockIdx.y];
  const uint32_t channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (segment.tokens == 0 || channel >= c.channels) return;
  const uint64_t end = segment.position + segment.tokens;
  const uint64_t border = end / call.fold_interval * call.fold_interval;
  auto* tail = reinterpret_cast<Row*>(call.slots.tails + segment.tail * call.slots.tail_stride +
                                      c.tail_offset);
  if (border > segment.position) {
    if (call.rows.fold_bases != nullptr) KeepInputsWithin<Row>(call, segment, border, channel);
    KeepInputsBefore<Row>(call, segment, border, channel);
  }
  const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, segment, segment.first_token);
  for (uint64_t position = max(border, segment.position); position < end; ++position) {
    const auto token = static_cast<uint32_t>(segment.first_token + (position - segment.position));
    Store(tail + (position - border) * c.weight_stride + channel, inputs.Now(token, channel));
  }
}

__global__ void RotateKernel(RotateCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= call.heads * call.half) return;
  const DeviceSegment& segment = call.rows.segments[call.rows.segment_of[token]];
  if (segment.tokens == 0) return;
  const auto position = static_cast<float>(segment.position + token - segment.first_token);
  const float angle = position * call.frequencies[i % call.half];
  const float cosine = cosf(angle) * call.amplitude, sine = sinf(angle) * call.amplitude;
  float* x = call.x.data + token * call.x.stride + i / call.half * call.head_stride + i % call.half;
  const float first = x[0], second = x[call.half];
  x[0] = fmaf(first, cosine, -(second * sine));
  x[call.half] = fmaf(second, cosine, first * sine);
}

// --- row finish --------------------------------------------------------------------------------

// Four neighbours at a time: heads, strides and groups are multiples of four (LaunchFinish).
constexpr uint32_t kHeldFours = 4;

__device__ float& At(float4& x, int i) { return reinterpret_cast<float*>(&x)[i]; }

template <int kThreads>
__device__ void FinishGroup(const FinishCall& call, const NextWeights& next, float* scratch,
                            bool real) {
  const uint32_t columns = call.heads * call.width;
  const uint32_t group = kThreads == 32 ? blockIdx.x * 4 + threadIdx.x / 32 : blockIdx.x;
  const uint32_t token = blockIdx.y, first = group * call.norm_width;
  const uint32_t thread = kThreads == 32 ? threadIdx.x % 32 : threadIdx.x;
  if (first >= columns) {
    if (real) FetchShare(next.weights, next.bytes);
    return;
  }
  const uint32_t count = min(call.norm_width, columns - first);
  float4 row[kHeldFours], gates[kHeldFours], weights[kHeldFours];
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = (thread + j * kThreads) * 4;
    weights[j] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (i >= count || call.weight == nullptr) continue;
    const uint32_t column =
        call.weight_period == columns ? first + i : (first + i) % call.weight_period;
    weights[j] = *reinterpret_cast<const float4*>(call.weight + column);
  }
  const float* o = call.o.data + token * call.o.stride;
  const float* gate = call.gate.data;
  if (gate != nullptr) gate += token * call.gate.stride;
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = (thread + j * kThreads) * 4;
    uint32_t column = first + i;
    row[j] = gates[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (i >= count) continue;
    if (gate != nullptr) gates[j] = ReadLate(reinterpret_cast<const float4*>(gate + column));
    if (call.padded != call.width) {
      column = column / call.width * call.padded + column % call.width;
    }
    row[j] = ReadLate(reinterpret_cast<const float4*>(o + column));
  }
  if (real) FetchShare(next.weights, next.bytes);
  Apply(call.f, row);
  if (gate != nullptr) Apply(call.gate_f, gates);
  float squares = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float& x = At(row[j], k);
      if (call.order != FinishOrder::kNormThenGate && gate != nullptr) x *= At(gates[j], k);
      if ((thread + j * kThreads) * 4 < count) squares = fmaf(x, x, squares);
    }
  }
  float scale = 1.0f;
  if (call.order != FinishOrder::kGateOnly) {
    squares = kThreads == 32 ? WarpSum(squares) : BlockSum<kThreads>(squares, scratch);
    scale = 1.0f / sqrtf(squares / static_cast<float>(call.norm_width) + call.eps);
  }
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = (thread + j * kThreads) * 4;
    if (i >= count) continue;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float y = At(row[j], k) * scale * At(weights[j], k);
      if (call.order == FinishOrder::kNormThenGate && gate != nullptr) y *= At(gates[j], k);
      At(row[j], k) = y;
    }
    KeepInRegisters(row[j]);
    if (real) StoreOperandFour(call.y, token, first + i, row[j]);
  }
  if (!real || first + call.norm_width < columns) return;
  for (uint32_t i = columns + thread; i < call.y.columns; i += kThreads) {
    StoreOperand(call.y, token, i, 0.0f);
  }
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads == 32 ? 128 : kThreads, kThreads == 32 ? 4 : 2)
    FinishKernel(const __grid_constant__ FinishCall call, NextWeights next, uint32_t rehearsed) {
  __shared__ float scratch[kThreads / 32];
  AllowNextKernel();
  RunRehearsed(rehearsed, [&](bool real) { FinishGroup<kThreads>(call, next, scratch, real); });
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

template <typename Row>
void LaunchPrepareRows(const PrepareCall& call, const LaunchContext& context) {
  uint32_t tasks = 0;
  for (uint32_t p = 0; p < call.part_count; ++p) tasks += TasksOf(call.parts[p]);
  constexpr uint32_t kResident = 4;  // blocks of a processor
  const uint32_t blocks = (tasks + kPrepareWarps - 1) / kPrepareWarps;
  const uint32_t most = kResident * static_cast<uint32_t>(context.processors) / blocks;
  const dim3 grid(blocks, std::min(call.rows.tokens, std::max(most, 1u)));
  context.Run(PrepareKernel<Row>, grid, kPrepareWarps * 32, 0, call,
              context.RehearsedBlocks(grid.x * grid.y));
  if (call.rows.single || call.convolution.window == 0) return;
  context.Run(KeepInputsKernel<Row>,
              dim3((call.convolution.channels + 127) / 128, call.rows.segment_count), 128, 0, call);
}

}  // namespace

void LaunchEmbed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
                 const uint32_t* last_tokens, FloatMatrix x, const LaunchContext& context) {
  context.Run(EmbedKernel, dim3(rows.tokens), kEmbedThreads, 0, table, ids, rows, last_tokens, x);
}

void LaunchAddNorm(const AddNormCall& call, const NextWeights& next, const LaunchContext& context) {
  if (!call.plain()) return LaunchResidual(call, context);
  static_assert(kMostNormedWidth == kMostHeld * kNormThreads);
  if (call.x.columns > kMostNormedWidth) context.Check(cudaErrorInvalidValue);
  const auto rows = static_cast<uint32_t>(call.x.rows);
  const bool few = call.x.columns <= kMostHeld / 2 * kNormThreads;
  context.Run(few ? AddNormKernel<kMostHeld / 2> : AddNormKernel<kMostHeld>, dim3(rows),
              kNormThreads, 0, call, next, context.RehearsedBlocks(rows));
}

void LaunchPrepare(const PrepareCall& call, bool fp32_rows, const LaunchContext& context) {
  if (fp32_rows) return LaunchPrepareRows<float>(call, context);
  LaunchPrepareRows<bf16>(call, context);
}

void LaunchRotate(const RotateCall& call, const LaunchContext& context) {
  const uint32_t pairs = call.heads * call.half;
  context.Run(RotateKernel, dim3((pairs + 127) / 128, call.rows.tokens), 128, 0, call);
}

void LaunchFinish(const FinishCall& call, const NextWeights& next, const LaunchContext& context) {
  const uint32_t groups = (call.heads * call.width + call.norm_width - 1) / call.norm_width;
  const auto rows = static_cast<uint32_t>(call.o.rows);
  const auto fours = [](auto x) { return x % 4 == 0; };
  const bool aligned = fours(call.width) && fours(call.padded) && fours(call.norm_width) &&
                       fours(call.o.stride) && fours(call.gate.stride) &&
                       reinterpret_cast<uintptr_t>(call.gate.data) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(call.o.data) % 16 == 0;
  if (call.norm_width <= 512) {
    context.Run(aligned ? FinishKernel<32> : FinishAnyKernel<32>, dim3((groups + 3) / 4, rows), 128,
                0, call, next, context.RehearsedBlocks((groups + 3) / 4 * rows));
  } else {
    const bool held = aligned && call.norm_width <= kHeldFours * 4 * 512;
    context.Run(held ? FinishKernel<512> : FinishAnyKernel<512>, dim3(groups, rows), 512, 0, call,
                next, context.RehearsedBlocks(groups * rows));
  }
}

void LaunchGatherRows(const GatherCall& call, const LaunchContext& context) {
  if (call.count != 0) context.Run(GatherKernel, dim3(call.count), 256, 0, call);
}

}  // namespace rivulet::cuda
