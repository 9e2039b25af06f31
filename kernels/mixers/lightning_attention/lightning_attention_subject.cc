// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/lightning_attention/lightning_attention_subject.h"

#include "kernels/mixers/lightning_attention/lightning_attention_config.h"
#include "kernels/mixers/lightning_attention/lightning_attention_reference.h"

namespace rivulet {

std::vector<double> LightningDecays(size_t heads) {
  std::vector<double> decays;
  for (size_t h = 0; h < heads; ++h) decays.push_back(-0.5 / static_cast<double>(1 << (3 * h)));
  return decays;
}

std::unique_ptr<SuiteSubject> MakeLightningAttentionSubject(const HeadShape& shape) {
  const std::vector<double> decays = LightningDecays(shape.heads);
  return std::make_unique<DeclaredSubject>(
      LightningAttentionDeclaration(shape, decays), DrawnInputs(), [=](const TokenInputs& inputs) {
        return LightningAttentionReference(shape, decays, inputs);
      });
}

}  // namespace rivulet
