// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Embeddings of n-grams (ngram_operations.h): hashed rows of the table, a block for a token, and
// the gate of each stream, a block for a token's stream.
//
// Bytes expected: the rows once; keys and streams once, what is made of them twice.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/ngram_operations.h"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kThreads = 256;
constexpr uint32_t kMost = kMostDeviceNgram;

// --- rows ----------------------------------------------------------------------------------------

// The ids of a segment and of the tokens before it.
class SegmentIds {
 public:
  __device__ SegmentIds(const NgramRowsCall& call, const DeviceSegment& segment)
      : c_(call), segment_(segment) {}

  __device__ uint32_t* Tail() const {
    return reinterpret_cast<uint32_t*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride +
                                       c_.tail_offset);
  }
  __device__ uint32_t* Before(uint32_t slot) const {
    return reinterpret_cast<uint32_t*>(c_.slots.bases + slot * c_.slots.base_stride +
                                       c_.before_offset);
  }

  // Of the session's token at `position`, which lies in the segment or at most N - 1 tokens before
  // it.
  __device__ uint32_t At(uint64_t position) const {
    if (position >= segment_.position) {
      const uint32_t id = c_.ids[segment_.first_token + (position - segment_.position)];
      return id == UINT32_MAX ? c_.last_tokens[segment_.tail] : id;
    }
    const uint64_t border = segment_.position / kChunk * kChunk;
    if (position >= border) return Tail()[position - border] - 1;
    return Before(segment_.base_in)[border - 1 - position] - 1;
  }

 private:
  const NgramRowsCall& c_;
  const DeviceSegment& segment_;
};

// ids [N] of the token at `position` and those before it.
__device__ void TakeIds(const NgramRowsCall& call, const DeviceSegment& segment, uint64_t position,
                        uint32_t* ids) {
  const SegmentIds all(call, segment);
  ids[0] = all.At(position);
  for (uint32_t i = 1; i < call.ngram; ++i) {
    const bool ended = i > 1 && ids[i - 1] == call.end_of_text;
    ids[i] = ended || position < i ? call.end_of_text : all.At(position - i);
  }
}

__device__ uint64_t RowOf(const NgramRowsCall& call, const uint32_t* ids, uint32_t head) {
  const uint64_t *const sizes = call.hash + call.ngram, *const offsets = sizes + call.heads;
  const uint32_t each = call.heads / (call.ngram - 1), order = head / each + 1;
  uint64_t mixed = 0;
  for (uint32_t i = 0; i <= order; ++i) mixed ^= ids[i] * call.hash[i];
  return offsets[head] + mixed % sizes[head];
}

__global__ void __launch_bounds__(kThreads)
    NgramRowsKernel(const __grid_constant__ NgramRowsCall call) {
  __shared__ uint32_t ids[kMost];
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, width = call.table.inputs;
  const DeviceSegment& segment = call.rows.segments[SegmentOf(call.rows, token)];
  if (segment.tokens == 0) return;
  if (threadIdx.x == 0) {
    TakeIds(call, segment, segment.position + (token - segment.first_token), ids);
  }
  __syncthreads();
  uint16_t* const to = call.y.data + size_t{token} * call.y.stride;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (uint32_t head = warp; head < call.heads; head += kThreads / 32) {
    const size_t from = RowOf(call, ids, head) * call.table.stride;
    for (uint32_t i = lane; i < width; i += 32) {
      to[head * width + i] = call.table.high[from + i];
      if (call.y.two_parts) to[call.y.columns + head * width + i] = call.table.low[from + i];
    }
  }
  for (uint32_t i = call.heads * width + threadIdx.x; i < call.y.columns; i += kThreads) {
    StoreOperand(call.y, token, i, 0.0f);
  }
}

// The number `lane` before each border before the segment's last one that is kept. REQUIRES: what
// is before the segment's first border is not written yet.
__device__ void KeepIdsWithin(const NgramRowsCall& call, const DeviceSegment& segment,
                              uint64_t last_border, uint32_t lane) {
  const SegmentIds all(call, segment);
  const uint64_t first = (segment.position / kChunk + 1) * kChunk;
  for (uint64_t border = first; border < last_border; border += kChunk) {
    const uint64_t token = segment.first_token + (border - segment.position) - 1;
    const uint32_t slot = call.rows.fold_bases[token];
    if (slot != segment.base_out) all.Before(slot)[lane] = all.At(border - 1 - lane) + 1;
  }
}

