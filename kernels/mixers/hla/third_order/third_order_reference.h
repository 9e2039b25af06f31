// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// HLA third order by its definition, in fp64: the triples (i, u, j) of docs/mixers.md#third-order,
// each with its weight. Where the sums over i and j do not depend on each other they are taken
// apart, so that it is O(T³) and not O(T⁴); no recurrence, no chunk. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_THIRD_ORDER_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_THIRD_ORDER_REFERENCE_H_

#include <cstddef>
#include <vector>

#include "kernels/mixers/hla/hla_subject.h"

namespace rivulet {

struct ThirdOrderReferenceInput : HeadSequence {
  bool paper = false;  // 13b, what Algorithm 3 computes, instead of 13a
};

// Outputs [T, E].
std::vector<double> ThirdOrderReference(const ThirdOrderReferenceInput& input);

// The weight of (q_t·k_i)(q_u·k_i)(q_u·k_j) v_j in the output at t, for i, u, j <= t.
double TripleWeight(bool paper, double gamma, size_t t, size_t i, size_t u, size_t j);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_THIRD_ORDER_REFERENCE_H_
