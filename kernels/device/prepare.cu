// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Row preparation: what happens to a token's row between a product and a recurrence (convolution,
// activations, norms of heads, gates), and rotary positions.
//
// Bytes expected: each matrix once; for the convolution W - 1 rows of the tail read and one
// written.
#include <algorithm>

#include "kernels/device/activations.cuh"
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/convolution.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/prepared_parts.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {
namespace {

constexpr int kPrepareWarps = 8, kPrepareThreads = kPrepareWarps * 32;

// Numbers that a warp prepares at a time where heads need no norm.
__host__ __device__ uint32_t FlatNumbers(const PreparedPart& part) {
  return part.channel < 0 ? 32 : 128;
}

__host__ __device__ uint32_t TasksOf(const PreparedPart& part) {
  if (ByHead(part)) return part.heads;
  return (part.heads * part.width + FlatNumbers(part) - 1) / FlatNumbers(part);
}

enum class PartForm : uint32_t { kFours, kFlat, kOther };

__host__ __device__ PartForm FormOf(const PrepareCall& call, const PreparedPart& part) {
  if (InFours(call, part)) return PartForm::kFours;
  return !ByHead(part) && part.channel < 0 ? PartForm::kFlat : PartForm::kOther;
}

// What a warp need not find out for itself where there are many rows: reading a part's description
// takes it longer than reading a token's row. With few rows all of that comes before the wait.
struct PartPlan {
  uint32_t tasks[kMaxPreparedParts];  // of this part and those before it
  PartForm forms[kMaxPreparedParts];
};

PartPlan PlanOf(const PrepareCall& call) {
  PartPlan plan = {};
  uint32_t tasks = 0;
  for (uint32_t p = 0; p < kMaxPreparedParts; ++p) {
    if (p < call.part_count) {
      tasks += TasksOf(call.parts[p]);
      plan.forms[p] = FormOf(call, call.parts[p]);
    }
    plan.tasks[p] = tasks;
  }
  return plan;
}

// Of the token, or of another one if there is none. kSingle: as DeviceRows::single.
template <bool kSingle>
__device__ const DeviceSegment& SegmentAt(const PrepareCall& call, uint32_t token) {
  const uint32_t there = min(token, call.rows.tokens - 1);
  return call.rows.segments[kSingle ? there : SegmentOf(call.rows, there)];
}

// What a warp prepares of tokens `first`, first + step, ...: kTokens of them, whose loads run at
// once.
struct TokensOfWarp {
  uint32_t first, step;
  __device__ uint32_t operator[](uint32_t i) const { return first + i * step; }
};

// What a warp prepares: numbers `first` to first + count of a part, `padded` with zeros.
struct Task {
  uint32_t first, count, padded;
  uint32_t from, to;  // columns of x and y
};

__device__ Task TaskOf(const PreparedPart& part, uint32_t task) {
  if (ByHead(part)) {
    const uint32_t first = task * part.width;
    return {first, part.width, part.padded, part.head_stride == 0 ? first : task * part.head_stride,
            task * part.padded};
  }
  const uint32_t first = task * FlatNumbers(part);
  const uint32_t count = min(FlatNumbers(part), part.heads * part.width - first);
  return {first, count, count, first, first};
}

// What a part makes of its number, before any norm.
__device__ float FunctionOf(const PreparedPart& part, uint32_t number, float x) {
  if (part.multiplier != nullptr) x *= part.multiplier[number];
  if (part.bias != nullptr) x += part.bias[number];
  x = Function(part.f, x);
  if (part.rate != nullptr) x *= part.rate[number];
  return fminf(fmaxf(x, part.low), part.high);
}

template <typename Row>
__device__ float PreparedNumber(const PrepareCall& call, const PreparedPart& part, const Task& task,
                                uint32_t i, const ConvolutionInputs<Row>& inputs) {
  const uint32_t number = task.first + i;
  const float* at = part.x + static_cast<size_t>(inputs.token) * part.x_stride + task.from + i;
  const float x = part.channel < 0 ? ReadLate(at) * FactorOfToken(inputs.factors, inputs.token)
                                   : Convolve(call, inputs, part.channel + number);
  return FunctionOf(part, number, x);
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

// kHeldNumbers: of a lane. As few as a task needs: each has its copy of the code.
template <typename Row, int kHeldNumbers>
__device__ void PrepareNumbers(const PrepareCall& call, const PreparedPart& part, const Task& task,
                               const ConvolutionInputs<Row>& inputs, bool real) {
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

// What four numbers of a part become after their convolution, without those from `count` on.
__device__ float4 PreparedFour(const PreparedPart& part, uint32_t i, uint32_t count, float4 x) {
  float4 y[1] = {x};
  if (part.f == Activation::kSilu) Apply(Activation::kSilu, y);
  float sum = 0.0f;
  if (part.norm != DeviceHeadNorm::kNone && i < count) {
    for (const float number : {y[0].x, y[0].y, y[0].z, y[0].w}) {
      sum = AddsUp(part.norm) ? sum + number : fmaf(number, number, sum);
    }
  }
  const float scale = NormScale(part, sum);
  y[0].x *= scale, y[0].y *= scale, y[0].z *= scale, y[0].w *= scale;
  if (i >= count) return {0.0f, 0.0f, 0.0f, 0.0f};
  if (part.norm_weight == nullptr) return y[0];
  const float4 weight = LoadFour(part.norm_weight + i);
  return {y[0].x * weight.x, y[0].y * weight.y, y[0].z * weight.z, y[0].w * weight.w};
}

// PrepareNumbers for parts that are InFours: four numbers a lane, every load at once. What no
// kernel of this step writes is in registers before the wait; after it, the token's own row is
// read, in a prompt also rows of tokens before it, and the weights of a norm.
template <typename Row, uint32_t kTokens, bool kSingle, bool kPlain>
__device__ void PrepareConvolved(const PrepareCall& call, const float* factors,
                                 const PreparedPart& part, const Task& task, TokensOfWarp tokens,
                                 uint32_t rehearsed) {
  const DeviceConvolution& c = call.convolution;
  const uint32_t i = threadIdx.x % 32 * 4;
  const bool has_numbers = i < task.count;
  const uint32_t channel = part.channel + task.first + (has_numbers ? i : 0);
  using Convolved = ConvolvedToken<Row, kSingle>;
  Convolved convolved[kTokens];
  // A single token reads its segment in place: with a copy, steps of 16 and 32 rows were slower
  // (bench/results/device/h100/producer.txt).
  if constexpr (kTokens == 1) {
    const DeviceSegment& segment = SegmentAt<kSingle>(call, tokens[0]);
    convolved[0].LoadState(call, segment, tokens[0], channel);
  } else {
    DeviceSegment segments[kTokens];  // of all tokens before any of them is waited for
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) segments[t] = SegmentAt<kSingle>(call, tokens[t]);
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      convolved[t].LoadState(call, segments[t], tokens[t], channel);
    }
  }
  float4 weights[4];
  const float4 bias = LoadFour(c.bias + channel);
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) weights[j] = LoadFour(c.weight + j * c.weight_stride + channel);
  RunRehearsed(rehearsed, [&](bool real) {
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) convolved[t].LoadNow(call, factors, tokens[t], channel);
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      if (convolved[t].start == convolved[t].kNone) continue;
      const float4 in[4] = {ToFloats(convolved[t].before[0]), ToFloats(convolved[t].before[1]),
                            ToFloats(convolved[t].before[2]),
                            convolved[t].now.template Rounded<Row>()};
      float4 y[1] = {bias};
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) y[0] = Fused(weights[j], in[j], y[0]);
      if (kPlain || c.silu) Apply(Activation::kSilu, y);
      const float4 prepared = kPlain ? y[0] : PreparedFour(part, i, task.count, y[0]);
      KeepInRegisters(prepared);
      if (!real) continue;
      if (i < task.padded) {
        float* y = part.y + static_cast<size_t>(tokens[t]) * part.y_stride + task.to + i;
        __stcg(reinterpret_cast<float4*>(y), prepared);  // a plain store becomes four
      }
      if constexpr (kSingle) {
        if (has_numbers) KeepFours(call, convolved[t], tokens[t], channel, in);
      }
    }
  });
}

