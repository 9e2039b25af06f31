// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Attention over latents without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_SUBJECT_H_

#include <cstddef>
#include <memory>

#include "kernels/base/dtype.h"
#include "kernels/mixers/core_subject.h"

namespace rivulet {

struct LatentSubjectShape {
  size_t heads = 0, latent = 0, shared_key = 0;
  DType dtype = DType::kFloat32;
  size_t pool = 0;  // above 0: a token sees some pools of so many tokens, and what is behind them
};

std::unique_ptr<SuiteSubject> MakeLatentAttentionSubject(const LatentSubjectShape& s);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_SUBJECT_H_
