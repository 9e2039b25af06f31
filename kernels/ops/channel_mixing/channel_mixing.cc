// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/channel_mixing/channel_mixing.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/device/gate_operations.h"
#include "kernels/device/gated.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

ChannelMixing::ChannelMixing(AlignedBuffer<float> mix, Linear key, Linear value,
                             std::optional<Gate> gate, Activation f, StateLayout layout)
    : layout_(std::move(layout)),
      shift_(mix.size(), layout_),
      key_(std::move(key)),
      value_(std::move(value)),
      f_(f) {
  RIVULET_CHECK(key_.inputs() == mix.size() && value_.outputs() == mix.size() &&
                    key_.outputs() == value_.inputs(),
                "the maps of channel mixing disagree on a width");
  mixes_.push_back(std::move(mix));
  if (!gate.has_value()) return;
  mixes_.push_back(std::move(gate->mix));
  receptance_ = std::move(gate->receptance);
}

void ChannelMixing::Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  const FloatMatrix mixed = step.workspace->Take(x.rows, x.columns);
  const FloatMatrix difference = shift_.Difference(step, x);
  MixShifted(x, difference, mixes_[0].data(), mixed, *step.pool);
  const FloatMatrix middle = step.workspace->Take(x.rows, key_.outputs());
  key_.Apply(mixed, middle, *step.pool);
  ParallelRows(*step.pool, middle.rows, middle.columns,
               [&](size_t t) { Activate(f_, middle.row(t), middle.row(t), middle.columns); });
  value_.Apply(middle, y, *step.pool);
  if (!gated()) return;
  MixShifted(x, difference, mixes_[1].data(), mixed, *step.pool);
  ApplyGate(step, mixed, y);
}

// y = σ(W_receptance mixed) ∘ y
void ChannelMixing::ApplyGate(const LayerStep& step, ConstFloatMatrix mixed, FloatMatrix y) const {
  const FloatMatrix gate = step.workspace->Take(mixed.rows, mixed.columns);
  receptance_.Apply(mixed, gate, *step.pool);
  ParallelRows(*step.pool, y.rows, 4 * y.columns, [&](size_t t) {
    Activate(Activation::kSigmoid, gate.row(t), gate.row(t), gate.columns);
    for (size_t i = 0; i < y.columns; ++i) y.row(t)[i] *= gate.row(t)[i];
  });
}

void ChannelMixing::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const auto mixed = shift_.Enqueue(step, x, mixes_);
  const FloatMatrix middle = step.workspace->Take(x.rows, key_.outputs());
  key_.Enqueue(*step.device, mixed[0], middle);
  value_.Enqueue(*step.device, Gated(step, middle, {}, f_), y);
  if (!gated()) return;
  const FloatMatrix gate = step.workspace->Take(y.rows, y.columns);
  receptance_.Enqueue(*step.device, mixed[1], gate);
  step.device->Gate({.gate = gate, .x = y, .f = Activation::kSigmoid, .numbers = y});
}

}  // namespace rivulet
