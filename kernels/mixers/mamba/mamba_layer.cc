// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>

#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/mamba/mamba_config.h"
#include "kernels/mixers/mamba/mamba_recurrence.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// The columns of in_proj, and those of x_proj.
enum Part : size_t { kInner, kGate };
enum ScanPart : size_t { kLowRankDelta, kWrite, kRead };

MambaConstants TakeConstants(const MambaConfig& config, ParameterSource& parameters) {
  MambaConstants constants{parameters.TakeVector("A_log", {config.inner, config.state_size}),
                           parameters.TakeVector("D", {config.inner})};
  for (size_t i = 0; i < constants.a.size(); ++i) constants.a[i] = -std::exp(constants.a[i]);
  return constants;
}

class MambaLayer : public Mixer {
 public:
  MambaLayer(const MambaConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_({{"in_proj", config.inner, config.use_bias},
                     {"in_proj", config.inner, config.use_bias}},
                    source.hidden, source.parameters),
        convolution_({.tensors = {"conv1d"},
                      .first = kInner,
                      .window = config.conv_kernel,
                      .bias = config.use_conv_bias},
                     projection_, source.parameters, layout_),
        scan_projection_(
            {{"x_proj", config.rank}, {"x_proj", config.state_size}, {"x_proj", config.state_size}},
            config.inner, source.parameters),
        delta_(TakeLinear("dt_proj", config.inner, config.rank, true, source.parameters)),
        recurrence_({config.inner, config.state_size}, TakeConstants(config, source.parameters),
                    layout_),
        output_(TakeLinear("out_proj", source.hidden, config.inner, config.use_bias,
                           source.parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const Projected scan = scan_projection_.Apply(step, projected[kInner]);
    if (config_.use_scan_norms) {
      for (const ScanPart part : {kLowRankDelta, kWrite, kRead}) {
        RmsNorm(scan[part], nullptr, config_.scan_norm_eps, scan[part], *step.pool);
      }
    }
    const FloatMatrix dt = Project(step, delta_, scan[kLowRankDelta]);
    const FloatMatrix scanned = step.workspace->Take(x.rows, config_.inner);
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state,
                      {projected[kInner], dt, projected[kGate], scan[kWrite], scan[kRead]}, scanned,
                      *step.pool);
    }
    ProjectOutput(step, output_, scanned, y);
    return absl::OkStatus();
  }

 private:
  StateLayout layout_;
  MambaConfig config_;
  Projection projection_;
  PartConvolution convolution_;
  Projection scan_projection_;
  Linear delta_;
  MambaRecurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const MambaConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<MambaLayer>(config, source);
}

}  // namespace rivulet
