// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule's recurrence without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_SUBJECT_H_

#include <memory>
#include <string>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// β is drawn from [0, beta), log decays from [lowest, 0): with 0 nothing decays. Keys have squares
// that sum to one on average, as normed keys do, so that I - β kᵀk does not grow.
DrawnInputs DeltaRuleInputs(size_t key_dim, double beta, double lowest);

std::unique_ptr<DeclaredSubject> MakeDeltaRuleSubject(const HeadShape& shape, double beta,
                                                      double lowest);
SuiteCase DeltaRuleCase(std::string name, const HeadShape& shape, double beta, double lowest = 0.0);

// The subject of a vectors file's core entry.
std::unique_ptr<SuiteSubject> DeltaRuleSubjectOf(const nlohmann::json& parameters);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_SUBJECT_H_
