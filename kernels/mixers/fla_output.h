// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What follows the recurrence in fla's attention layers: an RMSNorm of each head and, with a gate,
// SiLU of it (docs/mixers.md#norms, #gla). fla names the norm's weight after how it fuses the two;
// the arithmetic is the same.
#ifndef RIVULET_KERNELS_MIXERS_FLA_OUTPUT_H_
#define RIVULET_KERNELS_MIXERS_FLA_OUTPUT_H_

#include <string>

namespace rivulet {

struct FlaOutput {
  bool gate = true;       // g_proj exists
  std::string norm_name;  // tensor prefix: "g_norm_swish_gate" or "g_norm"
  bool affine = true;     // the norm has a weight
  float norm_eps = 1e-6f;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_FLA_OUTPUT_H_
