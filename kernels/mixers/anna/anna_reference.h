// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// ANNA in fp64 from its definition: how often each pair of tokens collides
// (docs/mixers.md#anna-causal-semantics). For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_REFERENCE_H_

#include <vector>

#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_recurrence.h"

namespace rivulet {

// [T * H*Ep]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> AnnaReference(const AnnaShape& shape, const AnnaInput& input);

// The bucket of `x` [d] in table `table` of head `head`, and how far the nearest tie is: the
// smallest |⟨a_j, x⟩|, or the smallest gap between the two largest |y_i|.
struct AnnaBucket {
  size_t bucket = 0;
  double margin = 0;
};
AnnaBucket AnnaBucketReference(const AnnaHashShape& shape, const float* projections, size_t head,
                               size_t table, const float* x);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_REFERENCE_H_
