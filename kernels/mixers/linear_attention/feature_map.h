// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// φ, what linear attention takes of queries and keys before their product (mixers.md 2). d is the
// head's width, R the number of features; [a, b] is concatenation.
//
//   kElu                 elu(x) + 1                               R = d    (Katharopoulos et al.
//   2020) kRelu, kIdentity                                              R = d kElementwiseProduct
//   layer1(x) ∘ layer2(x)                    R = d kHedgehog            softmax([2 layer(x), -2
//   layer(x)])       R = 2d   (Zhang et al. 2024) kT2r                 relu(layer(x)), no bias R =
//   d    (Kasai et al. 2021) kDpfp                y ∘ roll_j(y), j = 1..4, y = [relu(x), relu(-x)]
//   R = 8d  (Schlag et al. 2021)
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_FEATURE_MAP_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_FEATURE_MAP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

enum class FeatureMapKind : uint8_t {
  kElementwiseProduct,
  kElu,
  kHedgehog,
  kT2r,
  kDpfp,
  kRelu,
  kIdentity,
};

// R for heads of width d.
size_t FeatureCount(FeatureMapKind kind, size_t width);

// True if no feature is ever negative: without decay such sums only grow.
bool NonNegativeFeatures(FeatureMapKind kind);

class FeatureMap {
 public:
  // Takes its tensors "<prefix>.layer.weight" etc. [d, d] from `parameters`; with `tied` and
  // without tensors of its own, those of `tied_prefix`.
  FeatureMap(FeatureMapKind kind, size_t width, bool divide_by_sum, float scale,
             const std::string& prefix, const std::string& tied_prefix,
             ParameterSource& parameters);

  size_t features() const { return FeatureCount(kind_, width_); }

  // y [T, heads * padded R] = scale · φ(x [T, heads * d]), over Σφ + 1e-4 first if divide_by_sum;
  // zeros in the padding. Temporaries from `workspace`.
  void Apply(ConstFloatMatrix x, size_t heads, FloatMatrix y, Workspace& workspace,
             ThreadPool& pool) const;

 private:
  void Combine(const float* x, float* y) const;

  FeatureMapKind kind_;
  size_t width_;
  bool divide_by_sum_;
  float scale_;
  Linear layer_;  // [d or 2d, d]; empty for maps without parameters
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_FEATURE_MAP_H_
