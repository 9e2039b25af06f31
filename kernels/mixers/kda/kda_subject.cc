// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/kda/kda_subject.h"

#include "kernels/mixers/delta_net/delta_rule/delta_rule_reference.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"

namespace rivulet {

std::unique_ptr<SuiteSubject> MakeKdaSubject(const HeadShape& shape, double beta, double lowest) {
  return std::make_unique<DeclaredSubject>(
      KdaDeclaration(shape), DeltaRuleInputs(shape.key_dim, beta, lowest),
      [=](const TokenInputs& inputs) {
        return DeltaRuleReference(shape, inputs, Decay::kChannel);
      });
}

}  // namespace rivulet
