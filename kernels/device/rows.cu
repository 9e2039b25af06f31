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

__global__ void EmbedKernel(DeviceTable table, const uint32_t* ids, DeviceRows rows,
                            const uint32_t* last_tokens, FloatMatrix x) {
  // The first kernel of a step: when later ones begin, everything before the step has ended, so
  // they may read states and the step's description without waiting for each other.
  AwaitLastKernel();
  AllowNextKernel();
  const uint32_t token = blockIdx.x;
  uint32_t id = ids[token];
  if (id == UINT32_MAX) id = last_tokens[rows.segments[rows.segment_of[token]].tail];
  if (id >= table.vocab) id = 0;
  for (uint32_t i = threadIdx.x; i < table.width; i += blockDim.x) {
    x.data[token * x.stride + i] =
        TableNumber(table, static_cast<size_t>(id) * table.width + i) * table.multiplier;
  }
}

// --- residual sum and norm ---------------------------------------------------------------------

constexpr int kNormThreads = 512;

__global__ void __launch_bounds__(kNormThreads) AddNormKernel(AddNormCall call) {
  extern __shared__ float row[];
  __shared__ float scratch[kNormThreads / 32];
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, columns = static_cast<uint32_t>(call.x.columns);
  float* x = call.x.data + token * call.x.stride;
  float sum = 0.0f, squares = 0.0f;
  for (uint32_t i = threadIdx.x; i < columns; i += kNormThreads) {
    float value = x[i];
    if (call.update.data != nullptr) {
      value += call.update.data[token * call.update.stride + i];
      x[i] = value;
    }
    row[i] = value;
    sum += value;
    squares = fmaf(value, value, squares);
  }
  if (call.y.data == nullptr) return;
  const auto count = static_cast<float>(columns);
  float mean = 0.0f;
  if (call.bias != nullptr) {
    mean = BlockSum<kNormThreads>(sum, scratch) / count;
    squares = 0.0f;
    for (uint32_t i = threadIdx.x; i < columns; i += kNormThreads) {
      const float d = row[i] - mean;
      squares = fmaf(d, d, squares);
    }
  }
  const float scale = 1.0f / sqrtf(BlockSum<kNormThreads>(squares, scratch) / count + call.eps);
  for (uint32_t i = threadIdx.x; i < call.y.columns; i += kNormThreads) {
    float value = 0.0f;
    if (i < columns) {
      value = (row[i] - mean) * scale * call.weight[i];
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
  return part.norm != DeviceHeadNorm::kNone || part.padded != part.width;
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
  return c.silu ? Function(DeviceFunction::kSilu, sum) : sum;
}

template <typename Row>
__device__ void PrepareTask(const PrepareCall& call, const PreparedPart& part, uint32_t task,
                            uint32_t token, const DeviceSegment& segment) {
  const uint32_t lane = threadIdx.x % 32;
  const bool by_head = ByHead(part);
  const uint32_t first = task * (by_head ? part.width : kFlatNumbers);
  const uint32_t count = by_head ? part.width : min(kFlatNumbers, part.heads * part.width - first);
  const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, segment, token);
  float values[kMostNumbers / 32];
  float sum = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kMostNumbers / 32; ++j) {
    const uint32_t i = lane + 32 * j;
    values[j] = 0.0f;
    if (i >= count) continue;
    float x = part.channel < 0 ? part.x[static_cast<size_t>(token) * part.x_stride + first + i]
                               : Convolve(call, inputs, part.channel + first + i);
    if (part.bias != nullptr) x += part.bias[first + i];
    x = Function(part.f, x);
    if (part.rate != nullptr) x *= part.rate[first + i];
    x = fminf(fmaxf(x, part.low), part.high);
    values[j] = x;
    sum = part.norm == DeviceHeadNorm::kSum ? sum + x : fmaf(x, x, sum);
  }
  float scale = part.scale;
  if (part.norm != DeviceHeadNorm::kNone) {
    sum = WarpSum(sum);
    if (part.norm == DeviceHeadNorm::kL2) {
      scale = scale / sqrtf(sum + 1e-6f);
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
    if (i < (by_head ? part.padded : count)) y[i] = values[j] * scale;
  }
}

template <typename Row>
__global__ void __launch_bounds__(kPrepareWarps * 32)
    PrepareKernel(const __grid_constant__ PrepareCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.y;
  const DeviceSegment& segment = call.rows.segments[call.rows.segment_of[token]];
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

template <int kThreads>
__global__ void __launch_bounds__(kThreads == 32 ? 128 : kThreads)
    FinishKernel(const __grid_constant__ FinishCall call) {
  extern __shared__ float numbers[];
  __shared__ float scratch[kThreads / 32];
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t columns = call.heads * call.width;
  const uint32_t group = kThreads == 32 ? blockIdx.x * 4 + threadIdx.x / 32 : blockIdx.x;
  const uint32_t token = blockIdx.y, first = group * call.norm_width;
  const uint32_t thread = kThreads == 32 ? threadIdx.x % 32 : threadIdx.x;
  if (first >= columns) return;
  const uint32_t count = min(call.norm_width, columns - first);
  float* row = numbers + (kThreads == 32 ? threadIdx.x / 32 * call.norm_width : 0);
  float squares = 0.0f;
  for (uint32_t i = thread; i < count; i += kThreads) {
    const uint32_t column = first + i;
    float x =
        call.o
            .data[token * call.o.stride + column / call.width * call.padded + column % call.width];
    x = Function(call.f, x);
    if (call.order != FinishOrder::kNormThenGate && call.gate.data != nullptr) {
      x *= Function(DeviceFunction::kSilu, call.gate.data[token * call.gate.stride + column]);
    }
    row[i] = x;
    squares = fmaf(x, x, squares);
  }
  float scale = 1.0f;
  if (call.order != FinishOrder::kGateOnly) {
    squares = kThreads == 32 ? WarpSum(squares) : BlockSum<kThreads>(squares, scratch);
    scale = 1.0f / sqrtf(squares / static_cast<float>(call.norm_width) + call.eps);
  }
  for (uint32_t i = thread; i < count; i += kThreads) {
    const uint32_t column = first + i;
    float y = row[i] * scale;
    if (call.weight != nullptr) y *= call.weight[column % call.weight_period];
    if (call.order == FinishOrder::kNormThenGate && call.gate.data != nullptr) {
      y *= Function(DeviceFunction::kSilu, call.gate.data[token * call.gate.stride + column]);
    }
    StoreOperand(call.y, token, column, y);
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

constexpr int kGreedyThreads = 1024;

__global__ void __launch_bounds__(kGreedyThreads) GreedyKernel(GreedyCall call) {
  __shared__ float values[32];
  __shared__ uint32_t ids[32];
  __shared__ int broken;
  AllowNextKernel();
  AwaitLastKernel();
  const float* logits = call.logits.data + blockIdx.x * call.logits.stride;
  if (threadIdx.x == 0) broken = 0;
  __syncthreads();
  float best = -INFINITY;
  uint32_t id = UINT32_MAX;
  bool finite = true;
  const auto vocab = static_cast<uint32_t>(call.logits.columns);
  for (uint32_t i = threadIdx.x; i < vocab; i += kGreedyThreads) {
    const float x = logits[i];
    finite = finite && isfinite(x);
    if (x > best) best = x, id = i;
  }
  const auto better = [&](float x, uint32_t i) {
    if (x > best || (x == best && i < id)) best = x, id = i;
  };
  for (int step = 16; step > 0; step /= 2) {
    const float x = __shfl_xor_sync(0xffffffffu, best, step);
    const uint32_t i = __shfl_xor_sync(0xffffffffu, id, step);
    better(x, i);
  }
  if (!finite) broken = 1;
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = best, ids[threadIdx.x / 32] = id;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kGreedyThreads / 32; ++warp) better(values[warp], ids[warp]);
  if (id >= vocab) id = 0;
  call.results[blockIdx.x] = {id, broken == 0 ? 1u : 0u};
  const uint32_t slot = call.slots[blockIdx.x];
  if (slot != UINT32_MAX) call.last_tokens[slot] = id;
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
  context.Run(EmbedKernel, dim3(rows.tokens), 256, 0, table, ids, rows, last_tokens, x);
}

void LaunchAddNorm(const AddNormCall& call, const LaunchContext& context) {
  context.Run(AddNormKernel, dim3(static_cast<uint32_t>(call.x.rows)), kNormThreads,
              call.x.columns * sizeof(float), call);
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
  if (call.norm_width <= 512) {
    context.Run(FinishKernel<32>, dim3((groups + 3) / 4, rows), 128,
                4 * call.norm_width * sizeof(float), call);
  } else {
    context.Run(FinishKernel<512>, dim3(groups, rows), 512, call.norm_width * sizeof(float), call);
  }
}

void LaunchGatherRows(const GatherCall& call, const LaunchContext& context) {
  if (call.count != 0) context.Run(GatherKernel, dim3(call.count), 256, 0, call);
}

void LaunchSampleGreedy(const GreedyCall& call, const LaunchContext& context) {
  if (call.count != 0) context.Run(GreedyKernel, dim3(call.count), kGreedyThreads, 0, call);
}

}  // namespace rivulet::cuda
