// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The hyper-connections of Qwen4-Exp (docs/mixers.md#hyper-connections). For streams s_1 ... s_N of
// one token, a block f, and n_i = rms(s_i) · w_i, each stream with a norm of its own:
//
//   g = σ(U silu(D [n_1 | ... | n_N] / N))        of rank R; N · hidden numbers
//   x = Σ_i g_i ∘ n_i / N        s'_i = s_i + 2 σ(B [n_1 | ... | n_N] / N)_i f(x)
//
// Threading: hyper_connection.h.
#ifndef RIVULET_KERNELS_OPS_HYPER_CONNECTION_GATED_CONNECTION_H_
#define RIVULET_KERNELS_OPS_HYPER_CONNECTION_GATED_CONNECTION_H_

#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/ops/hyper_connection/hyper_connection.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

struct GatedForm {
  size_t streams = 0;   // N, at most kMostStreams
  size_t rank = 0;      // R
  bool expands = true;  // else there is no B, and Expand must not be called
  float norm_eps = 0;

  // What `down` computes: D, and B behind it.
  size_t outputs() const { return rank + (expands ? streams : 0); }
};

class GatedConnection : public HyperConnection {
 public:
  // norm: w [N · hidden]. down: D and B as one map of N · hidden inputs; up: U [N · hidden, R].
  GatedConnection(const GatedForm& form, AlignedBuffer<float> norm, Linear down, Linear up);

  FloatMatrix Collapse(ConstFloatMatrix streams, FloatMatrix x, Workspace& workspace,
                       ThreadPool& pool) const override;
  void Expand(ConstFloatMatrix output, ConstFloatMatrix weights, FloatMatrix streams,
              ThreadPool& pool) const override;
  FloatMatrix EnqueueCollapse(const DeviceStep& step, ConstFloatMatrix streams,
                              FloatMatrix x) const override;
  void EnqueueExpand(const DeviceStep& step, ConstFloatMatrix output, ConstFloatMatrix weights,
                     FloatMatrix streams) const override;

 private:
  GatedForm form_;
  AlignedBuffer<float> norm_;
  AlignedBuffer<float> norm_share_;  // w / N, for a device
  Linear down_, up_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_HYPER_CONNECTION_GATED_CONNECTION_H_
