// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Linear attention's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_SUBJECT_H_

#include <memory>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/linear_attention/linear_attention_config.h"

namespace rivulet {

std::unique_ptr<SuiteSubject> MakeLinearAttentionSubject(const HeadShape& shape, bool normalised);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_SUBJECT_H_
