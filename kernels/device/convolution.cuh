// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The inputs of a short convolution: of tokens of the step, of those before them in the session's
// tail and, of an earlier chunk, in its base; and what a token leaves there. Either a channel at a
// time with any window W, or four adjacent channels with a window of four, all of whose loads run
// at once. What becomes of the result is in prepare.cu and row_convolution.cuh.
//
// Row: the dtype of the tail's rows, bf16 or float. C: PrepareCall::fold_interval.
#ifndef RIVULET_KERNELS_DEVICE_CONVOLUTION_CUH_
#define RIVULET_KERNELS_DEVICE_CONVOLUTION_CUH_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/device/activations.cuh"
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/device_operations.h"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {

// The rows of a convolution's inputs in a tail slot [C, padded channels], and those before the
// chunk in a base slot [W - 1, padded channels].
template <typename Row>
__device__ Row* TailRows(const DeviceSlots& slots, const DeviceConvolution& convolution,
                         uint32_t slot) {
  return reinterpret_cast<Row*>(slots.tails + slot * slots.tail_stride + convolution.tail_offset);
}
template <typename Row>
__device__ Row* RowsBefore(const DeviceSlots& slots, const DeviceConvolution& convolution,
                           uint32_t slot) {
  return reinterpret_cast<Row*>(slots.bases + slot * slots.base_stride + convolution.before_offset);
}

// What the numbers of a token are multiplied with (PrepareCall::factors). Kernels that never do
// have null as a constant, and so no instruction for it. Where several tokens are prepared side by
// side, nothing is multiplied before the numbers of all have been asked for.
__device__ inline float FactorOfToken(const float* factors, uint32_t token) {
  return factors == nullptr ? 1.0f : ReadLate(factors + token);
}

// Where the inputs of a token's convolution are: its own segment, the tail, the base.
template <typename Row>
struct ConvolutionInputs {
  const DeviceConvolution* convolution;
  const DeviceSegment* segment;
  const Row* tail;       // [C, padded channels]
  const Row* before;     // [W - 1, padded channels]; null: zeros
  uint32_t token;        // in the step
  uint32_t start;        // place of the segment's first token
  const float* factors;  // PrepareCall::factors

