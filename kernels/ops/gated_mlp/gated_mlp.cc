// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/gated_mlp/gated_mlp.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/device/gate_operations.h"
#include "kernels/device/gated.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {
namespace {

// y = factor · y
void EnqueueScale(const DeviceStep& step, float factor, FloatMatrix y) {
  const auto stride = static_cast<uint32_t>(y.stride), columns = static_cast<uint32_t>(y.columns);
  PrepareCall call;
  call.rows = step.rows;
  call.parts[0] = {.x = y.data,
                   .x_stride = stride,
                   .y = y.data,
                   .y_stride = stride,
                   .width = columns,
                   .padded = columns,
                   .scale = factor};
  call.part_count = 1;
  step.device->Prepare(call);
}

}  // namespace

GatedMlp::GatedMlp(Linear gate_up, Linear down, const GatedMlpForm& form)
    : gate_up_(std::move(gate_up)), down_(std::move(down)), form_(form) {
  RIVULET_CHECK(gate_up_.outputs() == 2 * down_.inputs(), "gate_up is not twice as wide as down");
  RIVULET_CHECK(gate_up_.inputs() == down_.outputs(), "gate_up and down disagree on the width");
}

void GatedMlp::Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  Workspace& workspace = *step.workspace;
  ThreadPool& pool = *step.pool;
  const size_t intermediate = down_.inputs();
  const FloatMatrix both = workspace.Take(x.rows, 2 * intermediate);
  const FloatMatrix gate = both.Columns(0, intermediate);
  const FloatMatrix up = both.Columns(intermediate, intermediate);
  gate_up_.Apply(x, both, pool);
  ScaleRows(form_.gate_multiplier, gate, pool);
  ParallelRows(pool, x.rows, intermediate, [&](size_t t) {
    if (form_.limit != 0) ClampGateAndUp(form_.limit, gate.row(t), up.row(t), intermediate);
    GateMultiply(form_.f, gate.row(t), up.row(t), gate.row(t), intermediate);
  });
  down_.Apply(gate, y, pool);
  ScaleRows(form_.output_multiplier, y, pool);
}

void GatedMlp::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const size_t intermediate = down_.inputs();
  const FloatMatrix both = step.workspace->Take(x.rows, 2 * intermediate);
  gate_up_.Enqueue(*step.device, x, both);
  const bool later = down_.on_device().bias != nullptr;
  const Operand middle =
      EnqueueGate(step, both.Columns(0, intermediate), both.Columns(intermediate, intermediate),
                  later ? 1 : form_.output_multiplier);
  down_.Enqueue(*step.device, middle, y);
  if (later && form_.output_multiplier != 1) EnqueueScale(step, form_.output_multiplier, y);
}

// multiplier · f(gate_multiplier · gate) ∘ up
Operand GatedMlp::EnqueueGate(const DeviceStep& step, ConstFloatMatrix gate, ConstFloatMatrix up,
                              float multiplier) const {
  if (form_.plain()) return Gated(step, up, gate, Activation::kIdentity, form_.f);
  const Operand y = step.workspace->TakeOperand(up.rows, up.columns);
  step.device->Gate({.gate = gate,
                     .x = up,
                     .f = form_.f,
                     .gate_multiplier = form_.gate_multiplier,
                     .multiplier = multiplier,
                     .limit = form_.limit,
                     .y = y});
  return y;
}

}  // namespace rivulet
