// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The RG-LRU without its layer, as a subject of the mixer suite. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_SUBJECT_H_

#include <cstddef>
#include <memory>

#include "kernels/base/aligned_buffer.h"
#include "kernels/mixers/core_subject.h"

namespace rivulet {

struct RgLruSubjectShape {
  size_t width = 0;
  double fastest = 0, slowest = 0;  // rates are drawn from [-fastest, -slowest)
};

AlignedBuffer<float> DrawnRgLruRates(const RgLruSubjectShape& shape);

std::unique_ptr<SuiteSubject> MakeRgLruSubject(const RgLruSubjectShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_SUBJECT_H_
