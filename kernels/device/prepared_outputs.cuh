// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Row preparation (prepare.cu) of a product's outputs by the lanes that have them, for one token of
// each segment: the convolution with a window of four and SiLU, or a function of each number. A
// kernel and the wait for it less, where outputs are a product's of our own. The order of every sum
// is that of prepare.cu, so the bits are the same.
#ifndef RIVULET_KERNELS_DEVICE_PREPARED_OUTPUTS_CUH_
#define RIVULET_KERNELS_DEVICE_PREPARED_OUTPUTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {

// What becomes of a product's columns; of those in no part, nothing.
struct PreparedOutputs {
  static constexpr uint32_t kMostParts = 4;

  struct Part {
    uint32_t first, end;  // columns, even
    float* y;             // [T, end - first]
    uint32_t y_stride;    // even
    int32_t channel;      // of the convolution's, for the first column, even; -1: not convolved
    const float* bias;    // not convolved: y = clamp(f(x + bias)); null: none
    Activation f;
    float low, high;
  };

  const DeviceSegment* segments;
  DeviceSlots slots;
  const float *weight, *bias;  // [4, padded channels], [padded channels]
  size_t before_offset, tail_offset;
  uint32_t channels;  // padded
  uint32_t fold_interval;
  uint32_t count;
  Part parts[kMostParts];
};

// What can be done to outputs [T, N] of a product that comes before `call`. False: not all of it.
bool PreparesOutputs(const PrepareCall& call, FloatMatrix outputs, PreparedOutputs& prepared);

// Two adjacent columns of the outputs, of which a lane has some tokens'.
class PreparedPair {
 public:
  __device__ PreparedPair() = default;
  __device__ PreparedPair(const PreparedOutputs& call, uint32_t column) : column_(column) {
#pragma unroll
    for (uint32_t p = 0; p < PreparedOutputs::kMostParts; ++p) {
      const bool is_in = p < call.count && column >= call.parts[p].first &&
                         column < call.parts[p].end;
      if (is_in) part_ = p;
    }
    if (!convolved(call)) return;
    const float* weight = call.weight + 3 * size_t{call.channels} + channel(call);
    last_ = *reinterpret_cast<const float2*>(weight);
  }

  __device__ bool prepared() const { return part_ < PreparedOutputs::kMostParts; }
  __device__ bool convolved(const PreparedOutputs& call) const {
    return prepared() && call.parts[part_].channel >= 0;
  }
  __device__ uint32_t channel(const PreparedOutputs& call) const {
    return call.parts[part_].channel + column_ - call.parts[part_].first;
  }

  // The convolution but for the token's own input.
  __device__ float2 Older(const PreparedOutputs& call, const uint32_t (&rows)[3]) const {
    const float* weight = call.weight + channel(call);
    float2 sum = *reinterpret_cast<const float2*>(call.bias + channel(call));
#pragma unroll
    for (uint32_t j = 0; j < 3; ++j) {
      const float2 w = *reinterpret_cast<const float2*>(weight + j * size_t{call.channels});
      sum = {fmaf(w.x, FirstOf(rows[j]), sum.x), fmaf(w.y, SecondOf(rows[j]), sum.y)};
    }
    return sum;
  }

  // A token's number pair as it leaves the product. `input`: as the tail keeps it, where it is
  // convolved.
  __device__ void Write(const PreparedOutputs& call, uint32_t token, float2 x, float2 older,
                        uint32_t input) const {
    const PreparedOutputs::Part& part = call.parts[part_];
    float2 y;
    if (part.channel >= 0) {
      y = {Silu(fmaf(last_.x, FirstOf(input), older.x)),
           Silu(fmaf(last_.y, SecondOf(input), older.y))};
    } else {
      y = {FunctionOf(part, 0, x.x), FunctionOf(part, 1, x.y)};
    }
    float* to = part.y + token * size_t{part.y_stride} + column_ - part.first;
    __stcg(reinterpret_cast<float2*>(to), y);
  }

 private:
  __device__ float FunctionOf(const PreparedOutputs::Part& part, uint32_t next, float x) const {
    if (part.bias != nullptr) x += part.bias[column_ - part.first + next];
    return fminf(fmaxf(Function(part.f, x), part.low), part.high);
  }

  uint32_t column_ = 0, part_ = PreparedOutputs::kMostParts;
  float2 last_ = {};  // weights of the token's own input
};

// The convolution's inputs of one token: rows of its tail, and of the base before it.
class ConvolutionRows {
 public:
  __device__ ConvolutionRows() = default;
  // `present`: there is such a token.
  __device__ ConvolutionRows(const PreparedOutputs& call, uint32_t token, bool present) {
    if (!present) return;
    const DeviceSegment segment = call.segments[token];
    if (segment.tokens == 0) return;
    place_ = static_cast<uint32_t>(segment.position % call.fold_interval);
    has_before_ = segment.position >= call.fold_interval;
    tail_ = reinterpret_cast<bf16*>(call.slots.tails + segment.tail * call.slots.tail_stride +
                                    call.tail_offset);
    before_ = Before(call, segment.base_in);
  }

  __device__ bool present() const { return tail_ != nullptr; }

  // Of the three tokens before this one, oldest first, two channels.
  __device__ void Load(const PreparedOutputs& call, uint32_t channel, uint32_t (&rows)[3]) const {
#pragma unroll
    for (uint32_t j = 0; j < 3; ++j) {
      const uint32_t back = 3 - j;
      rows[j] = 0;
      if (!present()) continue;
      if (back <= place_) {
        rows[j] = At(tail_, call, place_ - back, channel);
      } else if (has_before_) {
        rows[j] = At(before_, call, 3 + place_ - back, channel);
      }
    }
  }

  // The token's row, and at a border the last three.
  __device__ void Keep(const PreparedOutputs& call, uint32_t token, uint32_t channel,
                       uint32_t input) const {
    At(tail_, call, place_, channel) = input;
    if (place_ + 1 != call.fold_interval) return;
    bf16* const after = Before(call, call.segments[token].base_out);
    At(after, call, 0, channel) = At(tail_, call, place_ - 2, channel);
    At(after, call, 1, channel) = At(tail_, call, place_ - 1, channel);
    At(after, call, 2, channel) = input;
  }

 private:
  __device__ static bf16* Before(const PreparedOutputs& call, uint32_t slot) {
    return reinterpret_cast<bf16*>(call.slots.bases + slot * call.slots.base_stride +
                                   call.before_offset);
  }
  __device__ static uint32_t& At(bf16* rows, const PreparedOutputs& call, uint32_t row,
                                 uint32_t channel) {
    return *reinterpret_cast<uint32_t*>(rows + row * size_t{call.channels} + channel);
  }

  bf16 *tail_ = nullptr, *before_ = nullptr;
  uint32_t place_ = 0;
  bool has_before_ = false;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_PREPARED_OUTPUTS_CUH_
