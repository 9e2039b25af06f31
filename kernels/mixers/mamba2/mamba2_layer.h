// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer of Mamba-2 and of its log-linear form (docs/mixers.md#mamba-2, #log-linear-mamba-2):
//
//   z, x, B, C, dt, l = in_proj(u);   x, B, C through the short convolution
//   Δ = clamp(softplus(dt + dt_bias));   λ = softplus(L ∘ l)
//   o = recurrence(C, B, x, Δ, λ)
//   y = out_proj(norm(o · silu(z)))     or norm(o) · silu(z), or without a norm
//
// l and λ are the log-linear form's. The two differ in their recurrence's declaration.
//
// Threading: as Mixer says.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_LAYER_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_LAYER_H_

#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mamba2/mamba2_recurrence.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/recurrence/state.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {

class Mamba2Layer : public Mixer {
 public:
  // Takes the layer's tensors but A_log and D, which are in `declaration` (TakeMamba2Constants).
  Mamba2Layer(const Mamba2Config& config, const RecurrenceDeclaration& declaration,
              const MixerSource& source);

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return max_tokens_; }
  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;

 private:
  FloatMatrix Delta(const LayerStep& step, ConstFloatMatrix dt) const;
  FloatMatrix NormAndGate(const LayerStep& step, ConstFloatMatrix heads, ConstFloatMatrix z) const;
  ConstFloatMatrix Unpad(const LayerStep& step, ConstFloatMatrix heads) const;

  Mamba2Config config_;
  StateLayout layout_;
  uint64_t max_tokens_;
  Projection projection_;
  AlignedBuffer<float> delta_bias_;  // [H]
  PartConvolution convolution_;
  LevelWeights level_weights_;  // of the log-linear form
  SumRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [I], empty without norm
  Linear output_;
};

// A_log and D.
Mamba2Constants TakeMamba2Constants(const Mamba2Config& config, ParameterSource& parameters);

// The heads that the config gives the recurrence.
HeadShape Mamba2ShapeOf(const Mamba2Config& config, DType state_dtype);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_LAYER_H_
