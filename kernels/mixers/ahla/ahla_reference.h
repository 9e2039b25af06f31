// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// AHLA by its definition, in fp64: o = (W W) V with W_ts = γ^{t-s} q_t·k_s for s <= t (mixers.md
// 12). O(T³), no recurrence, no chunk: slow on purpose. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_AHLA_AHLA_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_AHLA_AHLA_REFERENCE_H_

#include <cstddef>
#include <vector>

namespace rivulet {

// One query head's sequence. q, k [T, D] and v [T, E], row-major without padding.
struct AhlaReferenceInput {
  size_t tokens = 0;
  size_t key_dim = 0;
  size_t value_dim = 0;
  std::vector<double> q, k, v;
  double gamma = 1.0;
  bool normalize = false;
  double denom_eps = 1e-6;
};

// Outputs [T, E].
std::vector<double> AhlaReference(const AhlaReferenceInput& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_AHLA_AHLA_REFERENCE_H_
