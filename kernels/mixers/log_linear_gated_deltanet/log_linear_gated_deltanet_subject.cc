// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_subject.h"

#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_reference.h"

namespace rivulet {
namespace {

DrawnInputs Drawn(const LogLinearGatedDeltaNetOptions& options) {
  DrawnInputs drawn = DeltaRuleInputs(options.key_dim, options.beta, options.lowest);
  drawn.levels.low = options.lambda_low;
  drawn.levels.high = options.lambda_high;
  return drawn;
}

}  // namespace

LogLinearGatedDeltaNetSubject::LogLinearGatedDeltaNetSubject(const LogLinearGatedDeltaNetOptions& o)
    : DeclaredSubject(DeltaRuleDeclaration(o.shape(), true, o.levels), Drawn(o),
                      [=](const TokenInputs& inputs) {
                        return LogLinearGatedDeltaNetReference(o.shape(), o.levels, inputs);
                      }),
      options_(o) {}

std::vector<double> LogLinearGatedDeltaNetSubject::ReferenceAt(ConstFloatMatrix inputs,
                                                               uint64_t t) const {
  return LogLinearGatedDeltaNetReferenceAt(options_.shape(), options_.levels,
                                           Split(ByField(inputs)), t);
}

}  // namespace rivulet
