// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Counts calls of operator new in a test program that links the mixer suite. Memory from malloc
// itself is not seen. Always zero under a sanitizer, which has an operator new of its own.
#ifndef RIVULET_KERNELS_MIXERS_ALLOCATION_COUNTER_H_
#define RIVULET_KERNELS_MIXERS_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace rivulet {

// Of all threads since the program started.
uint64_t AllocationCount();

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ALLOCATION_COUNTER_H_
