// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A part of an attention layer that says which tokens it sees: maps of the layer's input and of its
// low-rank queries, and the choice (pool_selection_recurrence.h). Tensors and state: README.md.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_H_
#define RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_H_

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/pool_selection/pool_selection_config.h"
#include "kernels/mixers/pool_selection/pool_selection_recurrence.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

class PoolSelection {
 public:
  // Takes its tensors below "indexer." and adds its planes to the layer's layout.
  PoolSelection(const PoolSelectionConfig& config, const MixerSource& source, StateLayout& layout);

  // chosen [T, 1 + K] for the layer's input x [T, hidden] and its queries before their last map
  // [T, query_rank]. Advances the state of the step's segments.
  void Choose(const LayerStep& step, ConstFloatMatrix x, ConstFloatMatrix queries,
              FloatMatrix chosen) const;
  void Enqueue(const DeviceStep& step, const Operand& x, const Operand& queries,
               FloatMatrix chosen) const;

 private:
  PoolSelectionConfig config_;
  Linear of_input_;  // key, gates, weights of the heads
  Linear of_queries_;
  AlignedBuffer<float> norm_weight_, norm_bias_;
  PoolSelectionRecurrence recurrence_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_H_
