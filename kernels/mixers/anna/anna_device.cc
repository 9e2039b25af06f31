// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// ANNA's hashes and recurrence on a device (kernels/device/buckets_operations.h).
#include <cstdint>

#include "kernels/device/buckets_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_recurrence.h"

namespace rivulet {
namespace {

uint32_t Narrow(size_t n) { return static_cast<uint32_t>(n); }

}  // namespace

void AnnaHash::Enqueue(Device& device, ConstFloatMatrix q, ConstFloatMatrix k,
                       FloatMatrix q_buckets, FloatMatrix k_buckets) const {
  device.Hash({.q = q,
               .k = k,
               .panels = device.Constant({panels_.data(), panels_.size()}),
               .cross_polytope = shape_.family == HashFamily::kCrossPolytope,
               .heads = Narrow(shape_.heads),
               .key_dim = Narrow(shape_.key_dim),
               .tables = Narrow(shape_.tables),
               .hashes = Narrow(shape_.hashes),
               .q_buckets = q_buckets,
               .k_buckets = k_buckets});
}

bool AnnaRecurrence::RunsOnDevice() const {
  return fold_interval_ == 16 && shape_.head.padded_value() <= kMostBucketValues;
}

void AnnaRecurrence::Enqueue(const DeviceStep& step, const AnnaInput& input,
                             FloatMatrix out) const {
  step.device->Buckets({.rows = step.rows,
                        .slots = step.slots,
                        .heads = Narrow(shape_.heads),
                        .tables = Narrow(shape_.head.tables),
                        .buckets = Narrow(shape_.head.buckets),
                        .value_dim = Narrow(shape_.head.value_dim),
                        .padded_value = Narrow(shape_.head.padded_value()),
                        .include_self = shape_.include_self,
                        .q_buckets = input.q_buckets,
                        .k_buckets = input.k_buckets,
                        .v = input.v,
                        .sums_offset = sums_offset_,
                        .counts_offset = counts_offset_,
                        .keys_offset = keys_offset_,
                        .values_offset = v_offset_,
                        .out = out});
}

}  // namespace rivulet
