// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The seed of random tests. For tests only.
#ifndef RIVULET_KERNELS_BASE_TEST_SEED_H_
#define RIVULET_KERNELS_BASE_TEST_SEED_H_

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

namespace rivulet {

// The seed for a value of RIVULET_TEST_SEED: unset, the same seed in every run; a number, that
// seed; "random", a new one. Any other value ends the test.
inline uint64_t ParseTestSeed(const char* value) {
  if (value == nullptr) return 20261121;
  const std::string_view text = value;
  if (text == "random") return std::random_device()();
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return seed;
  std::fprintf(stderr, "RIVULET_TEST_SEED=%s is neither a number nor \"random\"\n", value);
  std::abort();
}

// One seed per process, printed, so that a failure can be replayed.
inline uint64_t TestSeed() {
  static const uint64_t seed = ParseTestSeed(std::getenv("RIVULET_TEST_SEED"));
  std::printf("replay with RIVULET_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_TEST_SEED_H_
