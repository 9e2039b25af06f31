// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Gated DeltaNet's recurrence without its layer, as a subject of the mixer suite. For
// tests only.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_SUBJECT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/mixers/core_subject.h"

namespace rivulet {

// β is drawn from [0, beta), log decays from [lowest, 0).
struct LogLinearGatedDeltaNetOptions {
  size_t heads = 2, key_dim = 16, value_dim = 16;
  uint32_t levels = 15;
  double beta = 1.0, lowest = -0.1;
  DType state_dtype = DType::kFloat32;
  double lambda_low = 0.0, lambda_high = 1.5;

  HeadShape shape() const { return {heads, heads, key_dim, value_dim, state_dtype}; }
};

class LogLinearGatedDeltaNetSubject : public DeclaredSubject {
 public:
  explicit LogLinearGatedDeltaNetSubject(const LogLinearGatedDeltaNetOptions& options);

  // Row t of the outputs when `inputs` repeat.
  std::vector<double> ReferenceAt(ConstFloatMatrix inputs, uint64_t t) const;

 private:
  LogLinearGatedDeltaNetOptions options_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_SUBJECT_H_
