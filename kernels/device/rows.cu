// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What happens to a token's row between products: embedding, residual sum and norm, row preparation
// (convolution, activations, norms of heads, gates), row finish (norm and gate).
//
// Bytes expected: each matrix once; for the convolution W - 1 rows of the tail read and one
// written.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"

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

// Numbers of a row that a thread holds, so that all its loads run at once.
constexpr uint32_t kHeld = 16;

__global__ void __launch_bounds__(kNormThreads)
    AddNormKernel(const __grid_constant__ AddNormCall call) {
  __shared__ float scratch[kNormThreads / 32];
  AllowNextKernel();
  const uint32_t token = blockIdx.x, columns = static_cast<uint32_t>(call.x.columns);
  float weights[kHeld], row[kHeld];
#pragma unroll
  for (uint32_t j = 0; j < kHeld; ++j) {
    const uint32_t i = threadIdx.x + j * kNormThreads;
    if (call.weight != nullptr && i < columns) weights[j] = call.weight[i];
  }
  AwaitLastKernel();
  float* x = call.x.data + token * call.x.stride;
  const float* update = call.update.data;
  if (update != nullptr) update += token * call.update.stride;
#pragma unroll
  for (uint32_t j = 0; j < kHeld; ++j) {
    const uint32_t i = threadIdx.x + j * kNormThreads;
    row[j] = 0.0f;
    if (i >= columns) continue;
    row[j] = x[i];
    if (update != nullptr) row[j] += update[i];
  }
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kHeld; ++j) {
    const uint32_t i = threadIdx.x + j * kNormThreads;
    if (i < columns && update != nullptr) x[i] = row[j];
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
    StoreOperand(call.y, token, i, value);
  }
}

// --- row preparation ---------------------------------------------------------------------------

// Numbers that a warp prepares at a time where heads need no norm.
constexpr uint32_t kFlatNumbers = 64;
constexpr uint32_t kMostNumbers = 512;  // of a head: kMaxKeyDim
constexpr int kPrepareWarps = 8;

__host__ __device__ bool ByHead(const PreparedPart& part) {
  return part.norm != DeviceHeadNorm::kNone || part.padded != part.width || part.head_stride != 0;
}

__host__ __device__ uint32_t TasksOf(const PreparedPart& part) {
  if (ByHead(part)) return part.heads;
  return (part.heads * part.width + kFlatNumbers - 1) / kFlatNumbers;
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

  // Of the token `back` before this one.
  __device__ float At(uint32_t back, uint32_t channel) const {
    const uint32_t index = token - segment->first_token;
    const DeviceConvolution& c = *convolution;
    if (back <= index) {
      return AsStored(static_cast<const Row*>(nullptr),
                      c.x[static_cast<size_t>(token - back) * c.x_stride + channel]);
    }
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

// What one channel of such a convolution reads.
struct FourNumbers {
  float in[4], weight[4], bias;

  template <typename Row>
  __device__ void Take(const PrepareCall& call, const FourInputs<Row>& four, const float* x,
                       uint32_t channel) {
    const DeviceConvolution& c = call.convolution;
    bias = c.bias[channel];
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) weight[j] = c.weight[j * c.weight_stride + channel];
#pragma unroll
    for (uint32_t j = 0; j < 3; ++j) {
      in[j] = 0.0f;
      if (four.rows[j] != nullptr) in[j] = Load(four.rows[j] + channel);
    }
    in[3] = AsStored(static_cast<const Row*>(nullptr), x[channel]);
  }

  __device__ float Sum() const {
    float sum = bias;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) sum = fmaf(weight[j], in[j], sum);
    return sum;
  }
};

// PrepareTask for parts that are convolved so and need no norm: two numbers a lane.
template <typename Row>
__device__ void PrepareConvolved(const PrepareCall& call, const PreparedPart& part, uint32_t first,
                                 uint32_t count, uint32_t token,
                                 const ConvolutionInputs<Row>& inputs) {
  const DeviceConvolution& c = call.convolution;
  const uint32_t lane = threadIdx.x % 32;
  const FourInputs<Row> four(call, inputs);
  const float* x = c.x + static_cast<size_t>(token) * c.x_stride;
  FourNumbers numbers[2];
#pragma unroll
  for (uint32_t j = 0; j < 2; ++j) {
    // The last lanes take the last number as well, so that no load waits for a branch.
    const uint32_t i = min(lane + 32 * j, count - 1);
    numbers[j].Take(call, four, x, part.channel + first + i);
  }
#pragma unroll
  for (uint32_t j = 0; j < 2; ++j) {
    const uint32_t i = lane + 32 * j, channel = part.channel + first + i;
    if (i >= count) continue;
    float y = numbers[j].Sum();
    if (c.silu) y = Function(Activation::kSilu, y);
    part.y[static_cast<size_t>(token) * part.y_stride + first + i] =
        Function(part.f, y) * part.scale;
    const float(&in)[4] = numbers[j].in;
    Store(const_cast<Row*>(inputs.tail) + inputs.start * c.weight_stride + channel, in[3]);
    if (inputs.start + 1 != call.fold_interval) continue;
    auto* after = reinterpret_cast<Row*>(
        call.slots.bases + inputs.segment->base_out * call.slots.base_stride + c.before_offset);
#pragma unroll
    for (uint32_t k = 0; k < 3; ++k) Store(after + k * c.weight_stride + channel, in[k + 1]);
  }
}

