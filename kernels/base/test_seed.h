// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where random tests take their seeds from. For tests only.
#ifndef RIVULET_KERNELS_BASE_TEST_SEED_H_
#define RIVULET_KERNELS_BASE_TEST_SEED_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace rivulet {

// RIVULET_TEST_SEED if it is set, else `otherwise`; printed, so that a failure can be replayed.
inline uint64_t ReplaySeed(uint64_t otherwise) {
  const char* given = std::getenv("RIVULET_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
  std::printf("replay with RIVULET_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// The same, a new seed each run unless one is given.
inline uint64_t RandomTestSeed() { return ReplaySeed(std::random_device()()); }

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_TEST_SEED_H_
