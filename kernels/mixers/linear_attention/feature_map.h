// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The feature map φ of linear attention, applied to queries and keys before their product
// (docs/mixers.md#linear-attention). d is the head's width, R the number of features; [a, b] is
// concatenation, x̂ = input_scale · x.
//
//   kElu                 elu(x) + 1 (Katharopoulos et al. 2020)
//   kRelu, kIdentity
//   kElementwiseProduct  layer1(x) ∘ layer2(x)
//   kHedgehog            softmax([2 layer(x), -2 layer(x)]), R = 2d (Zhang et al. 2024)
//   kT2r                 relu(layer(x)), no bias (Kasai et al. 2021)
//   kDpfp                y ∘ roll_j(y), j = 1..4, y = [relu(x), relu(-x)], R = 8d (Schlag 2021)
//   kRandomRelu          relu(projection(x̂)) + offset, any R
//   kRandomExp           R^{-1/2} exp(projection(x̂) - |x̂|²/2), any R
//
// R = d unless stated. The last two are low-rank attention (Performer, Choromanski et al.
// 2020): with Gaussian rows of the projection, kRandomExp's products estimate e^{x̂·ŷ}, so
// that normalised linear attention over it approximates softmax attention by a state of rank R. The
// projection is a tensor of the checkpoint, never drawn here. Performer subtracts the maximum over
// all keys before its exp; a stream does not know it.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_FEATURE_MAP_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_FEATURE_MAP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/feature_map_kind.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/mixers/row_preparation.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

// What the checkpoint decides about φ.
struct FeatureMapConfig {
  FeatureMapKind kind = FeatureMapKind::kElementwiseProduct;
  size_t width = 0;  // d
  // The rest is for kRandomRelu and kRandomExp.
  size_t random_features = 0;  // R
  bool bias = false;           // projection.bias exists
  float input_scale = 1.0f;
  float offset = 0.0f;  // kRandomRelu; not negative
};

// R.
size_t FeatureCount(const FeatureMapConfig& config);

// True if no feature is ever negative: without decay such sums only grow.
bool NonNegativeFeatures(FeatureMapKind kind);

class FeatureMap {
 public:
  // Takes its tensors "<prefix>.layer.weight" [d, d] or "<prefix>.projection.weight" [R, d] etc.
  // from `parameters`; without tensors of its own, and with a `tied_prefix`, the tensors of that.
  FeatureMap(const FeatureMapConfig& config, bool divide_by_sum, float scale,
             const std::string& prefix, const std::string& tied_prefix,
             ParameterSource& parameters);

  size_t features() const { return FeatureCount(config_); }

  // [T, heads * padded R] = scale · φ(x [T, heads * d]), over Σφ + 1e-4 first if divide_by_sum;
  // zeros in the padding. In the step's workspace.
  FloatMatrix Apply(const LayerStep& step, ConstFloatMatrix x, size_t heads) const;
  // The same on a device, once `rows` has been enqueued: elementwise maps are parts of it.
  FloatMatrix Enqueue(const DeviceStep& step, RowPreparation& rows, ConstFloatMatrix x,
                      size_t heads) const;

 private:
  ConstFloatMatrix EnqueueTrained(const DeviceStep& step, ConstFloatMatrix x, size_t heads) const;
  void Map(const float* x, const float* mapped, float* y) const;
  void Combine(const float* x, const float* mapped, float* y) const;

  FeatureMapConfig config_;
  bool divide_by_sum_;
  float scale_;
  Linear layer_;  // [d, 2d or R, d]; empty for maps without parameters
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_FEATURE_MAP_H_
