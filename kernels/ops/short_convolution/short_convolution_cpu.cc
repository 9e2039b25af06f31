// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/ops/short_convolution/short_convolution.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/short_convolution/short_convolution_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"
#include "kernels/device/device.h"
#include "kernels/device/device_operations.h"
#include "kernels/ops/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// y = [silu](bias + Σ_j weight[j] · rows[j]) for `count` channels. rows[j] and weight + j * stride
// are padded; y is not. One chain: bias, then j ascending.
void ConvolveToken(const float* const* rows, size_t window, const float* weight, size_t stride,
                   const float* bias, bool silu, float* y, size_t count) {
  ForEachBlock(count, [=](size_t i, size_t n) HWY_ATTR {
    Block sum = LoadBlock(bias + i);
    for (size_t j = 0; j < window; ++j) {
      sum = MulAdd(LoadBlock(weight + j * stride + i), LoadBlock(rows[j] + i), sum);
    }
    StoreUpTo(silu ? SiluBlock(sum) : sum, y + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ConvolveToken);

namespace {

// Channels are cut into groups of whole blocks, so that tasks touch disjoint columns of the state.
constexpr size_t kGroupChannels = 512;

AlignedBuffer<float> PadBias(const AlignedBuffer<float>& bias, size_t channels) {
  AlignedBuffer<float> padded(PaddedColumns(channels));
  for (size_t c = 0; c < std::min(channels, bias.size()); ++c) padded[c] = bias[c];
  return padded;
}

// [channels, window] → [window, padded channels]
AlignedBuffer<float> TransposeWeight(const AlignedBuffer<float>& weight, size_t channels,
                                     size_t window) {
  const size_t stride = PaddedColumns(channels);
  AlignedBuffer<float> transposed(window * stride);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t j = 0; j < window; ++j) transposed[j * stride + c] = weight[c * window + j];
  }
  return transposed;
}

}  // namespace

ShortConvolution::ShortConvolution(AlignedBuffer<float> weight, AlignedBuffer<float> bias,
                                   size_t channels, size_t window, bool silu, std::string_view name,
                                   StateLayout& layout)
    : channels_(channels),
      window_(window),
      fold_interval_(layout.fold_interval()),
      silu_(silu),
      weight_(TransposeWeight(weight, channels, window)),
      bias_(PadBias(bias, channels)),
      zeros_(PaddedColumns(channels)) {
  RIVULET_CHECK(window >= 2 && window <= kMaxConvolutionWindow, "convolution window out of range");
  RIVULET_CHECK(weight.size() == channels * window, "convolution weight is not [channels, window]");
  RIVULET_CHECK(bias.empty() || bias.size() == channels, "convolution bias is not [channels]");
  const size_t stride = PaddedColumns(channels);
  const DType dtype = layout.row_dtype();
  const std::string plane(name);
  base_offset_ = layout.Add(StatePart::kBase, plane + ".before", dtype, {window - 1, stride});
  tail_offset_ = layout.Add(StatePart::kTail, plane + ".tail", dtype, {fold_interval_, stride});
}

// One piece (at most a chunk) of one segment, for the channels [first, first + count).
struct ShortConvolution::PieceState {
  const float* before;  // [W-1, padded channels]: the inputs before the chunk; null: zeros
  float* after;         // the same for the next chunk; may be `before`
  float* tail;          // [C, padded channels]
};

void ShortConvolution::ApplyPiece(const ChunkPiece& piece, const PieceState& state,
                                  ConstFloatMatrix x, FloatMatrix y, size_t first,
                                  size_t count) const {
  const auto convolve = HWY_DYNAMIC_DISPATCH(ConvolveToken);
  const size_t stride = PaddedColumns(channels_);
  const float* rows[kMaxConvolutionWindow];
  for (size_t place = piece.begin; place < piece.end; ++place) {
    const size_t token = piece.first_token + place - piece.begin;
    std::memcpy(state.tail + place * stride + first, x.row(token) + first, count * sizeof(float));
    for (size_t j = 0; j < window_; ++j) {
      // Input `place - (W-1) + j` of the chunk; negative places are rows of the base.
      const size_t row = place + j;
      if (row >= window_ - 1) {
        rows[j] = first + state.tail + (row - (window_ - 1)) * stride;
      } else {
        rows[j] = first + (state.before == nullptr ? zeros_.data() : state.before + row * stride);
      }
    }
    convolve(rows, window_, weight_.data() + first, stride, bias_.data() + first, silu_,
             y.row(token) + first, count);
  }
  if (!piece.folds) return;
  for (size_t j = 0; j < window_ - 1; ++j) {
    const float* row = state.tail + (fold_interval_ - (window_ - 1) + j) * stride;
    std::memcpy(state.after + j * stride + first, row + first, count * sizeof(float));
  }
}

void ShortConvolution::ApplySegment(const Segment& segment, const LayerState& state,
                                    ConstFloatMatrix x, FloatMatrix y, size_t first,
                                    size_t count) const {
  float* tail = state.Tail<float>(segment.tail, tail_offset_);
  ForEachChunkPiece(segment, fold_interval_, [&](const ChunkPiece& piece) {
    const bool fresh = segment.position / fold_interval_ + piece.fold == 0;
    const float* before = state.Base<float>(segment.BaseBefore(piece.fold), base_offset_);
    const uint32_t to = piece.folds ? segment.BaseAfter(piece.fold) : segment.base_out;
    float* after = state.Base<float>(to, base_offset_);
    ApplyPiece(piece, {fresh ? nullptr : before, after, tail}, x, y, first, count);
  });
}

DeviceConvolution ShortConvolution::OnDevice(Device& device, ConstFloatMatrix x) const {
  return {.x = x.data,
          .x_stride = static_cast<uint32_t>(x.stride),
          .weight = device.Constant({weight_.data(), weight_.size()}),
          .bias = device.Constant({bias_.data(), bias_.size()}),
          .channels = static_cast<uint32_t>(channels_),
          .weight_stride = static_cast<uint32_t>(PaddedColumns(channels_)),
          .window = static_cast<uint32_t>(window_),
          .silu = silu_,
          .before_offset = base_offset_,
          .tail_offset = tail_offset_};
}

void ShortConvolution::Apply(std::span<const Segment> segments, const LayerState& state,
                             ConstFloatMatrix x, FloatMatrix y, ThreadPool& pool) const {
  size_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.tokens;
  const size_t groups = (channels_ + kGroupChannels - 1) / kGroupChannels;
  const size_t pieces = groups * segments.size();
  const size_t tasks = UsefulTasks(pool, tokens * channels_, pieces);
  pool.ParallelFor(tasks, [&](size_t task) {
    for (size_t i = pieces * task / tasks; i < pieces * (task + 1) / tasks; ++i) {
      const size_t first = i % groups * kGroupChannels;
      const size_t count = std::min(kGroupChannels, channels_ - first);
      ApplySegment(segments[i / groups], state, x, y, first, count);
    }
  });
}

}  // namespace rivulet
#endif  // HWY_ONCE
