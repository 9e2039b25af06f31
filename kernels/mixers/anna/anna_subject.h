// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// ANNA's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_SUBJECT_H_

#include <memory>

#include "kernels/mixers/anna/anna_recurrence.h"
#include "kernels/mixers/core_subject.h"

namespace rivulet {

// Buckets are given and not hashed from anything, so that no rounding of a projection decides about
// the comparison.
std::unique_ptr<SuiteSubject> MakeAnnaSubject(const AnnaShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_SUBJECT_H_