// PrepareNumbers for a part without convolution and norm: a number a lane.
template <uint32_t kTokens>
__device__ void PrepareFlat(const PrepareCall& call, const float* factors, const PreparedPart& part,
                            const Task& task, TokensOfWarp tokens, uint32_t rehearsed) {
  const uint32_t lane = threadIdx.x % 32;
  RunRehearsed(rehearsed, [&](bool real) {
    if (lane >= task.count) return;
    float x[kTokens], scales[kTokens];
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      x[t] = scales[t] = 0.0f;
      if (tokens[t] >= call.rows.tokens) continue;
      x[t] = ReadLate(part.x + static_cast<size_t>(tokens[t]) * part.x_stride + task.from + lane);
      scales[t] = FactorOfToken(factors, tokens[t]);
    }
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      const float y = FunctionOf(part, task.first + lane, scales[t] * x[t]) * part.scale;
      if (tokens[t] >= call.rows.tokens || !real) continue;
      part.y[static_cast<size_t>(tokens[t]) * part.y_stride + task.to + lane] = y;
    }
  });
}

// kWide: heads may be wider than kNarrow.
template <typename Row, bool kWide>
__device__ void PreparePart(const PrepareCall& call, const float* factors, const PreparedPart& part,
                            const Task& task, uint32_t token, bool real) {
  const uint32_t index = SegmentOf(call.rows, token);
  const DeviceSegment& segment = call.rows.segments[index];
  if (segment.tokens == 0) return;
  const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, factors, segment, token);
  if (!kWide || max(task.count, task.padded) <= kNarrow) {
    return PrepareNumbers<Row, kNarrow / 32>(call, part, task, inputs, real);
  }
  if constexpr (kWide) {
    PrepareNumbers<Row, kMostPreparedWidth / 32>(call, part, task, inputs, real);
  }
}

