// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Keys of pools of P tokens, and the choice of the K pools with the best scores for each token
// (README.md). A pool's key is a mean of its tokens' keys, weighted channel by channel:
//
//   k̄_p = Σ_{i<P} softmax_i(g_{pP+i} + a_i) ∘ k_{pP+i}      score_t(p) = Σ_h w_t,h relu(q_t,h ·
//   k̄_p)
//
// or without gates and weights the plain mean and sum. The caller may finish the keys of the
// pools that a step fills before they are stored.
//
// Token t chooses among the pools that are full once t is there, its own included. A tie goes to
// the earlier pool, NaN counts as the best score. Scores are fp32 in one fixed order, and keys of
// pools are stored in fp32 whatever --state-dtype and --kv-dtype say: a choice depends on the
// session's tokens alone.
//
// The tail holds keys (and gates) of the tokens since the chunk border and keys of its pools; a
// chunk's page holds those of its pools. Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/pool_selection/pool_selection_config.h"
#include "kernels/ops/rope/rope.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// Norms and rotates keys of pools [n, Dp] in place, for example. Segment i of `pools` is row i, as
// a step of one token at the pool's first position.
using FinishPoolKeys = absl::FunctionRef<void(std::span<const Segment> pools, FloatMatrix keys)>;
inline constexpr auto kLeavePoolKeys = [](std::span<const Segment>, FloatMatrix) {};

// q [T, H*Dp], k and gates [T, Dp], zeros in the padding of each head; weights [T, H]. Without
// PoolSelectionConfig::gated, gates and weights are not read.
struct PoolSelectionInput {
  ConstFloatMatrix q, k, gates = {}, weights = {};
};

// The same on a device, without padding: q [T, H · head_stride], k and gates [T, D], weights [T,
// H]. Plain means are normed and rotated there.
struct DevicePoolInput {
  ConstFloatMatrix q;
  size_t head_stride = 0;
  ConstFloatMatrix k, gates = {}, weights = {};
  std::span<const float> norm = {};  // [D]
  const Rope* rope = nullptr;
};

class PoolSelectionRecurrence {
 public:
  // Adds its planes to `layout`, whose pages are appended ones that another part of the layer
  // declares. ape: a, [P, Dp], zeros in the padding; not read without gates. REQUIRES: P divides C.
  PoolSelectionRecurrence(const PoolSelectionConfig& config, AlignedBuffer<float> ape,
                          StateLayout& layout);

  // chosen [T, 1 + K]: how many pools, their numbers ascending, zeros behind. Advances the slots of
  // the step's segments.
  void Run(const LayerStep& step, const PoolSelectionInput& input, FloatMatrix chosen,
           FinishPoolKeys finish = kLeavePoolKeys) const;

  // REQUIRES: RunsOnDevice(config).
  void Enqueue(const DeviceStep& step, const DevicePoolInput& input, FloatMatrix chosen) const;
  // Or no pools are chosen.
  static bool RunsOnDevice(const PoolSelectionConfig& config);

 private:
  // What a thread needs for one token: scores of all pools, and their order.
  struct Scratch {
    float* scores;
    uint64_t* order;
  };

  size_t pools_in_chunk() const { return fold_interval_ / config_.pool; }
  size_t row() const { return config_.padded(); }  // floats of a key
  float* PageKeys(const LayerState& state, const Segment& segment, uint64_t page) const;
  size_t PoolsFilled(const Segment& segment) const {
    const uint64_t end = segment.position + segment.tokens;
    return end / config_.pool - segment.position / config_.pool;
  }
  void Append(const LayerStep& step, const PoolSelectionInput& input, FinishPoolKeys finish) const;
  void AppendTokens(const LayerState& state, const Segment& segment,
                    const PoolSelectionInput& input, Segment* pools, FloatMatrix keys) const;
  void MeanOf(const float* keys, const float* gates, float* mean) const;
  void StorePools(const LayerState& state, const Segment& segment, ConstFloatMatrix keys) const;
  void Choose(const LayerState& state, const Segment& segment, size_t token,
              const PoolSelectionInput& input, const Scratch& scratch, float* chosen) const;
  void Score(const LayerState& state, const Segment& segment, size_t token, uint64_t pools,
             const PoolSelectionInput& input, float* scores) const;

  PoolSelectionConfig config_;
  AlignedBuffer<float> ape_;
  AlignedBuffer<float> ones_;  // weights of heads that count alike
  size_t fold_interval_;       // C
  size_t tail_keys_, tail_gates_ = 0, tail_pools_, page_pools_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_RECURRENCE_H_
