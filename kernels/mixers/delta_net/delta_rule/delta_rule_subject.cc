// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"

#include <cmath>
#include <utility>

#include "kernels/mixers/delta_net/delta_rule/delta_rule_reference.h"
#include "nlohmann/json.hpp"

namespace rivulet {

DrawnInputs DeltaRuleInputs(size_t key_dim, double beta, double lowest) {
  const double key = std::sqrt(3.0 / static_cast<double>(key_dim));
  DrawnInputs drawn;
  drawn.k.low = -key;
  drawn.k.high = key;
  drawn.beta.high = beta;
  drawn.decay.low = lowest;
  return drawn;
}

std::unique_ptr<DeclaredSubject> MakeDeltaRuleSubject(const HeadShape& shape, double beta,
                                                      double lowest) {
  const Decay decay = lowest < 0 ? Decay::kScalar : Decay::kNone;
  return std::make_unique<DeclaredSubject>(
      DeltaRuleDeclaration(shape, lowest < 0), DeltaRuleInputs(shape.key_dim, beta, lowest),
      [=](const TokenInputs& inputs) { return DeltaRuleReference(shape, inputs, decay); });
}

SuiteCase DeltaRuleCase(std::string name, const HeadShape& shape, double beta, double lowest) {
  return {std::move(name), [=] { return MakeDeltaRuleSubject(shape, beta, lowest); }};
}

std::unique_ptr<SuiteSubject> DeltaRuleSubjectOf(const nlohmann::json& p) {
  const HeadShape shape{p.at("value_heads"), p.at("key_heads"), p.at("key_dim"), p.at("value_dim")};
  return MakeDeltaRuleSubject(shape, p.at("beta"), p.value("lowest", 0.0));
}

}  // namespace rivulet
