// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Gated linear attention's recurrence without its layer, as a subject of the mixer suite. For tests
// only.
#ifndef RIVULET_KERNELS_MIXERS_GLA_GLA_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_GLA_GLA_SUBJECT_H_

#include <memory>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/gla/gla_config.h"

namespace rivulet {

// Log decays are drawn from [lowest, 0).
std::unique_ptr<SuiteSubject> MakeGlaSubject(const HeadShape& shape, double lowest);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GLA_GLA_SUBJECT_H_
