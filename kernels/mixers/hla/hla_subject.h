// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The higher-order recurrences without their layer, as subjects of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_HLA_HLA_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_HLA_HLA_SUBJECT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/hla/hla_config.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// The "parameters" of a core entry in a vectors file.
struct HlaParameters {
  std::string form = "masked";
  HlaConfig config;  // its form and variant are the test's to set
  std::vector<double> log_gamma;
  double low = -1.0, high = 1.0;  // range of q and k; v is in [-1, 1)
  double tolerance = 1e-5;
};
HlaParameters ParseHlaParameters(const nlohmann::json& json);

// What a reference computes outputs [T, E] of: one query head. q, k [T, D] and v [T, E], row-major
// without padding.
struct HeadSequence {
  size_t tokens = 0;
  size_t key_dim = 0;
  size_t value_dim = 0;
  std::vector<double> q, k, v;
  double gamma = 1.0;
  bool normalize = false;
  double denom_eps = 1e-6;
};

using HeadReference = std::function<std::vector<double>(const HeadSequence&)>;
std::unique_ptr<SuiteSubject> MakeHlaSubject(const HlaParameters& parameters,
                                             const HeadReference& reference);

// What every reference ends with: outputs [T, E], Σ_{j<=t} w_tj v_j, over Σ_{j<=t} w_tj + denom_eps
// with `normalize`. weights_at(t) are the w_tj, as many as t + 1 or more.
std::vector<double> WeighValues(const HeadSequence& input,
                                const std::function<std::vector<double>(size_t)>& weights_at);

// Suite cases by name: `make` gets the text of each, which ParseHlaParameters reads.
std::vector<SuiteCase> HlaCases(const std::vector<std::pair<std::string, const char*>>& parameters,
                                std::unique_ptr<SuiteSubject> (*make)(const nlohmann::json&));

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_SUBJECT_H_
