// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/retnet/retnet_subject.h"

#include "kernels/mixers/retnet/retnet_reference.h"

namespace rivulet {

std::unique_ptr<SuiteSubject> MakeRetNetSubject(const HeadShape& shape) {
  return std::make_unique<DeclaredSubject>(
      RetNetDeclaration(shape), DrawnInputs(),
      [=](const TokenInputs& inputs) { return RetNetReference(shape, inputs); });
}

}  // namespace rivulet
