// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device_step.h"
#include "kernels/device/softmax_operations.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

namespace rivulet {

static_assert(kMostAttendedWidth >= kMostAttentionHeadDim);

bool SoftmaxAttentionRecurrence::runs_on_device() const {
  return shape_.padded() <= (shape_.values_are_keys() ? kMostSharedWidth : kMostAttendedWidth);
}

AttendCall SoftmaxAttentionRecurrence::CallFor(const DeviceStep& step,
                                               const SoftmaxAttentionInput& input) const {
  return {.rows = step.rows,
          .slots = step.slots,
          .pages = step.pages,
          .heads = static_cast<uint32_t>(shape_.heads),
          .kv_heads = static_cast<uint32_t>(shape_.kv_heads),
          .padded = static_cast<uint32_t>(shape_.padded()),
          .window = shape_.window,
          .unseen = shape_.unseen,
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
          .page_value_offset = planes_.page_v};
}

FloatMatrix SoftmaxAttentionRecurrence::Enqueue(const DeviceStep& step,
                                                const SoftmaxAttentionInput& input) const {
  AttendCall call = CallFor(step, input);
  const size_t partials = AttendPartialFloats(step.rows.segment_count, call.heads, call.padded);
  call.out = step.workspace->Take(input.q.rows, shape_.heads * shape_.padded());
  call.partials = static_cast<float*>(step.workspace->TakeBytes(partials * sizeof(float)));
  step.device->Attend(call);
  return call.out;
}

void SoftmaxAttentionRecurrence::EnqueueAppend(const DeviceStep& step,
                                               const SoftmaxAttentionInput& input) const {
  step.device->Attend(CallFor(step, input));
}

}  // namespace rivulet
