// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/gated_mlp/gated_mlp.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/device/gated.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

GatedMlp::GatedMlp(Linear gate_up, Linear down, const GatedMlpForm& form)
    : gate_up_(std::move(gate_up)), down_(std::move(down)), form_(form) {
  RIVULET_CHECK(gate_up_.outputs() == 2 * down_.inputs(), "gate_up is not twice as wide as down");
  RIVULET_CHECK(gate_up_.inputs() == down_.outputs(), "gate_up and down disagree on the width");
}

void GatedMlp::Apply(ConstFloatMatrix x, FloatMatrix y, Workspace& workspace,
                     ThreadPool& pool) const {
  const size_t intermediate = down_.inputs();
  const FloatMatrix both = workspace.Take(x.rows, 2 * intermediate);
  const FloatMatrix gate = both.Columns(0, intermediate);
  const FloatMatrix up = both.Columns(intermediate, intermediate);
  gate_up_.Apply(x, both, pool);
  ScaleRows(form_.gate_multiplier, gate, pool);
  ParallelRows(pool, x.rows, intermediate, [&](size_t t) {
    GateMultiply(form_.f, gate.row(t), up.row(t), gate.row(t), intermediate);
  });
  down_.Apply(gate, y, pool);
  ScaleRows(form_.output_multiplier, y, pool);
}

void GatedMlp::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const size_t intermediate = down_.inputs();
  const FloatMatrix both = step.workspace->Take(x.rows, 2 * intermediate);
  gate_up_.Enqueue(*step.device, x, both);
  const FloatMatrix gate = both.Columns(0, intermediate);
  down_.Enqueue(*step.device, Gated(step, both.Columns(intermediate, intermediate), gate), y);
}

}  // namespace rivulet
