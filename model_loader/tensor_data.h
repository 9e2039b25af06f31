// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks the numbers of a stored tensor in one pass at the speed of memory. The bytes may have any
// alignment. Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_TENSOR_DATA_H_
#define RIVULET_MODEL_LOADER_TENSOR_DATA_H_

#include <cstddef>
#include <optional>

#include "kernels/base/dtype.h"

namespace rivulet {

// The index of the first NaN or infinity of data [count].
std::optional<size_t> FirstNotFinite(const std::byte* data, DType dtype, size_t count);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_TENSOR_DATA_H_
