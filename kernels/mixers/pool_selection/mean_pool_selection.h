// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Qwen4-Exp's choice of the tokens that a layer of attention sees (README.md): keys of pools are
// plain means, normed and rotated as if they stood at their pool's first token; queries are of the
// layer's input. What PoolSelection is to GLM-5.3-Flash.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_POOL_SELECTION_MEAN_POOL_SELECTION_H_
#define RIVULET_KERNELS_MIXERS_POOL_SELECTION_MEAN_POOL_SELECTION_H_

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/pool_selection/pool_selection_config.h"
#include "kernels/mixers/pool_selection/pool_selection_recurrence.h"
#include "kernels/ops/rope/rope.h"

namespace rivulet {

class MeanPoolSelection {
 public:
  // Takes its tensors below "indexer." and adds its planes to the layer's layout. REQUIRES: not
  // config.gated.
  MeanPoolSelection(const PoolSelectionConfig& config, const MixerSource& source,
                    StateLayout& layout);

  // [T, 1 + K] for the layer's input x [T, hidden], rotated as the layer's queries are. Advances
  // the state of the step's segments.
  FloatMatrix Choose(const LayerStep& step, const Rope& rope, ConstFloatMatrix x) const;
  FloatMatrix Enqueue(const DeviceStep& step, const Rope& rope, const Operand& x) const;

 private:
  PoolSelectionConfig config_;
  Projection projection_;                       // queries, key
  AlignedBuffer<float> query_norm_, key_norm_;  // [D], 1 + w
  PoolSelectionRecurrence recurrence_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_POOL_SELECTION_MEAN_POOL_SELECTION_H_
