// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device.h"

#include "kernels/device/device_operations.h"

namespace rivulet {

void Device::ProjectAndRecur(const ProjectionCall& projection, const PrepareCall& prepare,
                             const RecurCall& recur) {
  const auto& [linear, x, factor, y] = projection;
  if (ScaledProduct(linear, x, factor, /*may_leave=*/true, y)) {
    return PrepareAndRecur(prepare, recur);
  }
  PrepareCall rows = prepare;
  RecurCall outputs = recur;
  rows.factors = outputs.gated.gate_factors = factor.values;
  PrepareAndRecur(rows, outputs);
}

}  // namespace rivulet