template <typename Row>
__device__ void PrepareTask(const PrepareCall& call, const PreparedPart& part, uint32_t task,
                            uint32_t token, const DeviceSegment& segment) {
  const uint32_t lane = threadIdx.x % 32;
  const bool by_head = ByHead(part);
  const uint32_t first = task * (by_head ? part.width : kFlatNumbers);
  const uint32_t count = by_head ? part.width : min(kFlatNumbers, part.heads * part.width - first);
  const uint32_t from = part.head_stride == 0 ? first : task * part.head_stride;
  const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, segment, token);
  if (!by_head && part.channel >= 0 && call.rows.single && call.convolution.window == 4 &&
      part.multiplier == nullptr && part.bias == nullptr && part.rate == nullptr) {
    return PrepareConvolved(call, part, first, count, token, inputs);
  }
  float values[kMostNumbers / 32];
  float sum = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kMostNumbers / 32; ++j) {
    const uint32_t i = lane + 32 * j;
    values[j] = 0.0f;
    if (i >= count) continue;
    float x = part.channel < 0 ? part.x[static_cast<size_t>(token) * part.x_stride + from + i]
                               : Convolve(call, inputs, part.channel + first + i);
    if (part.multiplier != nullptr) x *= part.multiplier[first + i];
    if (part.bias != nullptr) x += part.bias[first + i];
    x = Function(part.f, x);
    if (part.rate != nullptr) x *= part.rate[first + i];
    x = fminf(fmaxf(x, part.low), part.high);
    values[j] = x;
    sum = AddsUp(part.norm) ? sum + x : fmaf(x, x, sum);
  }
  float scale = part.scale;
  if (part.norm != DeviceHeadNorm::kNone) {
    sum = WarpSum(sum);
    if (part.norm == DeviceHeadNorm::kL2) {
      scale = scale / sqrtf(sum + part.norm_eps);
    } else if (part.norm == DeviceHeadNorm::kRms) {
      scale = scale / sqrtf(sum / static_cast<float>(part.width) + part.norm_eps);
    } else if (part.norm == DeviceHeadNorm::kSumOfPhi) {
      scale = scale / (sum + 1e-4f);
    } else {
      scale = sum == 0.0f ? 0.0f : scale / sum;
    }
  }
  // After all loads, which stores would hold up.
  if (call.rows.single && part.channel >= 0) {
    for (uint32_t i = lane; i < count; i += 32) {
      const uint32_t channel = part.channel + first + i;
      KeepToken(call, inputs, channel, inputs.At(0, channel));
    }
  }
  const uint32_t to = by_head ? task * part.padded : first;
  float* y = part.y + static_cast<size_t>(token) * part.y_stride + to;
#pragma unroll
  for (uint32_t j = 0; j < kMostNumbers / 32; ++j) {
    const uint32_t i = lane + 32 * j;
    if (i >= (by_head ? part.padded : count)) continue;
    float number = values[j] * scale;
    if (part.norm_weight != nullptr && i < count) number *= part.norm_weight[i];
    y[i] = number;
  }
}

template <typename Row>
__global__ void __launch_bounds__(kPrepareWarps * 32)
    PrepareKernel(const __grid_constant__ PrepareCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.y;
  const uint32_t index = call.rows.single ? token : call.rows.segment_of[token];
  const DeviceSegment& segment = call.rows.segments[index];
  if (segment.tokens == 0) return;
  uint32_t task = blockIdx.x * kPrepareWarps + threadIdx.x / 32;
  for (uint32_t p = 0; p < call.part_count; ++p) {
    const uint32_t tasks = TasksOf(call.parts[p]);
    if (task < tasks) return PrepareTask<Row>(call, call.parts[p], task, token, segment);
    task -= tasks;
  }
}

