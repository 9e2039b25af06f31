// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/ngram_embedding/ngram_hash.h"

#include <algorithm>

namespace rivulet {
namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15;  // of SplitMix64
constexpr uint64_t kLayerStep = 10007;

uint64_t SplitMix64(uint64_t x) {
  x += kStep;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

bool IsPrime(uint64_t x) {
  if (x < 2 || (x % 2 == 0 && x != 2)) return false;
  for (uint64_t divisor = 3; divisor * divisor <= x; divisor += 2) {
    if (x % divisor == 0) return false;
  }
  return true;
}

uint64_t PrimeAfter(uint64_t x) {
  do ++x;
  while (!IsPrime(x));
  return x;
}

// Odd, and small enough that a product with a token is below 2^63.
uint64_t Multiplier(const NgramHashConfig& config, size_t i) {
  const uint64_t most = (uint64_t{1} << 63) - 1;
  const uint64_t half = std::max<uint64_t>(1, most / std::max<size_t>(1, config.vocab) / 2);
  const uint64_t seed = config.seed + kLayerStep * config.layer;
  return 2 * (SplitMix64(seed + kStep * (i + 1)) % half) + 1;
}

}  // namespace

NgramHash::NgramHash(const NgramHashConfig& config) {
  for (size_t i = 0; i < config.ngram; ++i) multipliers_.push_back(Multiplier(config, i));
  const size_t heads = (config.ngram - 1) * config.heads;
  uint64_t prime = config.base - 1;
  for (size_t i = 0; i < config.layer * heads; ++i) prime = PrimeAfter(prime);
  for (size_t i = 0; i < heads; ++i) {
    prime = PrimeAfter(prime);
    sizes_.push_back(prime);
    offsets_.push_back(rows_);
    rows_ += prime;
  }
  rows_ = (rows_ + config.multiple - 1) / config.multiple * config.multiple;
}

std::vector<uint64_t> NgramHash::Numbers() const {
  std::vector<uint64_t> numbers = multipliers_;
  numbers.insert(numbers.end(), sizes_.begin(), sizes_.end());
  numbers.insert(numbers.end(), offsets_.begin(), offsets_.end());
  return numbers;
}

void NgramHash::RowsOf(std::span<const uint32_t> tokens, uint32_t* rows) const {
  const size_t each = sizes_.size() / (multipliers_.size() - 1);
  uint64_t mixed = tokens[0] * multipliers_[0];
  for (size_t order = 1; order < multipliers_.size(); ++order) {
    mixed ^= tokens[order] * multipliers_[order];
    for (size_t head = (order - 1) * each; head < order * each; ++head) {
      rows[head] = static_cast<uint32_t>(offsets_[head] + mixed % sizes_[head]);
    }
  }
}

}  // namespace rivulet
