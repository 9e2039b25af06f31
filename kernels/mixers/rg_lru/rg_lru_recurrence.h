// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The real-gated linear recurrent unit (De et al. 2024; docs/mixers.md#rg-lru), one number of
// state a channel:
//
//   log a_t = rate · σ(r_t)      h_t = a_t h_{t-1} + √(1 - a_t²) σ(i_t) x_t
//
// A session's first token has the factor 1 instead of the root, and no state before it.
//
// A state that is as small as a token's row needs no sum over the rows of a chunk: the tail holds h
// after each token, the base h at the last chunk border. All of it is fp32. It has no projections
// and no convolution; the layer does.
//
// Letters: T tokens, W channels, C fold interval.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_RECURRENCE_H_

#include <cstddef>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/device_step.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// Each [T, W]. The gates are what σ is applied to.
struct RgLruInput {
  ConstFloatMatrix x, input_gate, recurrent_gate;
};

class RgLruRecurrence {
 public:
  // rate [W], <= 0. Adds the planes "h" and "h.tail" to `layout`.
  RgLruRecurrence(const AlignedBuffer<float>& rate, StateLayout& layout);

  // h [T, W]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const RgLruInput& input,
           FloatMatrix h, ThreadPool& pool) const;

  // The same on a device, where the tail holds the last h alone.
  void Enqueue(const DeviceStep& step, const RgLruInput& input, FloatMatrix h) const;

 private:
  void RunBlocks(const HeadPiece& piece, const LayerState& state, const RgLruInput& input,
                 FloatMatrix h) const;

  size_t width_;
  size_t padded_;
  size_t fold_interval_;
  AlignedBuffer<float> rate_;  // [padded W]
  size_t base_offset_, tail_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_RECURRENCE_H_
