// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The numbers of a stored tensor: widened to fp32, and searched for those that are none. One pass
// at the speed of memory; the bytes may have any alignment. Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_TENSOR_DATA_H_
#define RIVULET_MODEL_LOADER_TENSOR_DATA_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/base/dtype.h"

namespace rivulet {

// The index of the first NaN or infinity of data [count].
std::optional<size_t> FirstNotFinite(const uint8_t* data, DType dtype, size_t count);

// The number at `index`.
float NumberAt(const uint8_t* data, DType dtype, size_t index);

// out [count] = data [count], exactly.
void WidenToFloat(const uint8_t* data, DType dtype, size_t count, float* out);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_TENSOR_DATA_H_
