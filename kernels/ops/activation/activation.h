// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Elementwise functions, one vector exp behind all of them, so that a number's bits do not depend
// on its place in a row (remainders run the same code under a mask). fp32 throughout.
//
// Threading: pure functions; y may be x.
#ifndef RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_H_
#define RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_H_

#include <cstddef>

#include "kernels/base/activation_kind.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"

namespace rivulet {

// y[i] = f(x[i]), i < count. No alignment or padding needed.
void Activate(Activation f, const float* x, float* y, size_t count);

// y[i] = f(gate[i]) · up[i] (SwiGLU with kSilu). y may be gate or up.
void GateMultiply(Activation f, const float* gate, const float* up, float* y, size_t count);

// In place: gate[i] = min(gate[i], limit), up[i] = up[i] within ±limit. NaN stays NaN.
void ClampGateAndUp(float limit, float* gate, float* up, size_t count);

// y[i] = cap · tanh(x[i] / cap) for a cap above 0; NaN where x[i] is not finite.
void SoftCap(float cap, const float* x, float* y, size_t count);

// y = e^{x - max} / Σ, fixed order. Returns log Σ e^x (for log-probabilities).
float Softmax(const float* x, float* y, size_t count);

// log Σ e^{x[i]} in the same fixed order, without writing.
float LogSumExp(const float* x, size_t count);

// From a projection's columns to padded heads, as kernels/recurrence wants its rows:
// y [T, H * PaddedColumns(width)] = scale · f(x [T, H * width]), head by head, zeros in the padding
// (zeros also where f(0) != 0). x and y must not overlap.
void PadHeads(ConstFloatMatrix x, size_t heads, size_t width, Activation f, float scale,
              FloatMatrix y, ThreadPool& pool);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_H_
