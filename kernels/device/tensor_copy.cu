// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Descriptions of matrices for the copy engine. A function of the driver makes them. It is looked
// up at run time, because a program that is linked with the driver does not start on machines
// without.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "kernels/device/tensor_copy.cuh"

namespace rivulet::cuda {
namespace {

// Of numbers in bf16: sizes and the box's sizes, innermost first, and the distances of the others.
template <size_t kDimensions>
bool Describe(const void* data, const cuuint64_t (&sizes)[kDimensions],
              const cuuint64_t (&bytes)[kDimensions - 1], const cuuint32_t (&box)[kDimensions],
              CUtensorMap& map) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                     &found);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  cuuint32_t steps[kDimensions];
  std::fill_n(steps, kDimensions, 1);
  return encode != nullptr &&
         encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(kDimensions),
                const_cast<void*>(data), sizes, bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool DescribeMatrix(const void* data, uint32_t rows, uint32_t columns, uint32_t stride,
                    uint32_t box_rows, CUtensorMap& map) {
  return Describe(data, {columns, rows}, {stride * sizeof(uint16_t)}, {kBoxColumns, box_rows}, map);
}

bool DescribeWholeMatrix(const void* data, uint32_t rows, uint32_t stride, uint32_t box_rows,
                         uint32_t boxes, CUtensorMap& map) {
  return Describe(data, {kBoxColumns, rows, stride / kBoxColumns},
                  {stride * sizeof(uint16_t), kBoxRowBytes}, {kBoxColumns, box_rows, boxes}, map);
}

}  // namespace rivulet::cuda
