// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Mamba-2's recurrence without its layer, as a subject of the mixer suite. For tests
// only.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_SUBJECT_H_

#include <cstdint>
#include <vector>

#include "kernels/mixers/mamba2/mamba2_subject.h"

namespace rivulet {

// Decay rates A are drawn from [-fastest, -slowest).
struct LogLinearMamba2Options {
  HeadShape shape;
  uint32_t levels = 15;
  double slowest = 0.01, fastest = 0.5;
  double lambda_low = 0.0, lambda_high = 1.5;
};

class LogLinearMamba2Subject : public DeclaredSubject {
 public:
  explicit LogLinearMamba2Subject(const LogLinearMamba2Options& options);

  // Row t of the outputs when `inputs` repeat.
  std::vector<double> ReferenceAt(ConstFloatMatrix inputs, uint64_t t) const;

 private:
  LogLinearMamba2Subject(const LogLinearMamba2Options& o, const Mamba2Constants& constants);

  LogLinearMamba2Options options_;
  Mamba2Constants constants_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_SUBJECT_H_
