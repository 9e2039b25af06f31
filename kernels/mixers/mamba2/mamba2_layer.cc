// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mamba2/mamba2_frame.h"
#include "kernels/mixers/mamba2/mamba2_recurrence.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

class Mamba2Layer : public Mixer {
 public:
  Mamba2Layer(const Mamba2Config& config, const MixerSource& source)
      : layout_(source.options.fold_interval),
        frame_(config, 0, source, layout_),
        recurrence_(Mamba2Declaration(Mamba2ShapeOf(config, source.options.state_dtype),
                                      TakeMamba2Constants(config, source.parameters)),
                    layout_) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Mamba2Frame::Result projected = frame_.Project(step, x);
    frame_.Output(step, RunRecurrence(step, recurrence_, projected.input), projected.z, y);
    return absl::OkStatus();
  }

 private:
  StateLayout layout_;
  Mamba2Frame frame_;
  SumRecurrence recurrence_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Mamba2Config& config,
                                                 const MixerSource& source) {
  return std::make_unique<Mamba2Layer>(config, source);
}

}  // namespace rivulet
