// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The feed-forward block of GPT-2 and H3: y = W2 f(W1 x + b1) + b2, f their gelu by tanh or another
// function (kernels/ops/activation). Biases are part of the maps. Bits and threading:
// feed_forward.h.
#ifndef RIVULET_KERNELS_OPS_TWO_LAYER_MLP_TWO_LAYER_MLP_H_
#define RIVULET_KERNELS_OPS_TWO_LAYER_MLP_TWO_LAYER_MLP_H_

#include "kernels/base/activation_kind.h"
#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

class TwoLayerMlp : public FeedForward {
 public:
  // first: [intermediate, hidden]. second: [hidden, intermediate].
  TwoLayerMlp(Linear first, Linear second, Activation f = Activation::kGeluTanh);

  // Temporaries [T, intermediate].
  void Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override;
  bool runs_on_device() const override { return true; }

 private:
  Linear first_;
  Linear second_;
  Activation f_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_TWO_LAYER_MLP_TWO_LAYER_MLP_H_
