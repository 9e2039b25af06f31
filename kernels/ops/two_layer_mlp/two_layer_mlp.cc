// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/two_layer_mlp/two_layer_mlp.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

TwoLayerMlp::TwoLayerMlp(Linear first, Linear second, Activation f)
    : first_(std::move(first)), second_(std::move(second)), f_(f) {
  RIVULET_CHECK(first_.outputs() == second_.inputs(), "the two layers disagree on the width");
  RIVULET_CHECK(first_.inputs() == second_.outputs(), "what goes in and out differs in width");
}

void TwoLayerMlp::Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  Workspace& workspace = *step.workspace;
  ThreadPool& pool = *step.pool;
  const size_t intermediate = second_.inputs();
  const FloatMatrix middle = workspace.Take(x.rows, intermediate);
  first_.Apply(x, middle, pool);
  ParallelRows(pool, x.rows, intermediate,
               [&](size_t t) { Activate(f_, middle.row(t), middle.row(t), intermediate); });
  second_.Apply(middle, y, pool);
}

void TwoLayerMlp::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const FloatMatrix middle = step.workspace->Take(x.rows, second_.inputs());
  first_.Enqueue(*step.device, x, middle);
  second_.Enqueue(*step.device, Gated(step, middle, {}, f_), y);
}

}  // namespace rivulet
