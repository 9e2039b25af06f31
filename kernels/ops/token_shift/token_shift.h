// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RWKV's token shift: what a layer reads is, channel by channel, a mixture of the token's input
// with that of the token before (docs/mixers.md#rwkv-7),
//
//   y_t = x_t + (x_{t-1} - x_t) ∘ mix        x_{-1} = 0
//
// A layer has several mixtures of one difference. State: that of a short convolution with a window
// of two, which the difference is.
//
// Bits: the difference is rounded once, then the product and the sum; a token's numbers depend on
// its own session's inputs alone. Threading: constant after construction.
#ifndef RIVULET_KERNELS_OPS_TOKEN_SHIFT_TOKEN_SHIFT_H_
#define RIVULET_KERNELS_OPS_TOKEN_SHIFT_TOKEN_SHIFT_H_

#include <array>
#include <cstddef>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/device_step.h"
#include "kernels/device/rwkv_operations.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class TokenShift {
 public:
  // Adds the planes "shift.before" and "shift.tail" to `layout`.
  TokenShift(size_t channels, StateLayout& layout);

  // [T, channels] = x_{t-1} - x_t, from the step's workspace; advances the segments' slots.
  // Called once a step.
  FloatMatrix Difference(const LayerStep& step, ConstFloatMatrix x) const;

  // The same on a device with all mixtures [channels] at once, at most kMostMixtures: operands
  // [T, channels] from the step's workspace. `difference` [T, channels], if it has data, gets what
  // Difference returns.
  std::array<Operand, kMostMixtures> Enqueue(const DeviceStep& step, const Operand& x,
                                             std::span<const AlignedBuffer<float>> mixes,
                                             FloatMatrix difference = {}) const;

 private:
  ShortConvolution convolution_;
};

// y = x + difference ∘ mix [channels]; y overlaps neither.
void MixShifted(ConstFloatMatrix x, ConstFloatMatrix difference, const float* mix, FloatMatrix y,
                ThreadPool& pool);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_TOKEN_SHIFT_TOKEN_SHIFT_H_
