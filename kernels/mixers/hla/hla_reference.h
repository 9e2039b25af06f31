// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// HLA second order by its definition, in fp64: the pair weights of docs/mixers.md#hla-definitions,
// summed over every (i, j). O(T³), no recurrence, no chunk: slow on purpose, so that it shares no
// mistake with the code it judges. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_HLA_HLA_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_HLA_HLA_REFERENCE_H_

#include <cstddef>
#include <vector>

#include "kernels/mixers/hla/hla_subject.h"

namespace rivulet {

// One query head's sequence. q, k [T, D] and v [T, E], row-major without padding.
struct HlaReferenceInput : HeadSequence {
  HlaForm form = HlaForm::kMasked;
  double ridge_lambda = 0.0;
};

// Outputs [T, E].
std::vector<double> HlaReference(const HlaReferenceInput& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_REFERENCE_H_
