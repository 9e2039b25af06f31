// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A norm over the residual stream with its trained numbers: RMSNorm or LayerNorm, so that the
// forward pass need not know which. A norm whose file holds w for a weight of 1 + w (Qwen3-Next)
// is an RMSNorm here: the loader adds the one.
//
// Bits: norm.h. Threading: constant after construction.
#ifndef RIVULET_KERNELS_OPS_NORM_TRAINED_NORM_H_
#define RIVULET_KERNELS_OPS_NORM_TRAINED_NORM_H_

#include <utility>

#include "kernels/base/aligned_buffer.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {

class Device;
struct AddNormCall;

class TrainedNorm {
 public:
  TrainedNorm() = default;  // no norm; Apply must not be called
  // weight [hidden].
  static TrainedNorm Rms(AlignedBuffer<float> weight, float eps) {
    return {std::move(weight), {}, eps};
  }
  // weight, bias [hidden].
  static TrainedNorm Layer(AlignedBuffer<float> weight, AlignedBuffer<float> bias, float eps) {
    return {std::move(weight), std::move(bias), eps};
  }

  // y [T, hidden] from x [T, hidden]; y may be x itself.
  void Apply(ConstFloatMatrix x, FloatMatrix y, ThreadPool& pool) const {
    if (bias_.empty()) return RmsNorm(x, weight_.data(), eps_, y, pool);
    LayerNorm(x, weight_.data(), bias_.data(), eps_, y, pool);
  }

  bool empty() const { return weight_.empty(); }
  size_t hidden() const { return weight_.size(); }
  const float* weight() const { return weight_.data(); }
  float eps() const { return eps_; }
  bool centred() const { return !bias_.empty(); }  // LayerNorm

  // Runs `call` with this norm for what it reads, on a device. No norm: y is x.
  void Enqueue(Device& device, AddNormCall call) const;
  // Makes this the norm of the call's update.
  void SetUpdateNorm(Device& device, AddNormCall& call) const;

 private:
  TrainedNorm(AlignedBuffer<float> weight, AlignedBuffer<float> bias, float eps)
      : weight_(std::move(weight)), bias_(std::move(bias)), eps_(eps) {}

  AlignedBuffer<float> weight_;
  AlignedBuffer<float> bias_;  // empty: RMSNorm
  float eps_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_NORM_TRAINED_NORM_H_
