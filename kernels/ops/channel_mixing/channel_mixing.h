// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The feed-forward block of RWKV, channel mixing (docs/mixers.md#rwkv-7):
//
//   y_t = W_value f(W_key (x_t + (x_{t-1} - x_t) ∘ mix))        f = max(·, 0)² as published
//
// RWKV-6 multiplies it by a gate, σ(W_receptance (x_t + (x_{t-1} - x_t) ∘ mix')). State: the token
// shift's. Bits and threading: feed_forward.h.
#ifndef RIVULET_KERNELS_OPS_CHANNEL_MIXING_CHANNEL_MIXING_H_
#define RIVULET_KERNELS_OPS_CHANNEL_MIXING_CHANNEL_MIXING_H_

#include <optional>
#include <vector>

#include "kernels/base/activation_kind.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/token_shift/token_shift.h"

namespace rivulet {

class ChannelMixing : public FeedForward {
 public:
  struct Gate {
    AlignedBuffer<float> mix;  // [hidden]
    Linear receptance;         // [hidden, hidden]
  };

  // mix [hidden], key [intermediate, hidden], value [hidden, intermediate]. `layout`: without
  // planes, for the device and fold interval of the model.
  ChannelMixing(AlignedBuffer<float> mix, Linear key, Linear value, std::optional<Gate> gate,
                Activation f, StateLayout layout);

  const StateLayout* state_layout() const override { return &layout_; }
  // Temporaries [T, intermediate] and twice [T, hidden], with a gate three times.
  void Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override;
  bool runs_on_device() const override { return true; }

 private:
  bool gated() const { return mixes_.size() > 1; }
  void ApplyGate(const LayerStep& step, ConstFloatMatrix mixed, FloatMatrix y) const;

  StateLayout layout_;
  TokenShift shift_;
  std::vector<AlignedBuffer<float>>
      mixes_;  // [hidden]: of the key, and of the gate if there is one
  Linear key_, value_, receptance_;
  Activation f_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_CHANNEL_MIXING_CHANNEL_MIXING_H_
