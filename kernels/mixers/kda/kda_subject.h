// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// KDA's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_KDA_KDA_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_KDA_KDA_SUBJECT_H_

#include <memory>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/kda/kda_config.h"

namespace rivulet {

// β and log decays as of DeltaRuleInputs.
std::unique_ptr<SuiteSubject> MakeKdaSubject(const HeadShape& shape, double beta, double lowest);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_KDA_KDA_SUBJECT_H_
