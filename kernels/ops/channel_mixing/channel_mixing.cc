// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/channel_mixing/channel_mixing.h"

#include <span>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

ChannelMixing::ChannelMixing(AlignedBuffer<float> mix, Linear key, Linear value,
                             std::optional<Gate> gate, Activation f, StateLayout layout)
    : layout_(std::move(layout)),
      shift_(mix.size(), layout_),
      mix_(std::move(mix)),
      key_(std::move(key)),
      value_(std::move(value)),
      gate_(std::move(gate)),
      f_(f) {
  RIVULET_CHECK(key_.inputs() == mix_.size() && value_.outputs() == mix_.size() &&
                    key_.outputs() == value_.inputs(),
                "the maps of channel mixing disagree on a width");
}

void ChannelMixing::Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  const FloatMatrix mixed = step.workspace->Take(x.rows, x.columns);
  const FloatMatrix difference = shift_.Difference(step, x);
  MixShifted(x, difference, mix_.data(), mixed, *step.pool);
  const FloatMatrix middle = step.workspace->Take(x.rows, key_.outputs());
  key_.Apply(mixed, middle, *step.pool);
  ParallelRows(*step.pool, middle.rows, middle.columns,
               [&](size_t t) { Activate(f_, middle.row(t), middle.row(t), middle.columns); });
  value_.Apply(middle, y, *step.pool);
  if (!gate_.has_value()) return;
  MixShifted(x, difference, gate_->mix.data(), mixed, *step.pool);
  ApplyGate(step, mixed, y);
}

// y = σ(W_receptance mixed) ∘ y
void ChannelMixing::ApplyGate(const LayerStep& step, ConstFloatMatrix mixed, FloatMatrix y) const {
  const FloatMatrix gate = step.workspace->Take(mixed.rows, mixed.columns);
  gate_->receptance.Apply(mixed, gate, *step.pool);
  ParallelRows(*step.pool, y.rows, 4 * y.columns, [&](size_t t) {
    Activate(Activation::kSigmoid, gate.row(t), gate.row(t), gate.columns);
    for (size_t i = 0; i < y.columns; ++i) y.row(t)[i] *= gate.row(t)[i];
  });
}

void ChannelMixing::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const Operand mixed = shift_.Enqueue(step, x, std::span(&mix_, 1))[0];
  const FloatMatrix middle = step.workspace->Take(x.rows, key_.outputs());
  key_.Enqueue(*step.device, mixed, middle);
  value_.Enqueue(*step.device, Gated(step, middle, {}, f_), y);
}

}  // namespace rivulet
