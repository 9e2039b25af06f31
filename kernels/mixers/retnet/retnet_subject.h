// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RetNet's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_RETNET_RETNET_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_RETNET_RETNET_SUBJECT_H_

#include <memory>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/retnet/retnet_config.h"

namespace rivulet {

std::unique_ptr<SuiteSubject> MakeRetNetSubject(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RETNET_RETNET_SUBJECT_H_
