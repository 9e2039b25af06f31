// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sums and products of whole matrices, number by number and in place. A number's bits depend on the
// numbers at its place alone.
#ifndef RIVULET_KERNELS_BASE_ROW_ARITHMETIC_H_
#define RIVULET_KERNELS_BASE_ROW_ARITHMETIC_H_

#include <cstddef>

#include "kernels/base/parallel.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"

namespace rivulet {

// y += x [rows and columns of x]; y may be wider.
inline void AddRows(ConstFloatMatrix x, FloatMatrix y, ThreadPool& pool) {
  ParallelRows(pool, x.rows, x.columns, [&](size_t row) {
    float* sum = y.row(row);
    const float* term = x.row(row);
    for (size_t i = 0; i < x.columns; ++i) sum[i] += term[i];
  });
}

// y = y ∘ x
inline void MultiplyRows(ConstFloatMatrix x, FloatMatrix y, ThreadPool& pool) {
  ParallelRows(pool, x.rows, x.columns, [&](size_t row) {
    float* product = y.row(row);
    const float* factor = x.row(row);
    for (size_t i = 0; i < x.columns; ++i) product[i] *= factor[i];
  });
}

// y = factor · y
inline void ScaleRows(float factor, FloatMatrix y, ThreadPool& pool) {
  if (factor == 1.0f) return;
  ParallelRows(pool, y.rows, y.columns, [&](size_t row) {
    float* values = y.row(row);
    for (size_t i = 0; i < y.columns; ++i) values[i] *= factor;
  });
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_ROW_ARITHMETIC_H_
