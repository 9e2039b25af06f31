// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Loops that reach this machine's limits, to judge a kernel by. Only for benchmarks.
#ifndef RIVULET_KERNELS_OPS_LINEAR_MACHINE_LIMITS_H_
#define RIVULET_KERNELS_OPS_LINEAR_MACHINE_LIMITS_H_

#include <cstddef>

#include "kernels/base/thread_pool.h"

namespace rivulet {

// Reads `count` floats (a multiple of 64) and keeps nothing but a sum that the compiler cannot
// drop.
void ReadFloats(const float* data, size_t count);

// Bytes a second that `pool` reads from memory: the best of several passes over `bytes`, which
// should be more than the caches hold, so that shares of it are never flattered.
double ReadBandwidth(ThreadPool& pool, size_t bytes = size_t{1} << 30);

// `rounds` times kFlopsOfRound / 2 multiply-adds in independent chains.
inline constexpr size_t kFlopsOfRound = 2 * 16 * 12;
void MultiplyAdds(size_t rounds);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_LINEAR_MACHINE_LIMITS_H_
