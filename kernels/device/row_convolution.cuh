// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Rows that a recurrence's kernel prepares itself where each segment has one token: keys, queries
// and values are columns of a projection that go through a convolution with a window of four and
// SiLU, and the step Δ is softplus of another column. That saves a kernel and the wait for it. The
// order of every sum is that of prepare.cu, so the bits are the same.
//
// A thread prepares four adjacent channels, in sums_decode_plain.cuh one more. What the convolution
// adds up before the token's own number (bias, three older rows; no kernel of the step writes
// these) is in registers before the wait for the kernel before, and so is the weight that follows.
// Not in shared memory: blocks need room there beside those of the product that they wait for.
// Blocks that have nothing to wait for ask for the token's numbers first. Heads that share their
// keys prepare them once each, from L2. Where heads or rows are many that costs more than another
// wait (IsFaster in prepare_and_recur.cu).
//
// Bytes expected, of a four: 80 of weights and bias, 24 of older rows, 16 of the token.
#ifndef RIVULET_KERNELS_DEVICE_ROW_CONVOLUTION_CUH_
#define RIVULET_KERNELS_DEVICE_ROW_CONVOLUTION_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/activations.cuh"
#include "kernels/device/convolution.cuh"
#include "kernels/device/prepared_parts.cuh"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {

// Of a RecurCall whose q, k, v and g are columns of a projection instead of prepared rows.
struct UnpreparedRows {
  DeviceConvolution convolution;
  // The channels where keys, queries and values begin.
  uint32_t key_channel = 0, query_channel = 0, value_channel = 0;
  // Δ = clamp(softplus(g + bias)).
  const float* step_bias = nullptr;  // [units]; null: zeros
  float step_low = 0, step_high = 0;
};

// True: the recurrence's kernels for single tokens can prepare the rows of the call. `recur` then
// points to the projection's columns, and `rows` says how. False: nothing changes.
bool ReadUnprepared(const PrepareCall& prepare, RecurCall& recur, UnpreparedRows& rows);

// Δ of the number g of the projection.
__device__ inline float StepOf(const UnpreparedRows& rows, float g, float bias) {
  if (rows.step_bias != nullptr) g += bias;
  return fminf(fmaxf(Softplus(g), rows.step_low), rows.step_high);
}

// Four numbers of the token as the tail stores them.
__device__ inline float4 AsRow(float4 x) {
  const uint32_t first = PackRounded(x.x, x.y), second = PackRounded(x.z, x.w);
  return {FirstOf(first), SecondOf(first), FirstOf(second), SecondOf(second)};
}

