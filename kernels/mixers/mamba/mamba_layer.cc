// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "kernels/device/gated.h"
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
        ones_(config.use_scan_norms ? config.rank : 0),
        delta_(TakeLinear("dt_proj", config.inner, config.rank, true, source.parameters)),
        recurrence_({config.inner, config.state_size}, TakeConstants(config, source.parameters),
                    layout_),
        output_(TakeLinear("out_proj", source.hidden, config.inner, config.use_bias,
                           source.parameters)) {
    std::fill_n(ones_.data(), ones_.size(), 1.0f);
    if (config.scan_norms_are_trained) TakeScanNorms(source.parameters);
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const Projected scan = scan_projection_.Apply(step, projected[kInner]);
    if (config_.use_scan_norms) {
      for (const ScanPart part : {kLowRankDelta, kWrite, kRead}) {
        const float* weight = scan_norms_[part].empty() ? nullptr : scan_norms_[part].data();
        RmsNorm(scan[part], weight, config_.scan_norm_eps, scan[part], *step.pool);
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

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    const FloatMatrix inner = rows.Numbers(projected[kInner]);
    rows.Enqueue();
    const Projected scan = scan_projection_.Enqueue(step, Gated(step, inner, {}));
    const FloatMatrix dt = step.workspace->Take(x.rows, config_.inner);
    delta_.Enqueue(*step.device, LowRankDelta(step, scan[kLowRankDelta]), dt);
    const Operand scanned = step.workspace->TakeOperand(x.rows, config_.inner);
    recurrence_.Enqueue(
        step, ScanInput(step, {inner, dt, projected[kGate], scan[kWrite], scan[kRead]}), scanned);
    output_.Enqueue(*step.device, scanned, y);
  }
  bool runs_on_device() const override { return recurrence_.RunsOnDevice(); }

 private:
  void TakeScanNorms(ParameterSource& parameters) {
    const size_t n = config_.state_size;
    scan_norms_[kLowRankDelta] = parameters.TakeVector("dt_layernorm.weight", {config_.rank});
    scan_norms_[kWrite] = parameters.TakeVector("b_layernorm.weight", {n});
    scan_norms_[kRead] = parameters.TakeVector("c_layernorm.weight", {n});
  }

  Operand LowRankDelta(const DeviceStep& step, FloatMatrix delta) const {
    if (!config_.use_scan_norms) return Gated(step, delta, {});
    const AlignedBuffer<float>& trained = scan_norms_[kLowRankDelta];
    const AlignedBuffer<float>& weight = trained.empty() ? ones_ : trained;
    const Operand y = step.workspace->TakeOperand(delta.rows, config_.rank);
    step.device->AddNorm({.x = delta,
                          .weight = step.device->Constant({weight.data(), weight.size()}),
                          .eps = config_.scan_norm_eps,
                          .y = y});
    return y;
  }

  // `input`, with B and C normed if the layer has the norms.
  MambaInput ScanInput(const DeviceStep& step, MambaInput input) const {
    if (!config_.use_scan_norms) return input;
    const auto norm = [&](ScanPart part) {
      const AlignedBuffer<float>& weight = scan_norms_[part];
      return Preparation{.norm = DeviceHeadNorm::kRms,
                         .norm_weight = step.device->Constant({weight.data(), weight.size()}),
                         .norm_eps = config_.scan_norm_eps};
    };
    RowPreparation rows(step, {});
    input.b = rows.Heads(input.b, 1, norm(kWrite));
    input.c = rows.Heads(input.c, 1, norm(kRead));
    rows.Enqueue();
    return input;
  }

  StateLayout layout_;
  MambaConfig config_;
  Projection projection_;
  PartConvolution convolution_;
  Projection scan_projection_;
  AlignedBuffer<float> ones_;  // [R], the weights of the norm of δ on a device
  std::array<AlignedBuffer<float>, 3> scan_norms_;  // by ScanPart; empty where not trained
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
