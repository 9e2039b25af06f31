// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// From a projection's columns to padded heads, as kernels/recurrence wants its rows: each head
// starts at a multiple of kBlock floats, and the columns between its width and its padded width are
// zero.
//
// Threading: pure functions over disjoint outputs. x and y must not overlap.
#ifndef RIVULET_KERNELS_OPS_HEADS_HEADS_H_
#define RIVULET_KERNELS_OPS_HEADS_HEADS_H_

#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

// y [T, H * PaddedColumns(width)] = scale · f(x [T, H * width]), head by head, zeros in the padding
// (zeros also where f(0) != 0).
void PadHeads(ConstFloatMatrix x, size_t heads, size_t width, Activation f, float scale,
              FloatMatrix y, ThreadPool& pool);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_HEADS_HEADS_H_
