// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/linear_attention_subject.h"

#include "kernels/mixers/linear_attention/linear_attention_reference.h"

namespace rivulet {

std::unique_ptr<SuiteSubject> MakeLinearAttentionSubject(const HeadShape& shape, bool normalised) {
  DrawnInputs drawn;
  if (normalised) drawn.q.low = drawn.k.low = 0.0;
  return std::make_unique<DeclaredSubject>(
      LinearAttentionDeclaration(shape, normalised), drawn, [=](const TokenInputs& inputs) {
        return LinearAttentionReference(shape, inputs, normalised);
      });
}

}  // namespace rivulet
