// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How often each token has occurred: what the penalties need of a history, in space of the distinct
// tokens and not of the history's length. A fork of a session copies it.
//
// Threading: like a container.
#ifndef RIVULET_KERNELS_OPS_SAMPLING_TOKEN_COUNTS_H_
#define RIVULET_KERNELS_OPS_SAMPLING_TOKEN_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"

namespace rivulet {

class TokenCounts {
 public:
  void Add(uint32_t token) { ++counts_[token]; }
  void Add(std::span<const uint32_t> tokens) {
    for (uint32_t token : tokens) Add(token);
  }
  void Clear() { counts_.clear(); }

  bool empty() const { return counts_.empty(); }
  size_t distinct() const { return counts_.size(); }
  uint32_t count(uint32_t token) const {
    const auto found = counts_.find(token);
    return found == counts_.end() ? 0 : found->second;
  }

  // visit(token, count) for each token that occurred, in no particular order.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (const auto& [token, count] : counts_) visit(token, count);
  }

 private:
  absl::flat_hash_map<uint32_t, uint32_t> counts_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_SAMPLING_TOKEN_COUNTS_H_
