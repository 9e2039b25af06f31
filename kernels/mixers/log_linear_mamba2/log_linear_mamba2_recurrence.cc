// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_recurrence.h"

namespace rivulet {

RecurrenceDeclaration LogLinearMamba2Declaration(const HeadShape& shape, uint32_t levels,
                                                 const Mamba2Constants& constants) {
  RecurrenceDeclaration declaration = Mamba2Declaration(shape, constants);
  declaration.levels = levels;
  return declaration;
}

}  // namespace rivulet
