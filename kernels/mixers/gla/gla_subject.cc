// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gla/gla_subject.h"

#include "kernels/mixers/gla/gla_reference.h"

namespace rivulet {

std::unique_ptr<SuiteSubject> MakeGlaSubject(const HeadShape& shape, double lowest) {
  DrawnInputs drawn;
  drawn.decay.low = lowest;
  return std::make_unique<DeclaredSubject>(
      GlaDeclaration(shape), drawn,
      [=](const TokenInputs& inputs) { return GlaReference(shape, inputs); });
}

}  // namespace rivulet
