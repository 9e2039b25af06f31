// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Depthwise causal convolution over time with a short window W (docs/mixers.md#short-convolution):
//
//   y_t = act(b + Σ_{j=0}^{W-1} w[:, j] · x_{t-(W-1)+j}),  zeros before the sequence
//
// w[:, W-1] multiplies the current token. State: the base keeps the W-1 inputs before the
// chunk border, the tail keeps each token's input since, so any cut of a prompt gives the same
// bits. Each output is one chain: bias, then j ascending, fused.
//
// Threading: constant after construction; Apply is safe from several threads on disjoint segments.
#ifndef RIVULET_KERNELS_OPS_SHORT_CONVOLUTION_SHORT_CONVOLUTION_H_
#define RIVULET_KERNELS_OPS_SHORT_CONVOLUTION_SHORT_CONVOLUTION_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class Device;
struct DeviceConvolution;

// At most the smallest C, so that the inputs before a chunk are all of the chunk before it.
inline constexpr size_t kMaxConvolutionWindow = 16;

class ShortConvolution {
 public:
  ShortConvolution() = default;  // window 0: no convolution; Apply must not be called

  // weight [channels, window] row-major as stored ([channels, 1, window]); bias [channels] or
  // empty. window in [2, kMaxConvolutionWindow]. `silu`: apply SiLU to the result. Adds its planes,
  // `name`.before [window-1, padded channels] and `name`.tail [C, padded channels], to
  // `layout`.
  ShortConvolution(AlignedBuffer<float> weight, AlignedBuffer<float> bias, size_t channels,
                   size_t window, bool silu, std::string_view name, StateLayout& layout);

  size_t channels() const { return channels_; }

  // y [T, channels] from x [T, channels] for the tokens of `segments` (other rows untouched), and
  // advances the state. x and y must not overlap.
  void Apply(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix x,
             FloatMatrix y, ThreadPool& pool) const;

  // The same over x [T, channels] in device memory, for a device's row preparation.
  DeviceConvolution OnDevice(Device& device, ConstFloatMatrix x) const;

 private:
  struct PieceState;
  // For the channels [first, first + count) alone; first is a multiple of kBlock.
  void ApplySegment(const Segment& segment, const LayerState& state, ConstFloatMatrix x,
                    FloatMatrix y, size_t first, size_t count) const;
  void ApplyPiece(const ChunkPiece& piece, const PieceState& state, ConstFloatMatrix x,
                  FloatMatrix y, size_t first, size_t count) const;

  size_t channels_ = 0;
  size_t window_ = 0;
  size_t fold_interval_ = 0;  // C
  bool silu_ = false;
  size_t base_offset_ = 0;
  size_t tail_offset_ = 0;
  AlignedBuffer<float> weight_;  // [window, padded channels]
  AlignedBuffer<float> bias_;    // [padded channels]
  AlignedBuffer<float> zeros_;   // [padded channels]: an input before the sequence
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_SHORT_CONVOLUTION_SHORT_CONVOLUTION_H_
