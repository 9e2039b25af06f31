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
#include "kernels/mixers/softmax_attention/key_value_pages.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct AttendCall;
struct DeviceStep;

class SoftmaxAttentionRecurrence {
 public:
  // Adds its planes to `layout` (README.md).
  SoftmaxAttentionRecurrence(const SoftmaxAttentionShape& shape, StateLayout& layout);

  const SoftmaxAttentionShape& shape() const { return shape_; }

  // out [T, H*E], heads side by side without padding; advances the segments' slots. Temporaries
  // come from `workspace`. With chosen pools: chosen_attention.h.
  void Run(std::span<const Segment> segments, const LayerState& state,
           const SoftmaxAttentionInput& input, FloatMatrix out, Workspace& workspace,
           ThreadPool& pool) const;

  // The same on a device, whose pages have a form of their own (softmax_operations.h).
  // [T, H*Dp], temporary memory of the step. Where values are keys, v is not read.
  FloatMatrix Enqueue(const DeviceStep& step, const SoftmaxAttentionInput& input) const;
  // Advances the state alone.
  void EnqueueAppend(const DeviceStep& step, const SoftmaxAttentionInput& input) const;
  bool runs_on_device() const;

 private:
  class Step;

  // Without an output.
  AttendCall CallFor(const DeviceStep& step, const SoftmaxAttentionInput& input) const;

  SoftmaxAttentionShape shape_;
  KeyValuePlanes planes_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_RECURRENCE_H_
