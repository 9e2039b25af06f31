// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How fla's attention layers write their head sizes: num_heads, num_kv_heads, expand_k, expand_v
// over the hidden size (docs/mixers.md#linear-attention, #gla).
#ifndef RIVULET_KERNELS_MIXERS_FLA_HEADS_H_
#define RIVULET_KERNELS_MIXERS_FLA_HEADS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct FlaHeads {
  size_t heads = 0;
  size_t kv_heads = 0;   // divides heads
  size_t key_dim = 0;    // of one head: hidden · expand_k / heads
  size_t value_dim = 0;  // of one head: hidden · expand_v / heads
};

// Defaults: num_kv_heads = num_heads, and what is given here. INVALID_ARGUMENT
// names key, value and remedy when a width does not divide.
absl::StatusOr<FlaHeads> ParseFlaHeads(const nlohmann::json& json, size_t hidden,
                                       double default_expand_k, double default_expand_v,
                                       size_t default_heads = 4);

// INVALID_ARGUMENT if keys are wider than kMaxKeyDim.
absl::Status CheckKeyWidth(const FlaHeads& heads);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_FLA_HEADS_H_
