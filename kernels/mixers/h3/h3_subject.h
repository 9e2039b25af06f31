// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// H3's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_H3_H3_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_H3_H3_SUBJECT_H_

#include <memory>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/h3/h3_recurrence.h"

namespace rivulet {

// Poles at a distance of `radius` from 0, or down to half of it.
H3Constants DrawnH3Constants(const H3Shape& shape, double radius);

// `forgets`: with a layout that keeps rows of guesses.
std::unique_ptr<SuiteSubject> MakeH3Subject(const H3Shape& shape, double radius,
                                            bool forgets = false);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_H3_H3_SUBJECT_H_
