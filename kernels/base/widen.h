// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Numbers of any dtype as fp32, exactly. The bytes may have any alignment. Pure functions.
#ifndef RIVULET_KERNELS_BASE_WIDEN_H_
#define RIVULET_KERNELS_BASE_WIDEN_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/dtype.h"

namespace rivulet {

// The number at `index` of data.
inline float NumberAt(const std::byte* data, DType dtype, size_t index) {
  const std::byte* from = data + index * DTypeSize(dtype);
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return dtype == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
}

// out [count] = data [count].
inline void WidenToFloat(const std::byte* data, DType dtype, size_t count, float* out) {
  if (dtype == DType::kFloat32) {
    if (count != 0) std::memcpy(out, data, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) out[i] = NumberAt(data, dtype, i);
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_WIDEN_H_
