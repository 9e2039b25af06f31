// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Lightning attention's recurrence without its layer, as a subject of the mixer suite. For tests
// only.
#ifndef RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_SUBJECT_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/mixers/core_subject.h"

namespace rivulet {

// Log decays of heads, from one that forgets in a few tokens to one that hardly does.
std::vector<double> LightningDecays(size_t heads);

std::unique_ptr<SuiteSubject> MakeLightningAttentionSubject(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_SUBJECT_H_