// A task for some tokens. kPlain: as HasPlainParts says.
template <typename Row, uint32_t kTokens, bool kSingle, bool kPlain>
__device__ void PrepareTask(const PrepareCall& call, const float* factors, const PreparedPart& part,
                            PartForm form, const Task& task, TokensOfWarp tokens,
                            uint32_t rehearsed) {
  if (form == PartForm::kFours) {
    return PrepareConvolved<Row, kTokens, kSingle, kPlain>(call, factors, part, task, tokens,
                                                           rehearsed);
  }
  if (kPlain || form == PartForm::kFlat) {
    return PrepareFlat<kTokens>(call, factors, part, task, tokens, rehearsed);
  }
  if constexpr (!kPlain) {
    RunRehearsed(rehearsed, [&](bool real) {
#pragma unroll 1
      for (uint32_t t = 0; t < kTokens && tokens[t] < call.rows.tokens; ++t) {
        PreparePart<Row, kTokens == 1>(call, factors, part, task, tokens[t], real);
      }
    });
  }
}

// The warp's task, of the tokens that the grid's rows share out.
template <typename Row, uint32_t kTokens, bool kSingle, bool kPlain>
__device__ void PrepareTokens(const PrepareCall& call, const float* factors,
                              const PreparedPart& part, PartForm form, uint32_t index,
                              uint32_t rehearsed) {
  const Task task = TaskOf(part, index);
  if constexpr (kTokens > 1) {
    PrepareTask<Row, kTokens, kSingle, kPlain>(call, factors, part, form, task,
                                               {blockIdx.y, gridDim.y}, 0);
  } else {
#pragma unroll 1
    for (uint32_t token = call.rows.before + blockIdx.y; token < call.rows.tokens;
         token += gridDim.y, rehearsed = 0) {
      PrepareTask<Row, 1, kSingle, kPlain>(call, factors, part, form, task, {token, 1}, rehearsed);
    }
  }
}

