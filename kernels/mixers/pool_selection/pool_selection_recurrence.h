// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Keys of pools of P tokens, and the choice of the K pools with the best scores for each token
// (README.md). A pool's key is a mean of its tokens' keys, weighted channel by channel:
//
//   k̄_p = Σ_{i<P} softmax_i(g_{pP+i} + a_i) ∘ k_{pP+i}      score_t(p) = Σ_h w_t,h relu(q_t,h ·
//   k̄_p)
//
// Token t chooses among the pools that are full once t is there, its own included. A tie goes to
// the earlier pool, NaN counts as the best score. Scores are fp32 in one fixed order, and keys of
// pools are stored in fp32 whatever --state-dtype and --kv-dtype say: a choice depends on the
// session's tokens alone.
//
// The tail holds keys and gates of the tokens since the chunk border and keys of its pools; a
// chunk's page holds those of its pools. Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_RECURRENCE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/pool_selection/pool_selection_config.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// q [T, H*Dp], k and gates [T, Dp], zeros in the padding of each head; weights [T, H].
struct PoolSelectionInput {
  ConstFloatMatrix q, k, gates, weights;
};

class PoolSelectionRecurrence {
 public:
  // Adds its planes to `layout`, whose pages are appended ones that another part of the layer
  // declares. ape: a, [P, Dp], zeros in the padding. REQUIRES: P divides C.
  PoolSelectionRecurrence(const PoolSelectionConfig& config, AlignedBuffer<float> ape,
                          StateLayout& layout);

  // chosen [T, 1 + K]: how many pools, their numbers ascending, zeros behind. Advances the slots of
  // the step's segments.
  void Run(const LayerStep& step, const PoolSelectionInput& input, FloatMatrix chosen) const;

 private:
  // What a thread needs for one token: scores of all pools, and their order.
  struct Scratch {
    float* scores;
    uint64_t* order;
  };

  size_t pools_in_chunk() const { return fold_interval_ / config_.pool; }
  size_t row() const { return config_.padded(); }  // floats of a key
  float* PageKeys(const LayerState& state, const Segment& segment, uint64_t page) const;
  void Append(const LayerState& state, const Segment& segment,
              const PoolSelectionInput& input) const;
  void Choose(const LayerState& state, const Segment& segment, size_t token,
              const PoolSelectionInput& input, const Scratch& scratch, float* chosen) const;
  void Score(const LayerState& state, const Segment& segment, size_t token, uint64_t pools,
             const PoolSelectionInput& input, float* scores) const;

  PoolSelectionConfig config_;
  AlignedBuffer<float> ape_;
  size_t fold_interval_;  // C
  size_t tail_keys_, tail_gates_, tail_pools_, page_pools_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_RECURRENCE_H_
