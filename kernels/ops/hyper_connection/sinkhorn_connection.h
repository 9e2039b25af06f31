// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Manifold-constrained hyper-connections (Xie et al. 2026), as GLM-5.3-Flash has them
// (docs/mixers.md#hyper-connections). For streams s_1 ... s_N of one token and a block f:
//
//   w = W rms([s_1 | ... | s_N])                    2N + N² numbers: w^in, w^out, w^mix
//   a = σ(α_1 w^in + b^in) + eps                    b = 2 σ(α_2 w^out + b^out)
//   M = sinkhorn(softmax of rows(α_3 w^mix + b^mix) + eps)
//   x = Σ_n a_n s_n        s'_m = b_m f(x) + Σ_n M[n, m] s_n
//
// sinkhorn divides columns by their sums (+ eps), then rows and columns in turn for the remaining
// rounds, so that both sum to about 1 in the end.
//
// Threading: hyper_connection.h.
#ifndef RIVULET_KERNELS_OPS_HYPER_CONNECTION_SINKHORN_CONNECTION_H_
#define RIVULET_KERNELS_OPS_HYPER_CONNECTION_SINKHORN_CONNECTION_H_

#include <array>
#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/ops/hyper_connection/hyper_connection.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

inline constexpr size_t kMostSinkhornRounds = 1000;

struct SinkhornForm {
  size_t streams = 0;          // N, at most kMostStreams
  size_t sinkhorn_rounds = 1;  // at least 1, the first of columns alone
  float eps = 0;
  float norm_eps = 0;

  // Of one token: w^in, w^out and the rows of w^mix.
  size_t weights() const { return (2 + streams) * streams; }
};

class SinkhornConnection : public HyperConnection {
 public:
  // map: W [weights, N · hidden]. biases: [weights], as b^in, b^out and the rows of b^mix. scales:
  // α_1, α_2, α_3.
  SinkhornConnection(const SinkhornForm& form, Linear map, AlignedBuffer<float> biases,
                     const std::array<float, 3>& scales);

  FloatMatrix Collapse(ConstFloatMatrix streams, FloatMatrix x, Workspace& workspace,
                       ThreadPool& pool) const override;
  void Expand(ConstFloatMatrix output, ConstFloatMatrix weights, FloatMatrix streams,
              ThreadPool& pool) const override;
  FloatMatrix EnqueueCollapse(const DeviceStep& step, ConstFloatMatrix streams,
                              FloatMatrix x) const override;
  void EnqueueExpand(const DeviceStep& step, ConstFloatMatrix output, ConstFloatMatrix weights,
                     FloatMatrix streams) const override;

 private:
  void Weigh(float* weights) const;

  SinkhornForm form_;
  Linear map_;
  AlignedBuffer<float> biases_;
  std::array<float, 3> scales_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_HYPER_CONNECTION_SINKHORN_CONNECTION_H_
