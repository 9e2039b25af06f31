// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/row_preparation.h"

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/check.h"

namespace rivulet {
RowPreparation::RowPreparation(const DeviceStep& step, const DeviceConvolution& convolution)
    : step_(step) {
  call_.rows = step.rows;
  call_.slots = step.slots;
  call_.convolution = convolution;
}

FloatMatrix RowPreparation::Heads(ConstFloatMatrix x, size_t heads, const Preparation& how) {
  return Add(x, heads, PaddedColumns(x.columns / heads), how);
}

void RowPreparation::HeadsInto(ConstFloatMatrix x, size_t heads, const Preparation& how,
                               FloatMatrix y) {
  AddTo(x, heads, PaddedColumns(x.columns / heads), how, y);
}

FloatMatrix RowPreparation::PackedHeads(ConstFloatMatrix x, size_t heads, const Preparation& how) {
  return Add(x, heads, x.columns / heads, how);
}

FloatMatrix RowPreparation::Numbers(ConstFloatMatrix x, const Preparation& how) {
  return Add(x, 1, x.columns, how);
}

FloatMatrix RowPreparation::Add(ConstFloatMatrix x, size_t heads, size_t padded,
                                const Preparation& how) {
  const FloatMatrix y = step_.workspace->Take(x.rows, heads * padded);
  AddTo(x, heads, padded, how, y);
  return y;
}

void RowPreparation::AddTo(ConstFloatMatrix x, size_t heads, size_t padded, const Preparation& how,
                           FloatMatrix y) {
  RIVULET_CHECK(call_.part_count < kMaxPreparedParts, "too many parts of a row");
  PreparedPart& part = call_.parts[call_.part_count++];
  part = {.x = x.data,
          .x_stride = static_cast<uint32_t>(x.stride),
          .y = y.data,
          .y_stride = static_cast<uint32_t>(y.stride),
          .heads = static_cast<uint32_t>(heads),
          .width = static_cast<uint32_t>(x.columns / heads),
          .head_stride = static_cast<uint32_t>(how.head_stride),
          .padded = static_cast<uint32_t>(how.padded == 0 ? padded : how.padded),
          .f = how.f,
          .norm = how.norm,
          .norm_weight = how.norm_weight,
          .scale = how.scale,
          .multiplier = how.multiplier,
          .bias = how.bias,
          .rate = how.rate,
          .low = how.low,
          .high = how.high,
          .norm_eps = how.norm_eps};
  const DeviceConvolution& c = call_.convolution;
  if (c.window != 0 && x.data >= c.x && x.data < c.x + c.channels) {
    part.channel = static_cast<int32_t>(x.data - c.x);
  }
}

}  // namespace rivulet
