// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_SUBJECT_H_

#include <cstddef>
#include <vector>

#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

namespace rivulet {

class AttentionSubject : public CoreSubject {
 public:
  explicit AttentionSubject(const SoftmaxAttentionShape& shape);

  std::vector<double> ReferenceFrom(ConstFloatMatrix inputs, size_t first) const;

 private:
  static SoftmaxAttentionInput Split(const Inputs& inputs) {
    return {inputs["q"], inputs["k"], inputs["v"]};
  }
  DeviceRun DeviceRunOf(StateLayout& layout) const;

  SoftmaxAttentionRecurrence recurrence_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_SUBJECT_H_
