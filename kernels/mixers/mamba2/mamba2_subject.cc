// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_subject.h"

#include "kernels/mixers/mamba2/mamba2_reference.h"

namespace rivulet {

Mamba2Constants DrawMamba2Constants(const HeadShape& shape, double slowest, double fastest) {
  Mamba2Constants constants;
  for (size_t i = 0; i < shape.heads; ++i) {
    constants.a.push_back(GeneratedFloat("A", 0, i, -fastest, -slowest));
  }
  for (size_t i = 0; i < shape.heads * shape.value_dim; ++i) {
    constants.d.push_back(GeneratedFloat("D", 0, i, 0.5, 1.5));
  }
  return constants;
}

DrawnInputs Mamba2Inputs() {
  return {.q = {"C"}, .k = {"B"}, .v = {"x"}, .decay = {"delta", 0.001, 1.0}};
}

std::unique_ptr<DeclaredSubject> MakeMamba2Subject(const HeadShape& shape, double slowest,
                                                   double fastest) {
  const Mamba2Constants constants = DrawMamba2Constants(shape, slowest, fastest);
  return std::make_unique<DeclaredSubject>(
      Mamba2Declaration(shape, constants), Mamba2Inputs(),
      [=](const TokenInputs& inputs) { return Mamba2Reference(shape, constants, inputs); });
}

}  // namespace rivulet
