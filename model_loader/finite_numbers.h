// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds NaN and infinity among stored numbers, at the speed of memory. A pure function.
#ifndef RIVULET_MODEL_LOADER_FINITE_NUMBERS_H_
#define RIVULET_MODEL_LOADER_FINITE_NUMBERS_H_

#include <cstddef>
#include <optional>

#include "kernels/base/dtype.h"

namespace rivulet {

// The index of the first number of data [count] that is not finite. Any alignment.
std::optional<size_t> FirstNotFinite(const std::byte* data, DType dtype, size_t count);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_FINITE_NUMBERS_H_
