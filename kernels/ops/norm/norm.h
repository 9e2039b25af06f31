// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RMSNorm, LayerNorm, the two gated norms of the field, and l2norm (docs/mixers.md#norms). All are
// per row and fp32; squares are summed over blocks of 16 in one chain a lane, then down a fixed
// tree, so a row's bits depend on that row alone.
//
// Rows of heads: x is [T, H * head_stride] seen as T*H rows; a head's first `width` numbers count.
//
// Threading: pure functions. y may be x itself; otherwise they must not overlap.
#ifndef RIVULET_KERNELS_OPS_NORM_NORM_H_
#define RIVULET_KERNELS_OPS_NORM_NORM_H_

#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"

namespace rivulet {

// y [T, N] = x / sqrt(mean(x²) + eps) · weight [N]. weight null means all ones.
void RmsNorm(ConstFloatMatrix x, const float* weight, float eps, FloatMatrix y, ThreadPool& pool);

// y [T, N] = (x - mean(x)) / sqrt(mean((x - mean(x))²) + eps) · weight [N] + bias [N].
void LayerNorm(ConstFloatMatrix x, const float* weight, const float* bias, float eps, FloatMatrix y,
               ThreadPool& pool);

// Per-head norm, then gate (fla FusedRMSNormGated):
//   y[t, h*E + i] = rms(x[t, h]) · weight[i] · silu(gate[t, h*E + i])
// x [T, H * head_stride] (head_stride >= width = E, as the recurrence writes it), weight [E],
// gate [T, H*E] or null data for no gate, y [T, H*E] contiguous heads. y must not overlap x.
void HeadNormGate(ConstFloatMatrix x, size_t heads, size_t width, size_t head_stride,
                  const float* weight, float eps, ConstFloatMatrix gate, FloatMatrix y,
                  ThreadPool& pool);

// Gate, then norm over groups of N / groups channels (Mamba-2; docs/mixers.md#mamba-2):
//   u = x · silu(gate);  y = u / sqrt(mean_group(u²) + eps) · weight [N]
// x, gate, y [T, N].
void GateThenNorm(ConstFloatMatrix x, ConstFloatMatrix gate, size_t groups, const float* weight,
                  float eps, FloatMatrix y, ThreadPool& pool);

// In place: each of the T*H head rows (`width` numbers at head_stride) becomes
// scale · x / sqrt(Σx² + 1e-6), eps inside the root.
void L2NormHeads(FloatMatrix x, size_t heads, size_t width, size_t head_stride, float scale,
                 ThreadPool& pool);

// Σ x[i]·y[i] in the fixed order that every norm here uses; for tests and for mixers.
float OrderedDot(const float* x, const float* y, size_t count);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_NORM_NORM_H_