// The ids after a segment, when all of its tokens have read those before it. A warp has a segment:
// lane i the number i before the border, and place i of the tail.
__global__ void __launch_bounds__(32) KeepIdsKernel(const __grid_constant__ NgramRowsCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceSegment& segment = call.rows.segments[blockIdx.x];
  if (segment.tokens == 0) return;
  const uint32_t lane = threadIdx.x;
  const SegmentIds all(call, segment);
  const uint64_t end = segment.position + segment.tokens, border = end / kChunk * kChunk;
  const bool folds = border > segment.position && lane + 1 < call.ngram;
  if (folds && call.rows.fold_bases != nullptr) KeepIdsWithin(call, segment, border, lane);
  const bool keeps = lane < kChunk && border + lane < end && border + lane >= segment.position;
  const uint32_t before = folds ? all.At(border - 1 - lane) : 0;
  const uint32_t own = keeps ? all.At(border + lane) : 0;
  __syncwarp();
  if (folds) all.Before(segment.base_out)[lane] = before + 1;
  if (keeps) all.Tail()[lane] = own + 1;
}

// --- gate ----------------------------------------------------------------------------------------

__device__ float SignedRoot(float x) {
  const float root = sqrtf(fmaxf(fabsf(x), 1e-6f));
  return x > 0 ? root : x < 0 ? -root : x;  // NaN stays
}

__device__ float InverseRms(float squares, uint32_t width, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + eps);
}

__global__ void __launch_bounds__(kThreads)
    NgramGateKernel(const __grid_constant__ NgramGateCall call) {
  __shared__ float scratch[kThreads / 32];
  AllowNextKernel();
  AwaitLastKernel();
  const auto width = static_cast<uint32_t>(call.value.columns);
  const uint32_t token = blockIdx.x, first = blockIdx.y * width;
  const float* const key = call.keys.data + token * call.keys.stride + first;
  const float* const x = call.x.data + token * call.x.stride + first;
  const float* const value = call.value.data + token * call.value.stride;
  float keys = 0.0f, squares = 0.0f, values = 0.0f, dot = 0.0f;
  for (uint32_t i = threadIdx.x; i < width; i += kThreads) {
    keys = fmaf(key[i], key[i], keys);
    squares = fmaf(x[i], x[i], squares);
  }
  const float of_key = InverseRms(BlockSum<kThreads>(keys, scratch), width, call.eps);
  const float of_x = InverseRms(BlockSum<kThreads>(squares, scratch), width, call.eps);
  for (uint32_t i = threadIdx.x; i < width; i += kThreads) {
    const float k = key[i] * of_key * call.key_weight[first + i];
    dot = fmaf(k, x[i] * of_x * call.query_weight[first + i], dot);
  }
  dot = BlockSum<kThreads>(dot, scratch) / sqrtf(static_cast<float>(width));
  const float gate = 1.0f / (1.0f + expf(-SignedRoot(dot)));
  for (uint32_t i = threadIdx.x; i < width; i += kThreads) {
    const float gated = gate * value[i];
    values = fmaf(gated, gated, values);
  }
  const float scale = InverseRms(BlockSum<kThreads>(values, scratch), width, call.eps);
  float* const to = call.gated.data + token * call.gated.stride + first;
  float* const normed = call.normed.data + token * call.normed.stride + first;
  for (uint32_t i = threadIdx.x; i < width; i += kThreads) {
    to[i] = gate * value[i];
    normed[i] = gate * value[i] * scale * call.weight[first + i];
  }
}

}  // namespace

void LaunchNgramRows(const NgramRowsCall& call, const LaunchContext& context) {
  if (call.ngram > kMost || call.table.high == nullptr) return context.Check(cudaErrorInvalidValue);
  context.Run(NgramRowsKernel, dim3(call.rows.tokens), kThreads, 0, call);
  context.Run(KeepIdsKernel, dim3(call.rows.segment_count), 32, 0, call);
}

void LaunchNgramGate(const NgramGateCall& call, const LaunchContext& context) {
  context.Run(NgramGateKernel, dim3(static_cast<uint32_t>(call.x.rows), call.streams), kThreads, 0,
              call);
}

}  // namespace rivulet::cuda
