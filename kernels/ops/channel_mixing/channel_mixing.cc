// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/channel_mixing/channel_mixing.h"

#include <span>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

ChannelMixing::ChannelMixing(AlignedBuffer<float> mix, Linear key, Linear value, Activation f,
                             StateLayout layout)
    : layout_(std::move(layout)),
      shift_(mix.size(), layout_),
      mix_(std::move(mix)),
      key_(std::move(key)),
      value_(std::move(value)),
      f_(f) {
  RIVULET_CHECK(key_.inputs() == mix_.size() && value_.outputs() == mix_.size() &&
                    key_.outputs() == value_.inputs(),
                "the maps of channel mixing disagree on a width");
}

void ChannelMixing::Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  const FloatMatrix mixed = step.workspace->Take(x.rows, x.columns);
  MixShifted(x, shift_.Difference(step, x), mix_.data(), mixed, *step.pool);
  const FloatMatrix middle = step.workspace->Take(x.rows, key_.outputs());
  key_.Apply(mixed, middle, *step.pool);
  ParallelRows(*step.pool, middle.rows, middle.columns,
               [&](size_t t) { Activate(f_, middle.row(t), middle.row(t), middle.columns); });
  value_.Apply(middle, y, *step.pool);
}

void ChannelMixing::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const Operand mixed = shift_.Enqueue(step, x, std::span(&mix_, 1))[0];
  const FloatMatrix middle = step.workspace->Take(x.rows, key_.outputs());
  key_.Enqueue(*step.device, mixed, middle);
  value_.Enqueue(*step.device, Gated(step, middle, {}, f_), y);
}

}  // namespace rivulet
