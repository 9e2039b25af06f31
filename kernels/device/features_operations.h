// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The arguments of linear attention's feature maps on a device. Plain values: kernels take them as
// they are. All pointers are to device memory.
//
// Letters: T tokens, H heads, d a head's width, R its features.
#ifndef RIVULET_KERNELS_DEVICE_FEATURES_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_FEATURES_OPERATIONS_H_

#include <cstdint>

#include "kernels/base/feature_map_kind.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// The heads of all tokens as rows of a product: row t · H + h of y [T·H, d] is scale · head h of
// row t of x [T, H·d].
struct SplitHeadsCall {
  ConstFloatMatrix x;
  uint32_t heads = 0;
  uint32_t width = 0;  // d
  float scale = 1;
  Operand y;
};

// y [T, H · padded] = scale · φ(x), over Σφ + 1e-4 first with divide_by_sum; zeros in the padding.
struct FeaturesCall {
  FeatureMapKind kind = FeatureMapKind::kIdentity;
  ConstFloatMatrix x;       // [T, H·d]
  ConstFloatMatrix mapped;  // [T·H, 2d or R]: the trained maps of x; null data: none
  uint32_t heads = 0;
  uint32_t width = 0;     // d
  uint32_t features = 0;  // R <= kMostFeatures
  uint32_t padded = 0;
  float input_scale = 1;  // of x, where the map was made of scaled x
  float offset = 0;       // kRandomRelu
  bool divide_by_sum = false;
  float scale = 1;
  FloatMatrix y;
};

inline constexpr uint32_t kMostFeatures = 512;

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_FEATURES_OPERATIONS_H_