template <typename Row, bool kSingle>
__device__ void PrepareWarp(const PrepareCall& call, const float* factors, uint32_t rehearsed) {
  uint32_t task = blockIdx.x * kPrepareWarps + threadIdx.x / 32;
  for (uint32_t p = 0; p < call.part_count; ++p) {
    const PreparedPart& part = call.parts[p];
    const uint32_t tasks = TasksOf(part);
    if (task < tasks) {
      return PrepareTokens<Row, 1, kSingle, false>(call, factors, part, FormOf(call, part), task,
                                                   rehearsed);
    }
    task -= tasks;
  }
}
template <typename Row, uint32_t kTokens, bool kPlain>
__device__ void PrepareWarpAsPlanned(const PrepareCall& call, const float* factors,
                                     const PartPlan& plan) {
  const uint32_t task = blockIdx.x * kPrepareWarps + threadIdx.x / 32;
  if (task >= plan.tasks[kMaxPreparedParts - 1]) return;
  uint32_t p = 0, first = 0;
  PartForm form = plan.forms[0];
#pragma unroll
  for (uint32_t next = 1; next < kMaxPreparedParts; ++next) {
    if (task < plan.tasks[next - 1]) continue;
    p = next, first = plan.tasks[next - 1], form = plan.forms[next];
  }
  PrepareTokens<Row, kTokens, true, kPlain>(call, factors, call.parts[p], form, task - first, 0);
}

// Few registers while decoding, so that blocks find room beside those of a sum's kernel. Few rows
// leave room for those that a rehearsal takes.
constexpr int RegistersFor(bool single, bool rehearses) {
  return rehearses ? 80 : single ? 56 : 64;
}
// kScales: there may be factors.
template <typename Row, bool kSingle, bool kRehearses, bool kScales>
__global__ void __maxnreg__(RegistersFor(kSingle, kRehearses))
    PrepareKernel(const __grid_constant__ PrepareCall call, uint32_t rehearsed) {
  AllowNextKernel();
  PrepareWarp<Row, kSingle>(call, kScales ? call.factors : nullptr, kRehearses ? rehearsed : 0);
}

// With many rows a warp has several tokens. Three and four of them need more registers and were
// slower (docs/gpu_notes.md#kernels-left-out).
constexpr uint32_t kTokensOfWarp = 2;
template <typename Row, bool kPlain, bool kScales>
__global__ void __launch_bounds__(kPrepareWarps * 32, 4)
    PrepareManyKernel(const __grid_constant__ PrepareCall call,
                      const __grid_constant__ PartPlan plan) {
  AllowNextKernel();
  PrepareWarpAsPlanned<Row, kTokensOfWarp, kPlain>(call, kScales ? call.factors : nullptr, plan);
}

// The inputs before a border of the segment, of which some may be older than it.
template <typename Row>
__device__ void KeepInputsBefore(const PrepareCall& call, const DeviceSegment& segment,
                                 uint64_t border, uint32_t channel) {
  const DeviceConvolution& c = call.convolution;
  const auto last = segment.first_token + static_cast<uint32_t>(border - segment.position) - 1;
  const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, call.factors, segment, last);
  Row* after = RowsBefore<Row>(call.slots, call.convolution, BaseAfter(call.rows, segment, last));
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
  Row* tail = TailRows<Row>(call.slots, call.convolution, segment.tail);
  if (border > segment.position) {
    if (call.rows.fold_bases != nullptr) KeepInputsWithin<Row>(call, segment, border, channel);
    KeepInputsBefore<Row>(call, segment, border, channel);
  }
  const ConvolutionInputs<Row> inputs =
      InputsOf<Row>(call, call.factors, segment, segment.first_token);
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

// Whether each part is flat, or what a convolution and SiLU make. The kernel for these is a quarter
// as long and, for rows in bf16, needs no local memory.
bool HasPlainParts(const PrepareCall& call, const PartPlan& plan) {
  for (uint32_t p = 0; p < call.part_count; ++p) {
    const PreparedPart& part = call.parts[p];
    if (!IsPlain(call, part) && plan.forms[p] != PartForm::kFlat) return false;
  }
  return true;
}

uint32_t BlocksFor(const PartPlan& plan) {
  return (plan.tasks[kMaxPreparedParts - 1] + kPrepareWarps - 1) / kPrepareWarps;
}
// The most rows of a grid, of so many blocks each, if so many blocks share a processor.
uint32_t MostRows(uint32_t blocks, uint32_t resident, const LaunchContext& context) {
  return std::max(resident * static_cast<uint32_t>(context.processors) / blocks, 1u);
}

