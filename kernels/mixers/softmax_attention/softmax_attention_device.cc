// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device_step.h"
#include "kernels/device/softmax_operations.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

namespace rivulet {

static_assert(kMostAttendedWidth >= kMostAttentionHeadDim);

bool SoftmaxAttentionRecurrence::runs_on_device() const {
  return shape_.unseen == 0 &&
         shape_.padded() <= (shape_.values_are_keys() ? kMostSharedWidth : kMostAttendedWidth);
}

FloatMatrix SoftmaxAttentionRecurrence::Enqueue(const DeviceStep& step,
                                                const SoftmaxAttentionInput& input) const {
  const auto heads = static_cast<uint32_t>(shape_.heads);
  const auto padded = static_cast<uint32_t>(shape_.padded());
  const size_t partials = AttendPartialFloats(step.rows.segment_count, heads, padded);
  const FloatMatrix out = step.workspace->Take(input.q.rows, shape_.heads * shape_.padded());
  step.device->Attend(
      {.rows = step.rows,
       .slots = step.slots,
       .pages = step.pages,
       .heads = heads,
       .kv_heads = static_cast<uint32_t>(shape_.kv_heads),
       .padded = padded,
       .window = shape_.window,
       .pool = static_cast<uint32_t>(input.chosen.size),
       .chosen = input.chosen.rows,
       .bf16_pages = shape_.state_dtype == DType::kBFloat16,
       .values_are_keys = shape_.values_are_keys(),
       .q = input.q.data,
       .q_stride = static_cast<uint32_t>(input.q.stride),
       .k = input.k.data,
       .k_stride = static_cast<uint32_t>(input.k.stride),
       .v = input.v.data,
       .v_stride = static_cast<uint32_t>(input.v.stride),
       .tail_key_offset = planes_.tail_k,
       .tail_value_offset = planes_.tail_v,
       .page_key_offset = planes_.page_k,
       .page_value_offset = planes_.page_v,
       .partials = static_cast<float*>(step.workspace->TakeBytes(partials * sizeof(float))),
       .out = out});
  return out;
}

}  // namespace rivulet
