// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/low_rank_update.h"

#include <algorithm>

#include "kernels/base/row_arithmetic.h"
#include "kernels/device/gated.h"

namespace rivulet {

LowRankUpdate::LowRankUpdate(const std::vector<Part>& parts, size_t rank, size_t inputs,
                             ParameterSource& parameters) {
  std::vector<LinearPart> downs;
  for (const Part& part : parts) downs.push_back({part.tensor + ".0.weight", rank, ""});
  down_ = parameters.TakeLinear(downs, inputs);
  for (const Part& part : parts) {
    up_.push_back(parameters.TakeLinear({{part.tensor + ".1.weight", part.outputs, ""}}, rank));
  }
}

void LowRankUpdate::Apply(const LayerStep& step, ConstFloatMatrix x,
                          std::span<const FloatMatrix> y) const {
  if (up_.empty()) return;
  const FloatMatrix narrow = step.workspace->Take(x.rows, down_.outputs());
  down_.Apply(x, narrow, *step.pool);
  for (size_t i = 0; i < up_.size(); ++i) {
    const size_t rank = up_[i].inputs();
    const FloatMatrix update = step.workspace->Take(x.rows, y[i].columns);
    up_[i].Apply(narrow.Columns(i * rank, rank), update, *step.pool);
    AddRows(update, y[i], *step.pool);
  }
}

void LowRankUpdate::Enqueue(const DeviceStep& step, const Operand& x,
                            std::span<const FloatMatrix> y) const {
  if (up_.empty()) return;
  const FloatMatrix narrow = step.workspace->Take(x.rows, down_.outputs());
  down_.Enqueue(*step.device, x, narrow);
  for (size_t i = 0; i < up_.size(); ++i) {
    const size_t rank = up_[i].inputs(), columns = y[i].columns;
    const FloatMatrix update = step.workspace->Take(x.rows, columns);
    up_[i].Enqueue(*step.device, Gated(step, narrow.Columns(i * rank, rank), {}), update);
    for (size_t first = 0; first < columns; first += kMostNormedWidth) {
      const size_t count = std::min<size_t>(columns - first, kMostNormedWidth);
      step.device->AddNorm(
          {.x = y[i].Columns(first, count), .update = update.Columns(first, count)});
    }
  }
}

}  // namespace rivulet
