// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a layer does on a device with the columns of its projection before its recurrence reads
// them: convolution, activations, norms of heads, gates, padding. A layer names what it wants, part
// by part, and one operation makes all of it:
//
//     RowPreparation rows(step, convolution.OnDevice(step, projected));
//     const FloatMatrix q = rows.Heads(projected[kQuery], heads, {.scale = ...});
//     rows.Enqueue();
//
// Threading: engine thread only.
#ifndef RIVULET_KERNELS_MIXERS_ROW_PREPARATION_H_
#define RIVULET_KERNELS_MIXERS_ROW_PREPARATION_H_

#include <cstddef>

#include "kernels/base/activation_kind.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"

namespace rivulet {

// y = scale · norm(clamp(rate ∘ f(multiplier ∘ x + bias))).
struct Preparation {
  Activation f = Activation::kIdentity;
  float scale = 1.0f;
  DeviceHeadNorm norm = DeviceHeadNorm::kNone;
  const float* norm_weight = nullptr;  // kRms: [width], device memory
  // From one head of x to the next, where other columns lie between them; 0: none do. x.columns is
  // still heads · width.
  size_t head_stride = 0;
  size_t padded = 0;  // width of a head of y; 0: the next multiple of 16, or none where packed
  // Device memory, as many as x has columns; null: none.
  const float* multiplier = nullptr;
  const float* bias = nullptr;
  const float* rate = nullptr;
  float low = -__builtin_huge_valf();
  float high = __builtin_huge_valf();
  float norm_eps = 1e-6f;  // kL2: x / sqrt(Σ x² + eps); kRms: of the mean of x²
};

class RowPreparation {
 public:
  // `convolution` covers the parts that lie in its columns.
  RowPreparation(const DeviceStep& step, const DeviceConvolution& convolution);

  // [T, heads · padded width] of x [T, heads · width]. Valid after Enqueue has run.
  FloatMatrix Heads(ConstFloatMatrix x, size_t heads, const Preparation& how = {});
  // The same into columns of `y` [T, heads · padded width], so that several parts lie side by side.
  void HeadsInto(ConstFloatMatrix x, size_t heads, const Preparation& how, FloatMatrix y);
  // The same without padding.
  FloatMatrix PackedHeads(ConstFloatMatrix x, size_t heads, const Preparation& how = {});
  // [T, columns]: numbers of each token without padding, such as a gate of each head.
  FloatMatrix Numbers(ConstFloatMatrix x, const Preparation& how = {});

  // REQUIRES: called once, after the last part.
  void Enqueue() { step_.device->Prepare(call_); }
  // For an operation that prepares the rows itself, instead of Enqueue.
  const PrepareCall& call() const { return call_; }

 private:
  FloatMatrix Add(ConstFloatMatrix x, size_t heads, size_t padded, const Preparation& how);
  void AddTo(ConstFloatMatrix x, size_t heads, size_t padded, const Preparation& how,
             FloatMatrix y);

  const DeviceStep& step_;
  PrepareCall call_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ROW_PREPARATION_H_