  // Of a token of this step.
  __device__ float Now(uint32_t which, uint32_t channel) const {
    const DeviceConvolution& c = *convolution;
    float x = ReadLate(c.x + static_cast<size_t>(which) * c.x_stride + channel);
    x *= FactorOfToken(factors, which);
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
__device__ ConvolutionInputs<Row> InputsOf(const PrepareCall& call, const float* factors,
                                           const DeviceSegment& segment, uint32_t token) {
  const Row* base = RowsBefore<Row>(call.slots, call.convolution, segment.base_in);
  return {.convolution = &call.convolution,
          .segment = &segment,
          .tail = TailRows<Row>(call.slots, call.convolution, segment.tail),
          .before = segment.position < call.fold_interval ? nullptr : base,
          .token = token,
          .start = static_cast<uint32_t>(segment.position % call.fold_interval),
          .factors = factors};
}

// The state that the only token of a segment leaves: its row, and at a border the last inputs.
template <typename Row>
__device__ void KeepToken(const PrepareCall& call, const ConvolutionInputs<Row>& inputs,
                          uint32_t channel, float x) {
  const DeviceConvolution& c = call.convolution;
  Store(const_cast<Row*>(inputs.tail) + inputs.start * c.weight_stride + channel, x);
  if (inputs.start + 1 != call.fold_interval) return;
  Row* after = RowsBefore<Row>(call.slots, call.convolution, inputs.segment->base_out);
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

// Four adjacent numbers of a row of the tail, as they are stored.
__device__ inline float4 LoadStored(const float* x) { return LoadFour(x); }
__device__ inline uint2 LoadStored(const bf16* x) { return *reinterpret_cast<const uint2*>(x); }
__device__ inline float4 ToFloats(float4 x) { return x; }
__device__ inline float4 ToFloats(uint2 x) {
  return {FirstOf(x.x), SecondOf(x.x), FirstOf(x.y), SecondOf(x.y)};
}

// Four channels of a token's input, and what they are multiplied with.
struct TokenInput {
  float4 x;
  float factor;

  __device__ void Load(const PrepareCall& call, const float* factors, uint32_t token,
                       uint32_t channel) {
    const DeviceConvolution& c = call.convolution;
    const float* at = c.x + static_cast<size_t>(token) * c.x_stride + channel;
    x = ReadLate(reinterpret_cast<const float4*>(at));
    factor = FactorOfToken(factors, token);
  }
  // As they would be stored.
  template <typename Row>
  __device__ float4 Rounded() const {
    const Row* const stored = nullptr;
    return {AsStored(stored, factor * x.x), AsStored(stored, factor * x.y),
            AsStored(stored, factor * x.z), AsStored(stored, factor * x.w)};
  }
};

// What the convolution of four channels reads of a token, with a window of four. kSingle: no number
// is of a token of the same step.
template <typename Row, bool kSingle>
struct ConvolvedToken {
  using InTail = decltype(LoadStored(static_cast<const Row*>(nullptr)));
  using Stored = std::conditional_t<kSingle, InTail, float4>;
  static constexpr uint32_t kNone = UINT32_MAX;

  Stored before[3];  // oldest first
  TokenInput now;
  uint32_t tail, start;  // its slot, and the place of the segment's first token in it; kNone: there
                         // is no token
  uint32_t index;        // of the token in its segment

  __device__ static Stored Get(const Row* row) {
    if constexpr (kSingle) {
      return LoadStored(row);
    } else {
      return LoadFour(row);
    }
  }
  __device__ Row* TailRow(const PrepareCall& call, uint32_t place, uint32_t channel) const {
    return TailRows<Row>(call.slots, call.convolution, tail) +
           place * call.convolution.weight_stride + channel;
  }
  // Everything that no kernel of this step writes.
  __device__ void LoadState(const PrepareCall& call, const DeviceSegment& segment, uint32_t token,
                            uint32_t channel) {
    start = kNone;
    if (token >= call.rows.tokens || segment.tokens == 0) return;
    const ConvolutionInputs<Row> inputs = InputsOf<Row>(call, nullptr, segment, token);
    tail = segment.tail, start = inputs.start;
    index = kSingle ? 0 : token - segment.first_token;
#pragma unroll
    for (uint32_t j = 0; j < 3; ++j) {
      const uint32_t older = 3 - j - index;  // tokens before the segment
      before[j] = {};
      if (!kSingle && 3 - j <= index) continue;
      LoadBefore(call, inputs, j, older, channel);
    }
  }
  // before[j]: of the token `older` before the segment, in the tail or, of an earlier chunk, in the
  // base.
  __device__ void LoadBefore(const PrepareCall& call, const ConvolutionInputs<Row>& inputs,
                             uint32_t j, uint32_t older, uint32_t channel) {
    if (older <= start) {
      before[j] = Get(TailRow(call, start - older, channel));
    } else if (inputs.before != nullptr) {
      const uint32_t place = 3 + start - older;
      before[j] = Get(inputs.before + place * call.convolution.weight_stride + channel);
    }
  }
  __device__ void LoadNow(const PrepareCall& call, const float* factors, uint32_t token,
                          uint32_t channel) {
    if (start == kNone) return;
    now.Load(call, factors, token, channel);
    if constexpr (!kSingle) {
      TokenInput older;
#pragma unroll
      for (uint32_t j = 0; j < 3; ++j) {
        if (3 - j > index) continue;
        older.Load(call, factors, token - 3 + j, channel);
        before[j] = older.Rounded<Row>();
      }
    }
  }
};

// The state that the only token of a segment leaves.
template <typename Row>
__device__ void KeepFours(const PrepareCall& call, const ConvolvedToken<Row, true>& convolved,
                          uint32_t token, uint32_t channel, const float4 (&in)[4]) {
  StoreFour(convolved.TailRow(call, convolved.start, channel), in[3]);
  if (convolved.start + 1 != call.fold_interval) return;
  const uint32_t stride = call.convolution.weight_stride;
  Row* after = RowsBefore<Row>(call.slots, call.convolution, call.rows.segments[token].base_out);
#pragma unroll
  for (uint32_t k = 0; k < 3; ++k) StoreFour(after + k * stride + channel, in[k + 1]);
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_CONVOLUTION_CUH_
