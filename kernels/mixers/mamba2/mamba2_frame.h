// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The parts of a Mamba-2 layer around its recurrence (docs/mixers.md#mamba-2): before it in_proj,
// the convolution of x | B | C, and Δ; after it the gated norm and out_proj. The recurrence is the
// caller's (Mamba-2's own or the log-linear one).
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_FRAME_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_FRAME_H_

#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mamba2/mamba2_recurrence.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class Mamba2Frame {
 public:
  // Takes the layer's tensors but A_log and D, with `extra` more rows of in_proj after dt. Adds
  // the convolution's planes to `layout`.
  Mamba2Frame(const Mamba2Config& config, size_t extra, const MixerSource& source,
              StateLayout& layout);

  struct Result {
    ConstFloatMatrix z;      // [T, I]: the gate
    TokenInputs input;       // of the recurrence
    ConstFloatMatrix extra;  // [T, extra]
  };
  // Of x [T, hidden], in the step's workspace. Advances the convolution's state.
  Result Project(const MixerStep& step, ConstFloatMatrix x) const;

  // y [T, hidden] from the recurrence's outputs [T, H*Pp] and the gate.
  void Output(const MixerStep& step, ConstFloatMatrix heads, ConstFloatMatrix z,
              FloatMatrix y) const;

 private:
  FloatMatrix Delta(const MixerStep& step, ConstFloatMatrix dt) const;
  ConstFloatMatrix Unpad(const MixerStep& step, ConstFloatMatrix heads) const;
  void NormAndGate(ConstFloatMatrix o, ConstFloatMatrix z, FloatMatrix y, ThreadPool& pool) const;

  Mamba2Config config_;
  size_t norm_groups_;
  Projection projection_;
  AlignedBuffer<float> delta_bias_;  // [H]
  PartConvolution convolution_;
  AlignedBuffer<float> norm_;  // [I], empty without norm
  Linear output_;
};

// A_log and D.
Mamba2Constants TakeMamba2Constants(const Mamba2Config& config, ParameterSource& parameters);

// What the config says of the recurrence.
HeadShape Mamba2ShapeOf(const Mamba2Config& config, DType state_dtype);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_FRAME_H_
