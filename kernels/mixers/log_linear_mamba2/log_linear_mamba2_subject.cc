// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_subject.h"

#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_reference.h"

namespace rivulet {
namespace {

DrawnInputs Drawn(const LogLinearMamba2Options& options) {
  DrawnInputs drawn = Mamba2Inputs();
  drawn.levels.low = options.lambda_low;
  drawn.levels.high = options.lambda_high;
  return drawn;
}

}  // namespace

LogLinearMamba2Subject::LogLinearMamba2Subject(const LogLinearMamba2Options& options)
    : LogLinearMamba2Subject(
          options, DrawMamba2Constants(options.shape, options.slowest, options.fastest)) {}

LogLinearMamba2Subject::LogLinearMamba2Subject(const LogLinearMamba2Options& o,
                                               const Mamba2Constants& constants)
    : DeclaredSubject(Mamba2Declaration(o.shape, constants, o.levels), Drawn(o),
                      [=](const TokenInputs& inputs) {
                        return LogLinearMamba2Reference(o.shape, o.levels, constants, inputs);
                      }),
      options_(o),
      constants_(constants) {}

std::vector<double> LogLinearMamba2Subject::ReferenceAt(ConstFloatMatrix inputs, uint64_t t) const {
  return LogLinearMamba2ReferenceAt(options_.shape, options_.levels, constants_,
                                    Split(ByField(inputs)), t);
}

}  // namespace rivulet