bool HasWideHeads(const PrepareCall& call) {
  return std::any_of(call.parts, call.parts + call.part_count, [](const PreparedPart& part) {
    return ByHead(part) && std::max(part.width, part.padded) > kNarrow;
  });
}

constexpr uint32_t kResident = 4;  // blocks of a processor that run at once

// Whether a warp prepares one token rather than two, where all tokens are single. The next kernel's
// blocks may start when all of this kernel's have, and beside a product few of this kernel's find
// room. So fewer blocks are better with plain parts, whose kernel for two tokens is short. But only
// the kernel for one token rehearses, which is worth more with few blocks. The limits are measured
// (docs/gpu_notes.md#small-kernels-beside-products).
bool HasOneTokenAWarp(uint32_t tokens, uint32_t blocks, bool plain, const LaunchContext& context) {
  if (!plain) return tokens <= MostRows(blocks, kResident, context);
  constexpr uint32_t kMostTokens = 64;
  return tokens <= std::min(MostRows(blocks, context.kMostRehearsing, context), kMostTokens);
}

// kSingle: as DeviceRows::single. kScales: the call has factors.
template <typename Row, bool kSingle, bool kScales>
void LaunchRows(const PrepareCall& call, const PartPlan& plan, const LaunchContext& context) {
  const uint32_t blocks = BlocksFor(plan), tokens = call.rows.tokens - call.rows.before;
  const dim3 grid(blocks, std::min(tokens, MostRows(blocks, kResident, context)));
  const uint32_t rehearsed = context.RehearsedBlocks(grid.x * grid.y);
  const auto kernel = rehearsed != 0 ? PrepareKernel<Row, kSingle, true, kScales>
                                     : PrepareKernel<Row, kSingle, false, kScales>;
  context.Run(kernel, grid, kPrepareThreads, 0, call, rehearsed);
}

template <typename Row, bool kScales>
void LaunchSingles(const PrepareCall& call, const LaunchContext& context) {
  const PartPlan plan = PlanOf(call);
  const uint32_t blocks = BlocksFor(plan), tokens = call.rows.tokens - call.rows.before;
  const bool plain = HasPlainParts(call, plan);
  if (HasOneTokenAWarp(tokens, blocks, plain, context) || HasWideHeads(call)) {
    return LaunchRows<Row, true, kScales>(call, plan, context);
  }
  const uint32_t groups = (tokens + kTokensOfWarp - 1) / kTokensOfWarp;
  const auto kernel =
      plain ? PrepareManyKernel<Row, true, kScales> : PrepareManyKernel<Row, false, kScales>;
  context.Run(kernel, dim3(blocks, groups), kPrepareThreads, 0, call, plan);
}

template <typename Row, bool kScales>
void LaunchPrepareRows(const PrepareCall& call, const LaunchContext& context) {
  if (call.rows.single) return LaunchSingles<Row, kScales>(call, context);
  LaunchRows<Row, false, kScales>(call, PlanOf(call), context);
  if (call.convolution.window == 0) return;
  context.Run(KeepInputsKernel<Row>,
              dim3((call.convolution.channels + 127) / 128, call.rows.segment_count), 128, 0, call);
}

template <typename Row>
void LaunchPart(const PrepareCall& call, const LaunchContext& context) {
  call.factors == nullptr ? LaunchPrepareRows<Row, false>(call, context)
                          : LaunchPrepareRows<Row, true>(call, context);
}

}  // namespace

void LaunchPrepare(const PrepareCall& call, bool fp32_rows, const LaunchContext& context) {
  ByParts(call, [&](const PrepareCall& part) {
    fp32_rows ? LaunchPart<float>(part, context) : LaunchPart<bf16>(part, context);
  });
}

void LaunchRotate(const RotateCall& call, const LaunchContext& context) {
  const uint32_t pairs = call.heads * call.half;
  context.Run(RotateKernel, dim3((pairs + 127) / 128, call.rows.tokens), 128, 0, call);
}

}  // namespace rivulet::cuda
