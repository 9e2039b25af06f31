// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/side_by_side.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"

namespace rivulet {
SideBySide::SideBySide(std::vector<Branch> branches)
    : branches_(std::move(branches)), layout_(branches_.at(0).mixer->state_layout().Empty()) {
  for (const Branch& branch : branches_) {
    const std::string prefix = std::to_string(offsets_.size()) + ".";
    offsets_.push_back(layout_.Append(branch.mixer->state_layout(), prefix));
  }
}

uint64_t SideBySide::max_tokens() const {
  uint64_t tokens = UINT64_MAX;
  for (const Branch& branch : branches_) tokens = std::min(tokens, branch.mixer->max_tokens());
  return tokens;
}

size_t SideBySide::handed_on_columns() const {
  size_t columns = 0;
  for (const Branch& branch : branches_) {
    columns = std::max(columns, branch.mixer->handed_on_columns());
  }
  return columns;
}

absl::Status SideBySide::Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  RIVULET_RETURN_IF_ERROR(Run(0, step, x, y));
  if (branches_.size() == 1) return absl::OkStatus();
  const FloatMatrix term = step.workspace->Take(y.rows, y.columns);
  for (size_t i = 1; i < branches_.size(); ++i) {
    RIVULET_RETURN_IF_ERROR(Run(i, step, x, term));
    AddRows(term, y, *step.pool);
  }
  return absl::OkStatus();
}

absl::Status SideBySide::Run(size_t branch, const LayerStep& step, ConstFloatMatrix x,
                             FloatMatrix y) const {
  const auto& [mixer, input, output] = branches_[branch];
  LayerStep own = step;
  own.state = offsets_[branch].Of(step.state);
  if (input != 1) {
    const FloatMatrix scaled = step.workspace->Take(x.rows, x.columns);
    ParallelRows(*step.pool, x.rows, x.columns,
                 [&](size_t t) { std::copy_n(x.row(t), x.columns, scaled.row(t)); });
    ScaleRows(input, scaled, *step.pool);
    x = scaled;
  }
  RIVULET_RETURN_IF_ERROR(mixer->Forward(own, x, y));
  ScaleRows(output, y, *step.pool);
  return absl::OkStatus();
}

bool SideBySide::runs_on_device() const {
  return std::all_of(branches_.begin(), branches_.end(),
                     [](const Branch& branch) { return branch.mixer->runs_on_device(); });
}

void SideBySide::EnqueueBranch(size_t branch, const DeviceStep& step, Operand x,
                               FloatMatrix y) const {
  const auto& [mixer, input, output] = branches_[branch];
  DeviceStep own = step;
  own.slots = offsets_[branch].Of(step.slots);
  own.output_factor = nullptr;  // branches are added up here, each without a factor
  if (input != 1) {
    const Operand scaled = step.workspace->TakeOperand(x.rows, x.columns);
    step.device->ScaleOperand({.x = x, .factor = input, .y = scaled});
    x = scaled;
  }
  mixer->Enqueue(own, x, y);
}

void SideBySide::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  EnqueueBranch(0, step, x, y);
  const FloatMatrix term = step.workspace->Take(y.rows, y.columns);
  float keep = branches_[0].output;
  for (size_t i = 1; i < branches_.size(); ++i) {
    EnqueueBranch(i, step, x, term);
    step.device->AddNorm({.x = y, .update = term, .keep = keep, .add = branches_[i].output});
    keep = 1;
  }
  if (keep != 1) step.device->AddNorm({.x = y, .keep = keep});
}

}  // namespace rivulet
