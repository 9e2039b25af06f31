// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Residual streams on a device (kernels/ops/hyper_connection): what a block reads of N streams, and
// the next streams. The maps and norms before them are other operations.
//
// Bits: a token's numbers depend on that token alone.
//
// Letters: T tokens, N streams of h = hidden numbers, side by side: stream n of a token has columns
// n · h to (n + 1) · h.
#ifndef RIVULET_KERNELS_DEVICE_STREAM_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_STREAM_OPERATIONS_H_

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

inline constexpr uint32_t kMostDeviceStreams = 8;

enum class StreamForm : uint8_t {
  kMean,      // y = the mean of the streams
  kSinkhorn,  // sinkhorn_connection.h
  kGated,     // gated_connection.h
};

// y [T, h] of N streams:
//
//   kMean      y = Σ_n s_n / N
//   kSinkhorn  weights: scale ∘ w + bias to a, b and M in place; y = Σ_n a_n s_n
//   kGated     y = Σ_n σ(weights_n) ∘ normed_n
struct CollapseStreamsCall {
  StreamForm form = StreamForm::kMean;
  uint32_t streams = 0;         // N, at most kMostDeviceStreams
  ConstFloatMatrix x = {};      // [T, N · h]; not read by kGated
  Operand normed = {};          // [T, N · h], of kGated
  FloatMatrix weights = {};     // [T, (2 + N) · N] or [T, N · h]
  const float* bias = nullptr;  // [(2 + N) · N]
  float scales[3] = {};         // of a, b and M
  uint32_t rounds = 0;          // of sinkhorn
  float eps = 0;
  FloatMatrix y = {};
};

// x = the next streams, of a block's output [T, h]:
//
//   kSinkhorn  s'_m = Σ_n M[n, m] s_n + b_m output
//   kGated     s'_m = s_m + 2 σ(weights_m) output
struct ExpandStreamsCall {
  StreamForm form = StreamForm::kSinkhorn;
  uint32_t streams = 0;
  ConstFloatMatrix output;
  ConstFloatMatrix weights;  // kSinkhorn: as collapsing left them; kGated: [T, N]
  FloatMatrix x;             // [T, N · h]
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_STREAM_OPERATIONS_H_
