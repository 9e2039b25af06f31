// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_SUBJECT_H_

#include <memory>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mamba/mamba_recurrence.h"

namespace rivulet {

// Decay rates A are drawn from [-fastest, -slowest).
MambaConstants DrawnMambaConstants(const MambaShape& shape, double slowest, double fastest);

// `forgets`: with a layout that keeps rows of guesses.
std::unique_ptr<SuiteSubject> MakeMambaSubject(const MambaShape& shape, double slowest,
                                               double fastest, bool forgets = false);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_SUBJECT_H_
