// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The passes over a whole row of logits that are worth vectors. Private to this folder.
#ifndef RIVULET_KERNELS_OPS_SAMPLING_LOGIT_SCAN_H_
#define RIVULET_KERNELS_OPS_SAMPLING_LOGIT_SCAN_H_

#include <cstddef>

namespace rivulet {

struct LogitScan {
  float max;    // -infinity for an empty row; meaningless unless all are finite
  bool finite;  // every logit is
};
LogitScan ScanLogits(const float* logits, size_t vocab);

// weights[i] = e^{(logits[i] - max) · inverse_temperature}
void ExpWeights(const float* logits, float max, float inverse_temperature, size_t vocab,
                float* weights);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_SAMPLING_LOGIT_SCAN_H_