// The convolution's state after segments of any length. A thread owns a channel of a segment: it
// reads what is needed of the old tail before it writes the new one.
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
    const auto last = static_cast<uint32_t>(border - segment.position) - 1;  // before the border
    const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, segment, segment.first_token + last);
    auto* after = reinterpret_cast<Row*>(
        call.slots.bases + segment.base_out * call.slots.base_stride + c.before_offset);
    for (uint32_t j = 0; j + 1 < c.window; ++j) {
      Store(after + j * c.weight_stride + channel, inputs.At(c.window - 2 - j, channel));
    }
  }
  for (uint64_t position = max(border, segment.position); position < end; ++position) {
    const size_t token = segment.first_token + (position - segment.position);
    Store(tail + (position - border) * c.weight_stride + channel,
          c.x[token * c.x_stride + channel]);
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
  const float cosine = cosf(angle), sine = sinf(angle);
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
__global__ void __launch_bounds__(kThreads == 32 ? 128 : kThreads)
    FinishKernel(const __grid_constant__ FinishCall call) {
  __shared__ float scratch[kThreads / 32];
  AllowNextKernel();
  const uint32_t columns = call.heads * call.width;
  const uint32_t group = kThreads == 32 ? blockIdx.x * 4 + threadIdx.x / 32 : blockIdx.x;
  const uint32_t token = blockIdx.y, first = group * call.norm_width;
  const uint32_t thread = kThreads == 32 ? threadIdx.x % 32 : threadIdx.x;
  if (first >= columns) return;
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
  AwaitLastKernel();
  const float* o = call.o.data + token * call.o.stride;
  const float* gate = call.gate.data;
  if (gate != nullptr) gate += token * call.gate.stride;
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
    const uint32_t i = (thread + j * kThreads) * 4;
    uint32_t column = first + i;
    row[j] = gates[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (i >= count) continue;
    if (gate != nullptr) gates[j] = *reinterpret_cast<const float4*>(gate + column);
    if (call.padded != call.width) {
      column = column / call.width * call.padded + column % call.width;
    }
    row[j] = *reinterpret_cast<const float4*>(o + column);
  }
  float squares = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float& x = At(row[j], k);
      x = Function(call.f, x);
      if (gate != nullptr) At(gates[j], k) = Function(call.gate_f, At(gates[j], k));
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
    StoreOperandFour(call.y, token, first + i, row[j]);
  }
  if (first + call.norm_width < columns) return;
  for (uint32_t i = columns + thread; i < call.y.columns; i += kThreads) {
    StoreOperand(call.y, token, i, 0.0f);
  }
}

// The same for any widths, a number at a time.
template <int kThreads>
__global__ void __launch_bounds__(kThreads == 32 ? 128 : kThreads)
    FinishAnyKernel(const __grid_constant__ FinishCall call) {
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
  context.Run(PrepareKernel<Row>,
              dim3((tasks + kPrepareWarps - 1) / kPrepareWarps, call.rows.tokens),
              kPrepareWarps * 32, 0, call);
  if (call.rows.single || call.convolution.window == 0) return;
  context.Run(KeepInputsKernel<Row>,
              dim3((call.convolution.channels + 127) / 128, call.rows.segment_count), 128, 0, call);
}

}  // namespace

void LaunchEmbed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
                 const uint32_t* last_tokens, FloatMatrix x, const LaunchContext& context) {
  context.Run(EmbedKernel, dim3(rows.tokens), kEmbedThreads, 0, table, ids, rows, last_tokens, x);
}

void LaunchAddNorm(const AddNormCall& call, const LaunchContext& context) {
  if (call.x.columns > kHeld * kNormThreads) context.Check(cudaErrorInvalidValue);
  context.Run(AddNormKernel, dim3(static_cast<uint32_t>(call.x.rows)), kNormThreads, 0, call);
}

void LaunchPrepare(const PrepareCall& call, bool fp32_rows, const LaunchContext& context) {
  if (fp32_rows) return LaunchPrepareRows<float>(call, context);
  LaunchPrepareRows<bf16>(call, context);
}

void LaunchRotate(const RotateCall& call, const LaunchContext& context) {
  const uint32_t pairs = call.heads * call.half;
  context.Run(RotateKernel, dim3((pairs + 127) / 128, call.rows.tokens), 128, 0, call);
}

void LaunchFinish(const FinishCall& call, const LaunchContext& context) {
  const uint32_t groups = (call.heads * call.width + call.norm_width - 1) / call.norm_width;
  const auto rows = static_cast<uint32_t>(call.o.rows);
  const auto fours = [](auto x) { return x % 4 == 0; };
  const bool aligned = fours(call.width) && fours(call.padded) && fours(call.norm_width) &&
                       fours(call.o.stride) && fours(call.gate.stride) &&
                       reinterpret_cast<uintptr_t>(call.gate.data) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(call.o.data) % 16 == 0;
  if (call.norm_width <= 512) {
    context.Run(aligned ? FinishKernel<32> : FinishAnyKernel<32>, dim3((groups + 3) / 4, rows), 128,
                0, call);
  } else {
    const bool held = aligned && call.norm_width <= kHeldFours * 4 * 512;
    context.Run(held ? FinishKernel<512> : FinishAnyKernel<512>, dim3(groups, rows), 512, 0, call);
  }
}

void LaunchGatherRows(const GatherCall& call, const LaunchContext& context) {
  if (call.count != 0) context.Run(GatherKernel, dim3(call.count), 256, 0, call);
}

}  // namespace rivulet::cuda
