// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Views of activations: rows of numbers in memory that they do not own. A view is two words and a
// shape; it never allocates, frees or checks bounds. It does not know whether the memory is the
// host's or a device's.
#ifndef RIVULET_KERNELS_BASE_TENSOR_VIEW_H_
#define RIVULET_KERNELS_BASE_TENSOR_VIEW_H_

#include <cstddef>

namespace rivulet {

// [rows, columns], row r starts at data + r * stride. stride >= columns, counted in elements.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  size_t rows = 0;
  size_t columns = 0;
  size_t stride = 0;

  T* row(size_t r) const { return data + r * stride; }
  // The same rows, columns [first, first + count).
  MatrixView Columns(size_t first, size_t count) const {
    return {data + first, rows, count, stride};
  }
  // Rows [first, first + count), every column.
  MatrixView Rows(size_t first, size_t count) const {
    return {data + first * stride, count, columns, stride};
  }
  // Implicit, as T* converts to const T*.
  operator MatrixView<const T>() const {  // NOLINT(google-explicit-constructor)
    return {data, rows, columns, stride};
  }
};

using FloatMatrix = MatrixView<float>;
using ConstFloatMatrix = MatrixView<const float>;

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_TENSOR_VIEW_H_
