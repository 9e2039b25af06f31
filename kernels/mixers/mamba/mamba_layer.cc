// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/base/status.h"
#include "kernels/mixers/mamba/mamba.h"
#include "kernels/mixers/mamba/mamba_config.h"
#include "kernels/mixers/mamba/mamba_recurrence.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/short_convolution/short_convolution.h"

namespace rivulet {
namespace {

ShortConvolution TakeConvolution(const MambaConfig& config, ParameterSource& parameters,
                                 StateLayout& layout) {
  AlignedBuffer<float> weight =
      parameters.TakeVector("conv1d.weight", {config.inner, 1, config.conv_kernel});
  AlignedBuffer<float> bias;
  if (config.use_conv_bias) bias = parameters.TakeVector("conv1d.bias", {config.inner});
  return ShortConvolution(std::move(weight), std::move(bias), config.inner, config.conv_kernel,
                          true, "conv", layout);
}

MambaConstants TakeConstants(const MambaConfig& config, ParameterSource& parameters) {
  MambaConstants constants{parameters.TakeVector("A_log", {config.inner, config.state_size}),
                           parameters.TakeVector("D", {config.inner})};
  for (size_t i = 0; i < constants.a.size(); ++i) constants.a[i] = -std::exp(constants.a[i]);
  return constants;
}

Linear TakeProjection(const char* name, const char* bias, size_t outputs, size_t inputs,
                      ParameterSource& parameters) {
  return parameters.TakeLinear({{name, outputs, bias}}, inputs);
}

class MambaLayer : public Mixer {
 public:
  MambaLayer(const MambaConfig& config, const MixerSource& source)
      : config_(config),
        input_(TakeProjection("in_proj.weight", config.use_bias ? "in_proj.bias" : "",
                              2 * config.inner, source.hidden, source.parameters)),
        convolution_(TakeConvolution(config, source.parameters, layout_)),
        scan_input_(TakeProjection("x_proj.weight", "", config.rank + 2 * config.state_size,
                                   config.inner, source.parameters)),
        delta_(TakeProjection("dt_proj.weight", "dt_proj.bias", config.inner, config.rank,
                              source.parameters)),
        recurrence_({config.inner, config.state_size}, TakeConstants(config, source.parameters),
                    layout_),
        output_(TakeProjection("out_proj.weight", config.use_bias ? "out_proj.bias" : "",
                               source.hidden, config.inner, source.parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const FloatMatrix projected = step.workspace->Take(x.rows, 2 * config_.inner);
    input_.Apply(x, projected, *step.pool);
    const FloatMatrix convolved = step.workspace->Take(x.rows, config_.inner);
    convolution_.Apply(step.segments, step.state, projected.Columns(0, config_.inner), convolved,
                       *step.pool);

    const FloatMatrix scan = step.workspace->Take(x.rows, config_.rank + 2 * config_.state_size);
    scan_input_.Apply(convolved, scan, *step.pool);
    const FloatMatrix low_rank = scan.Columns(0, config_.rank);
    const FloatMatrix b = scan.Columns(config_.rank, config_.state_size);
    const FloatMatrix c = scan.Columns(config_.rank + config_.state_size, config_.state_size);
    if (config_.use_scan_norms) {
      for (const FloatMatrix& part : {low_rank, b, c}) {
        RmsNorm(part, nullptr, config_.scan_norm_eps, part, *step.pool);
      }
    }
    const FloatMatrix dt = step.workspace->Take(x.rows, config_.inner);
    delta_.Apply(low_rank, dt, *step.pool);

    const FloatMatrix scanned = step.workspace->Take(x.rows, config_.inner);
    const ConstFloatMatrix z = projected.Columns(config_.inner, config_.inner);
    recurrence_.Run(step.segments, step.state, {convolved, dt, z, b, c}, scanned, *step.pool);
    output_.Apply(scanned, y, *step.pool);
    return absl::OkStatus();
  }

 private:
  MambaConfig config_;
  Linear input_;
  StateLayout layout_;
  ShortConvolution convolution_;
  Linear scan_input_;
  Linear delta_;
  MambaRecurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const MambaConfig config,
                           ParseMambaConfig(source.config, source.hidden));
  return std::make_unique<MambaLayer>(config, source);
}

}  // namespace rivulet
