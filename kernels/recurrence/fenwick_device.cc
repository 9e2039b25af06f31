// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A declaration with levels on a device: its planes there, and the call that executes it
// (kernels/device/fenwick_operations.h).
#include "kernels/device/device_step.h"
#include "kernels/device/fenwick_operations.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

uint32_t Narrow(size_t n) { return static_cast<uint32_t>(n); }

}  // namespace

bool SumRecurrence::PagesRunOnDevice(const RecurrenceDeclaration& declaration) {
  const DeclaredDecay& decay = declaration.decay;
  return declaration.sharing == Sharing::kQueriesAndKeys && decay.kind == Decay::kScalar &&
         decay.constant.empty() && declaration.division == Division::kNone &&
         !declaration.sums[0].normaliser;
}

void SumRecurrence::AddDevicePagePlanes(StateLayout& layout) {
  const DType fp32 = DType::kFloat32;
  Sum& sum = sums_[0];
  const size_t heads = shape().heads, values = sum.shape.padded_value();
  const uint32_t pages = FenwickPageCount(declaration_.levels, fold_interval_);
  const PageRule rule = declaration_.delta ? PageRule::kRewrittenFenwick : PageRule::kFenwick;
  layout.SetPageKind({.rule = rule, .levels = pages});
  sum.offset = layout.Add(StatePart::kPage, sum.name, sum.shape.dtype,
                          {heads, values, shape().padded_key()});
  page_decay_offset_ =
      layout.Add(StatePart::kBase, "page_log_decay", fp32, {heads, values / 16, pages, 2});
  for (Row& row : rows_) {
    row.offset = layout.Add(StatePart::kTail, row.name, layout.row_dtype(),
                            {HeadCount(row.per_head), fold_interval_, row.padded});
  }
  decay_offset_ = layout.Add(StatePart::kTail, "log_decay", fp32, {heads, fold_interval_});
  if (!declaration_.delta) return;
  beta_offset_ = layout.Add(StatePart::kTail, "beta", fp32, {heads, fold_interval_});
}

void SumRecurrence::EnqueuePages(const DeviceStep& step, const TokenInputs& inputs,
                                 FloatMatrix out) const {
  const Sum& sum = sums_[0];
  const Row &key = rows_[sum.key], &value = rows_[sum.value];
  const bool padded = !value.times_step && declaration_.skip.empty();
  const size_t value_dim = sum.shape.value_dim, padded_value = sum.shape.padded_value();
  step.device->Fenwick({.rows = step.rows,
                        .slots = step.slots,
                        .pages = step.pages,
                        .heads = Narrow(shape().heads),
                        .heads_per_key = Narrow(shape().group()),
                        .level_count = declaration_.levels,
                        .value_dim = Narrow(value_dim),
                        .padded_key = Narrow(shape().padded_key()),
                        .padded_value = Narrow(padded_value),
                        .q = inputs.q.data,
                        .q_stride = Narrow(inputs.q.stride),
                        .k = inputs.k.data,
                        .k_stride = Narrow(inputs.k.stride),
                        .v = inputs.v.data,
                        .v_stride = Narrow(inputs.v.stride),
                        .v_head_stride = Narrow(padded ? padded_value : value_dim),
                        .g = inputs.decay.data,
                        .g_stride = Narrow(inputs.decay.stride),
                        .rate = step.device->Constant(declaration_.decay.rate),
                        .times_step = value.times_step,
                        .levels = inputs.levels.data,
                        .levels_stride = Narrow(inputs.levels.stride),
                        .delta = declaration_.delta,
                        .beta = inputs.beta.data,
                        .beta_stride = Narrow(inputs.beta.stride),
                        .skip = step.device->Constant(declaration_.skip),
                        .bf16_pages = sum.shape.dtype == DType::kBFloat16,
                        .matrix_offset = sum.offset,
                        .page_decay_offset = page_decay_offset_,
                        .key_offset = key.offset,
                        .value_offset = value.offset,
                        .decay_offset = decay_offset_,
                        .beta_offset = beta_offset_,
                        .out = out});
}

}  // namespace rivulet
