// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The keys and values of a session in pages of C tokens, and softmax attention over
// them (docs/mixers.md#softmax-attention):
//
//   o_t = Σ_s softmax_s(q_t·k_s) v_s        t - window < s <= t
//
// Letters: T tokens, H query heads, Hkv kv heads, D numbers of a key, E of a value (as many but in
// latent attention), Dp and Ep padded. Query heads
// h*H/Hkv ... of kv head h read the same keys. q is scaled, q and k are rotated already.
//
// The tail holds the tokens since the last chunk border in the form of a page; the end of a chunk
// copies it into its page, which never changes again. Numbers are rounded to --state-dtype when
// they are appended, so that it makes no difference whether they are read from the tail or from a
// page.
//
// Work is cut into units of at most 64 rows (a row is one query head of one token) of one kv
// head, so that all rows of a unit share one pass over keys and values. A unit walks its spans in
// order; a segment that is one unit a kv head, such as decode, has its spans computed side by side
// and then joined in order: the same operations (attend_span.h).
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/softmax_attention/attend_span.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct DeviceStep;

struct SoftmaxAttentionShape {
  size_t heads = 0;                     // H
  size_t kv_heads = 0;                  // Hkv, divides H
  size_t head_dim = 0;                  // D
  uint64_t window = 0;                  // tokens that a query sees, its own included; 0: all
  DType state_dtype = DType::kFloat32;  // of pages and tail
  // Numbers of a value, where values are the first numbers of keys; 0: they have rows of their own.
  // On a device a value is the whole key.
  size_t value_dim = 0;
  // So many tokens at the beginning of a session are seen by none after them. A token among them
  // sees itself alone. On the CPU only.
  uint64_t unseen = 0;

  size_t group() const { return heads / kv_heads; }
  size_t padded() const { return PaddedColumns(head_dim); }
  bool values_are_keys() const { return value_dim != 0; }
  size_t values() const { return value_dim == 0 ? head_dim : value_dim; }  // E
  size_t padded_values() const { return PaddedColumns(values()); }
};

// q [T, H*Dp], k [T, Hkv*Dp], v [T, Hkv*Ep], fp32, zeros in the padding of each head.
struct SoftmaxAttentionInput {
  ConstFloatMatrix q, k, v;
};

class SoftmaxAttentionRecurrence {
 public:
  // Adds its planes to `layout` (README.md).
  SoftmaxAttentionRecurrence(const SoftmaxAttentionShape& shape, StateLayout& layout);

  const SoftmaxAttentionShape& shape() const { return shape_; }

  // out [T, H*E], heads side by side without padding; advances the segments' slots. Temporaries
  // come from `workspace`.
  void Run(std::span<const Segment> segments, const LayerState& state,
           const SoftmaxAttentionInput& input, FloatMatrix out, Workspace& workspace,
           ThreadPool& pool) const;

  // The same on a device, whose pages have a form of their own (softmax_operations.h).
  // [T, H*Dp], temporary memory of the step. Where values are keys, v is not read.
  FloatMatrix Enqueue(const DeviceStep& step, const SoftmaxAttentionInput& input) const;
  bool runs_on_device() const;

 private:
  class Step;

  // One head's keys and values: what one page or tail holds of them.
  size_t key_bytes() const { return plane_bytes(shape_.head_dim); }
  size_t value_bytes() const { return plane_bytes(shape_.padded_values()); }
  size_t plane_bytes(size_t width) const {
    return width * fold_interval_ * DTypeSize(shape_.state_dtype);
  }

  SoftmaxAttentionShape shape_;
  size_t fold_interval_;  // C
  size_t tail_k_ = 0, tail_v_ = 0, page_k_ = 0, page_v_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_RECURRENCE_H_
