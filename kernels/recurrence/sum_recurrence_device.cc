// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A declaration on a device: its planes there, and the call that executes it (kernels/device).
#include <string>

#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

uint32_t Narrow(size_t n) { return static_cast<uint32_t>(n); }

}  // namespace

bool SumRecurrence::RunsOnDevice(const RecurrenceDeclaration& declaration) {
  if (declaration.levels != 0) return PagesRunOnDevice(declaration);
  return declaration.sums.size() == 1 && declaration.reads.size() == 1 &&
         !declaration.sums[0].normaliser;
}

// Matrices are [Ep, Dp] in fragment order (kernels/device/sums.cu); rows are as products want them.
void SumRecurrence::AddDevicePlanes(StateLayout& layout) {
  if (!RunsOnDevice(declaration_)) return;  // the layer says so
  if (declaration_.levels != 0) return AddDevicePagePlanes(layout);
  const DType fp32 = DType::kFloat32;
  Sum& sum = sums_[0];
  const size_t units = HeadCount(sum.per_head), keys = shape().padded_key();
  sum.offset = layout.Add(StatePart::kBase, sum.name, sum.shape.dtype,
                          {units, sum.shape.padded_value(), keys});
  if (sum.shape.normaliser) {
    sum.normaliser_offset =
        layout.Add(StatePart::kBase, std::string(sum.name) + "_normaliser", fp32, {units, keys});
  }
  for (Row& row : rows_) {
    row.offset = layout.Add(StatePart::kTail, row.name, layout.row_dtype(),
                            {HeadCount(row.per_head), fold_interval_, row.padded});
  }
  if (!appends_decay()) return;
  decay_offset_ = layout.Add(StatePart::kTail, "log_decay", fp32,
                             {HeadCount(decay_per_head()), fold_interval_, decay_columns()});
}

void SumRecurrence::Enqueue(const DeviceStep& step, const TokenInputs& inputs,
                            FloatMatrix out) const {
  if (declaration_.levels != 0) return EnqueuePages(step, inputs, out);
  const Sum& sum = sums_[0];
  const Row &key = rows_[sum.key], &value = rows_[sum.value];
  const size_t units = HeadCount(sum.per_head), keys = HeadCount(key.per_head);
  const size_t values = HeadCount(value.per_head);
  RecurCall call{.rows = step.rows,
                 .slots = step.slots,
                 .units = Narrow(units),
                 .unit_heads = Narrow(shape().heads / units),
                 .units_per_key = Narrow(units / keys),
                 .units_per_value = Narrow(units / values),
                 .key_dim = Narrow(shape().key_dim),
                 .value_dim = Narrow(sum.shape.value_dim),
                 .padded_key = Narrow(shape().padded_key()),
                 .padded_value = Narrow(sum.shape.padded_value()),
                 .q = inputs.q.data,
                 .q_stride = Narrow(inputs.q.stride),
                 .query_per_head = queries_per_head(),
                 .k = inputs.k.data,
                 .k_stride = Narrow(inputs.k.stride),
                 .v = inputs.v.data,
                 .v_stride = Narrow(inputs.v.stride),
                 .v_head_stride = Narrow(value.times_step || !declaration_.skip.empty()
                                             ? shape().value_dim
                                             : shape().padded_value()),
                 .decay = declaration_.decay.kind,
                 .out = out};
  call.g = inputs.decay.data;
  call.g_stride = Narrow(inputs.decay.stride);
  call.rate = step.device->Constant(declaration_.decay.rate);
  call.constant = step.device->Constant({constant_decay_.data(), constant_decay_.size()});
  call.times_step = value.times_step;
  call.delta = declaration_.delta;
  call.beta = inputs.beta.data;
  call.beta_stride = Narrow(inputs.beta.stride);
  call.skip = step.device->Constant(declaration_.skip);
  call.normaliser = sum.shape.normaliser;
  call.reciprocal = declaration_.division == Division::kReciprocal;
  call.denominator_eps = declaration_.denominator_eps;
  call.bf16_state = sum.shape.dtype == DType::kBFloat16;
  call.state_offset = sum.offset;
  call.normaliser_offset = sum.normaliser_offset;
  call.key_offset = key.offset;
  call.value_offset = value.offset;
  call.decay_offset = decay_offset_;
  step.device->Recur(call);
}

}  // namespace rivulet
