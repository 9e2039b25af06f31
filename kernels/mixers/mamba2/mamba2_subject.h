// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba-2's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_SUBJECT_H_

#include <memory>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mamba2/mamba2_config.h"

namespace rivulet {

// Decay rates A are drawn from [-fastest, -slowest).
Mamba2Constants DrawMamba2Constants(const HeadShape& shape, double slowest, double fastest);
DrawnInputs Mamba2Inputs();

std::unique_ptr<DeclaredSubject> MakeMamba2Subject(const HeadShape& shape, double slowest,
                                                   double fastest);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_SUBJECT_H_
