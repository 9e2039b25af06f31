// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/hyper_connection/gated_connection.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/device/gated.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {

GatedConnection::GatedConnection(const GatedForm& form, AlignedBuffer<float> norm, Linear down,
                                 Linear up)
    : form_(form),
      norm_(std::move(norm)),
      norm_share_(norm_.size()),
      down_(std::move(down)),
      up_(std::move(up)) {
  RIVULET_CHECK(form.streams >= 1 && form.streams <= kMostStreams, "so many streams do not fit");
  RIVULET_CHECK(down_.outputs() == form.outputs() && up_.inputs() == form.rank,
                "the gate's maps do not have its rank");
  for (size_t i = 0; i < norm_.size(); ++i) {
    norm_share_[i] = norm_[i] / static_cast<float>(form.streams);
  }
}

// Returns B's outputs, which Expand turns into weights.
FloatMatrix GatedConnection::Collapse(ConstFloatMatrix streams, FloatMatrix x, Workspace& workspace,
                                      ThreadPool& pool) const {
  const size_t n = form_.streams, hidden = x.columns, rank = form_.rank;
  const FloatMatrix normed = workspace.Take(x.rows, n * hidden);
  for (size_t s = 0; s < n; ++s) {
    RmsNorm(streams.Columns(s * hidden, hidden), norm_.data() + s * hidden, form_.norm_eps,
            normed.Columns(s * hidden, hidden), pool);
  }
  const FloatMatrix low = workspace.Take(x.rows, form_.outputs());
  down_.Apply(normed, low, pool);
  ScaleRows(1.0f / static_cast<float>(n), low, pool);
  ParallelRows(pool, x.rows, rank,
               [&](size_t t) { Activate(Activation::kSilu, low.row(t), low.row(t), rank); });
  const FloatMatrix gate = workspace.Take(x.rows, n * hidden);
  up_.Apply(low.Columns(0, rank), gate, pool);
  const float ones[kMostStreams] = {1, 1, 1, 1, 1, 1, 1, 1};
  ParallelRows(pool, x.rows, n * hidden, [&](size_t t) {
    GateMultiply(Activation::kSigmoid, gate.row(t), normed.row(t), gate.row(t), n * hidden);
    SumStreams(ones, 1, gate.row(t), n, hidden, x.row(t), hidden);
    for (size_t i = 0; i < hidden; ++i) x.row(t)[i] /= static_cast<float>(n);
  });
  return low.Columns(rank, form_.outputs() - rank);
}

void GatedConnection::Expand(ConstFloatMatrix output, ConstFloatMatrix weights, FloatMatrix streams,
                             ThreadPool& pool) const {
  const size_t hidden = output.columns;
  RIVULET_CHECK(form_.expands, "this connection ends the streams");
  ParallelRows(pool, output.rows, form_.streams * hidden, [&](size_t t) {
    float share[kMostStreams];
    Activate(Activation::kSigmoid, weights.row(t), share, form_.streams);
    for (size_t s = 0; s < form_.streams; ++s) {
      float* const stream = streams.row(t) + s * hidden;
      for (size_t i = 0; i < hidden; ++i) stream[i] += 2 * share[s] * output.row(t)[i];
    }
  });
}

// The streams' normed numbers are divided by N before the maps instead of behind them.
FloatMatrix GatedConnection::EnqueueCollapse(const DeviceStep& step, ConstFloatMatrix streams,
                                             FloatMatrix x) const {
  const Operand normed = EnqueueStreamNorm(
      step, streams, x.columns, {norm_share_.data(), norm_share_.size()}, form_.norm_eps);
  const FloatMatrix low = step.workspace->Take(x.rows, form_.outputs());
  down_.Enqueue(*step.device, normed, low);
  const FloatMatrix gates = step.workspace->Take(x.rows, streams.columns);
  up_.Enqueue(*step.device, Gated(step, low.Columns(0, form_.rank), {}, Activation::kSilu), gates);
  step.device->CollapseStreams({.form = StreamForm::kGated,
                                .streams = static_cast<uint32_t>(form_.streams),
                                .normed = normed,
                                .weights = gates,
                                .y = x});
  return low.Columns(form_.rank, form_.outputs() - form_.rank);
}

void GatedConnection::EnqueueExpand(const DeviceStep& step, ConstFloatMatrix output,
                                    ConstFloatMatrix weights, FloatMatrix streams) const {
  RIVULET_CHECK(form_.expands, "this connection ends the streams");
  step.device->ExpandStreams({.form = StreamForm::kGated,
                              .streams = static_cast<uint32_t>(form_.streams),
                              .output = output,
                              .weights = weights,
                              .x = streams});
}

}  // namespace rivulet
