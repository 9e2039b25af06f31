// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Hyper-connections: the residual of a block over N streams instead of one
// (docs/mixers.md#hyper-connections). A connection makes the block's input of the streams, and the
// next streams of its output. Each form has a file: sinkhorn_connection.h, gated_connection.h.
//
// It keeps no state and knows neither the block nor its norm.
// Bits: a token's numbers depend on that token alone. Threading: constant after construction.
#ifndef RIVULET_KERNELS_OPS_HYPER_CONNECTION_HYPER_CONNECTION_H_
#define RIVULET_KERNELS_OPS_HYPER_CONNECTION_HYPER_CONNECTION_H_

#include <cstddef>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/device_step.h"
#include "kernels/device/stream_operations.h"

namespace rivulet {

inline constexpr size_t kMostStreams = 8;
static_assert(kMostStreams <= kMostDeviceStreams);

class HyperConnection {
 public:
  virtual ~HyperConnection() = default;

  // x [T, hidden] of streams [T, N · hidden], side by side. Returns what Expand needs, which is in
  // the workspace with the temporaries [T, N · hidden].
  virtual FloatMatrix Collapse(ConstFloatMatrix streams, FloatMatrix x, Workspace& workspace,
                               ThreadPool& pool) const = 0;

  // streams = the next ones, of the block's output [T, hidden].
  virtual void Expand(ConstFloatMatrix output, ConstFloatMatrix weights, FloatMatrix streams,
                      ThreadPool& pool) const = 0;

  // The same on the device that the maps are packed for.
  virtual FloatMatrix EnqueueCollapse(const DeviceStep& step, ConstFloatMatrix streams,
                                      FloatMatrix x) const = 0;
  virtual void EnqueueExpand(const DeviceStep& step, ConstFloatMatrix output,
                             ConstFloatMatrix weights, FloatMatrix streams) const = 0;
};

// Each of the N streams = x [T, hidden], before the first block.
void SpreadToStreams(ConstFloatMatrix x, FloatMatrix streams, ThreadPool& pool);

// x = the mean of the streams, after the last block.
void MeanOfStreams(ConstFloatMatrix streams, FloatMatrix x, ThreadPool& pool);

// The same on a device.
void EnqueueSpread(Device& device, ConstFloatMatrix x, FloatMatrix streams);
void EnqueueMean(Device& device, ConstFloatMatrix streams, FloatMatrix x);

// The streams as the input of a map on a device: rms over each `width` columns, times `weight`
// [N · hidden], if it has numbers.
Operand EnqueueStreamNorm(const DeviceStep& step, ConstFloatMatrix streams, size_t width,
                          std::span<const float> weight, float eps);

// to = Σ_n weights[n · stride] · stream n over `count` columns, streams ascending; their rows are
// `hidden` apart.
void SumStreams(const float* weights, size_t stride, const float* streams, size_t n, size_t hidden,
                float* to, size_t count);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_HYPER_CONNECTION_HYPER_CONNECTION_H_
