// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How fla's attention layers write what follows their recurrence: an RMSNorm of each head and, with
// use_output_gate, a SiLU gate (docs/mixers.md#norms, #gla).
#ifndef RIVULET_KERNELS_MIXERS_FLA_OUTPUT_H_
#define RIVULET_KERNELS_MIXERS_FLA_OUTPUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct FlaOutput {
  bool gate = true;       // g_proj exists
  std::string norm_name;  // tensor prefix: "g_norm_swish_gate" or "g_norm"
  bool affine = true;     // the norm has a weight
  float norm_eps = 1e-6f;
};

// The gated norm's weight is named after how fla fuses it; the arithmetic is the same.
// INVALID_ARGUMENT names key, value and remedy.
absl::StatusOr<FlaOutput> ParseFlaOutput(const nlohmann::json& json);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_FLA_OUTPUT_H_