__device__ inline float AsRow(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

// Where the inputs of a segment's convolution are.
class RowConvolution {
 public:
  __device__ RowConvolution(const UnpreparedRows& rows, const RecurCall& call,
                            const DeviceSegment& segment)
      : RowConvolution(rows, call, segment,
                       call.slots.tails + segment.tail * call.slots.tail_stride,
                       call.slots.bases + segment.base_in * call.slots.base_stride) {}
  // `tail`, `base`: the segment's slots.
  __device__ RowConvolution(const UnpreparedRows& rows, const RecurCall& call,
                            const DeviceSegment& segment, std::byte* tail, const std::byte* base)
      : c_(rows.convolution),
        slots_(call.slots),
        segment_(segment),
        tail_(reinterpret_cast<bf16*>(tail + c_.tail_offset)),
        before_(reinterpret_cast<const bf16*>(base + c_.before_offset)) {}

  // Of a number of the token's row.
  __device__ uint32_t Channel(const float* number) const {
    return static_cast<uint32_t>(number - (c_.x + size_t{segment_.first_token} * c_.x_stride));
  }
  __device__ float4 Bias(uint32_t channel) const { return LoadFour(c_.bias + channel); }
  __device__ float4 Weight(uint32_t j, uint32_t channel) const {
    return LoadFour(c_.weight + j * c_.weight_stride + channel);
  }
  // Of the token `older` before this one; zeros before the first. Loads under a condition, not
  // behind branches, so that those of all rows run at once.
  __device__ uint2 Older(uint32_t older, uint32_t channel) const {
    const bf16* const row = OlderRow(older);
    return HasOlder(older) ? LoadStored(row + channel) : uint2{0, 0};
  }

  // The state that the token leaves: its row `now`, and at a border the last inputs. Neither place
  // is one that a block reads in this step: older rows are in other places of the tail, or in the
  // base that the last fold wrote.
  __device__ void Keep(uint32_t channel, float4 now) const {
    StoreFour(TailRow(Place()) + channel, now);
    if (Place() + 1 != kChunk) return;
    bf16* after = RowsBefore<bf16>(slots_, c_, segment_.base_out) + channel;
#pragma unroll
    for (uint32_t j = 0; j + 1 < kOlder; ++j) {
      *reinterpret_cast<uint2*>(after + j * c_.weight_stride) = Older(kOlder - 1 - j, channel);
    }
    StoreFour(after + (kOlder - 1) * c_.weight_stride, now);
  }

  // The same of one number. The older ones are bits of bf16.
  __device__ uint16_t OlderNumber(uint32_t older, uint32_t channel) const {
    const auto* const row = reinterpret_cast<const uint16_t*>(OlderRow(older));
    return HasOlder(older) ? row[channel] : uint16_t{0};
  }
  __device__ float BiasOf(uint32_t channel) const { return c_.bias[channel]; }
  __device__ float WeightOf(uint32_t j, uint32_t channel) const {
    return c_.weight[j * c_.weight_stride + channel];
  }
  __device__ void Keep(uint32_t channel, float now) const {
    TailRow(Place())[channel] = __float2bfloat16_rn(now);
    if (Place() + 1 != kChunk) return;
    bf16* after = RowsBefore<bf16>(slots_, c_, segment_.base_out) + channel;
#pragma unroll
    for (uint32_t j = 0; j + 1 < kOlder; ++j) {
      reinterpret_cast<uint16_t*>(after)[j * c_.weight_stride] =
          OlderNumber(kOlder - 1 - j, channel);
    }
    after[(kOlder - 1) * c_.weight_stride] = __float2bfloat16_rn(now);
  }

  static constexpr uint32_t kOlder = 3;  // rows before the token's

 private:
  __device__ uint32_t Place() const { return static_cast<uint32_t>(segment_.position % kChunk); }
  // In the tail or, of an earlier chunk, in the base.
  __device__ const bf16* OlderRow(uint32_t older) const {
    const uint32_t place = Place();
    const bool in_tail = older <= place;
    const bf16* const rows = in_tail ? tail_ : before_;
    return rows + ((in_tail ? 0 : kOlder) + place - older) * c_.weight_stride;
  }
  __device__ bool HasOlder(uint32_t older) const {
    return older <= Place() || segment_.position >= kChunk;
  }
  __device__ bf16* TailRow(uint32_t place) const { return tail_ + place * c_.weight_stride; }

  const DeviceConvolution& c_;
  const DeviceSlots& slots_;
  const DeviceSegment& segment_;
  bf16* const tail_;          // [C, padded channels]
  const bf16* const before_;  // [W - 1, padded channels]
};

// Four channels of a token on their way through the convolution. Older rows are asked for by
// themselves, so that other loads can be on their way at the same time.
struct ConvolvedFour {
  static constexpr uint32_t kOlder = RowConvolution::kOlder;

  __device__ void Ask(const RowConvolution& inputs, uint32_t channel) {
#pragma unroll
    for (uint32_t j = 0; j < kOlder; ++j) older[j] = inputs.Older(kOlder - j, channel);
  }
  __device__ void Start(const RowConvolution& inputs, uint32_t channel) {
    float4 weights[kOlder];
#pragma unroll
    for (uint32_t j = 0; j < kOlder; ++j) weights[j] = inputs.Weight(j, channel);
    sum = inputs.Bias(channel);
    weight = inputs.Weight(kOlder, channel);
#pragma unroll
    for (uint32_t j = 0; j < kOlder; ++j) sum = Fused(weights[j], ToFloats(older[j]), sum);
  }
  // The prepared numbers. `now`: as AsRow gives them.
  __device__ float4 Finish(float4 now) const {
    float4 y[1] = {Fused(weight, now, sum)};
    Apply(Activation::kSilu, y);
    return y[0];
  }

  uint2 older[kOlder];  // of bf16
  float4 sum;           // of the bias and the older rows
  float4 weight;        // of the token's own numbers
};

// The same of one channel.
struct ConvolvedNumber {
  static constexpr uint32_t kOlder = RowConvolution::kOlder;

  __device__ void Ask(const RowConvolution& inputs, uint32_t channel) {
#pragma unroll
    for (uint32_t j = 0; j < kOlder; ++j) older[j] = inputs.OlderNumber(kOlder - j, channel);
  }
  __device__ void Start(const RowConvolution& inputs, uint32_t channel) {
    float weights[kOlder];
#pragma unroll
    for (uint32_t j = 0; j < kOlder; ++j) weights[j] = inputs.WeightOf(j, channel);
    sum = inputs.BiasOf(channel);
    weight = inputs.WeightOf(kOlder, channel);
#pragma unroll
    for (uint32_t j = 0; j < kOlder; ++j) sum = fmaf(weights[j], FirstOf(older[j]), sum);
  }
  __device__ float Finish(float now) const { return Silu(fmaf(weight, now, sum)); }

  uint16_t older[kOlder];  // bits of bf16
  float sum, weight;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_ROW_CONVOLUTION_CUH_
