// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The feature maps of linear attention (kernels/mixers/linear_attention/feature_map.h), on every
// device.
#ifndef RIVULET_KERNELS_BASE_FEATURE_MAP_KIND_H_
#define RIVULET_KERNELS_BASE_FEATURE_MAP_KIND_H_

#include <cstdint>

namespace rivulet {

enum class FeatureMapKind : uint8_t {
  kElementwiseProduct,
  kElu,
  kHedgehog,
  kT2r,
  kDpfp,
  kRelu,
  kIdentity,
  kRandomRelu,
  kRandomExp,
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_FEATURE_MAP_KIND_H_
