// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What RWKV-6 and RWKV-7 tell a device of their time mixing that is the same in every step.
//
// Threading: plain values.
#ifndef RIVULET_KERNELS_MIXERS_TIME_MIX_ON_DEVICE_H_
#define RIVULET_KERNELS_MIXERS_TIME_MIX_ON_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/rwkv_operations.h"
#include "kernels/recurrence/declaration.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// A call with the form, the heads and the planes of the state, which are added to `layout`. RWKV-7
// keeps two rows of a token side by side.
inline TimeMixCall AddTimeMixPlanes(TimeMixForm form, const HeadShape& shape, StateLayout& layout) {
  const bool pairs = form == TimeMixForm::kRwkv7;
  const size_t heads = shape.heads, keys = shape.padded_key(), values = shape.padded_value();
  const size_t rows = pairs ? 2 : 1, c = layout.fold_interval();
  TimeMixCall call;
  call.form = form;
  call.heads = static_cast<uint32_t>(heads);
  call.key_dim = static_cast<uint32_t>(shape.key_dim);
  call.value_dim = static_cast<uint32_t>(shape.value_dim);
  call.padded_key = static_cast<uint32_t>(keys);
  call.padded_value = static_cast<uint32_t>(values);
  call.bf16_state = shape.state_dtype == DType::kBFloat16;
  call.state_offset = layout.Add(StatePart::kBase, "S", shape.state_dtype, {heads, values, keys});
  call.key_offset =
      layout.Add(StatePart::kTail, pairs ? "kb" : "k", layout.row_dtype(), {heads, c, rows * keys});
  call.value_offset = layout.Add(StatePart::kTail, pairs ? "vu" : "v", layout.row_dtype(),
                                 {heads, c, rows * values});
  call.decay_offset = layout.Add(StatePart::kTail, "decay", DType::kFloat32, {heads, c, keys});
  return call;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_TIME_MIX_ON_DEVICE_H_
