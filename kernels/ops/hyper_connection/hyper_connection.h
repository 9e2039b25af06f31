// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Hyper-connections: the residual of a block over N streams instead of one
// (docs/mixers.md#hyper-connections). A connection makes the block's input of the streams, and the
// next streams of its output. Each form has a file: sinkhorn_connection.h, gated_connection.h.
//
// It keeps no state and knows neither the block nor its norm. On the CPU only.
// Bits: a token's numbers depend on that token alone. Threading: constant after construction.
#ifndef RIVULET_KERNELS_OPS_HYPER_CONNECTION_HYPER_CONNECTION_H_
#define RIVULET_KERNELS_OPS_HYPER_CONNECTION_HYPER_CONNECTION_H_

#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"

namespace rivulet {

inline constexpr size_t kMostStreams = 8;

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
};

// Each of the N streams = x [T, hidden], before the first block.
void SpreadToStreams(ConstFloatMatrix x, FloatMatrix streams, ThreadPool& pool);

// x = the mean of the streams, after the last block.
void MeanOfStreams(ConstFloatMatrix streams, FloatMatrix x, ThreadPool& pool);

// to = Σ_n weights[n · stride] · stream n over `count` columns, streams ascending; their rows are
// `hidden` apart.
void SumStreams(const float* weights, size_t stride, const float* streams, size_t n, size_t hidden,
                float* to, size_t count);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_HYPER_CONNECTION_HYPER_CONNECTION_H_
