// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// AHLA by its definition, in fp64: o = (W W) V with W_ts = γ^{t-s} q_t·k_s for s <= t (mixers.md
// 12). O(T³), no recurrence, no chunk: slow on purpose. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_HLA_AHLA_AHLA_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_HLA_AHLA_AHLA_REFERENCE_H_

#include <vector>

#include "kernels/mixers/hla/hla_subject.h"

namespace rivulet {

// Outputs [T, E].
std::vector<double> AhlaReference(const HeadSequence& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_AHLA_AHLA_REFERENCE_H_
