// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/device/gated.h"
#include "kernels/mixers/gated_convolution/gated_convolution.h"
#include "kernels/mixers/gated_convolution/gated_convolution_config.h"
#include "kernels/mixers/layer_stages.h"

namespace rivulet {
namespace {

// The columns of in_proj.
enum Part : size_t { kInputGate, kOutputGate, kInput };

GatedConvolution TakeConvolution(const GatedConvolutionConfig& config, const MixerSource& source,
                                 StateLayout& layout) {
  const size_t channels = source.hidden;
  AlignedBuffer<float> bias;
  if (config.bias) bias = source.parameters.TakeVector("conv.bias", {channels});
  return {source.parameters.TakeVector("conv.weight", {channels, 1, config.window}),
          std::move(bias), channels, config.window, layout};
}

class GatedConvolutionLayer : public Mixer {
 public:
  GatedConvolutionLayer(const GatedConvolutionConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        projection_({{"in_proj", source.hidden, config.bias},
                     {"in_proj", source.hidden, config.bias},
                     {"in_proj", source.hidden, config.bias}},
                    source.hidden, source.parameters),
        convolution_(TakeConvolution(config, source, layout_)),
        output_(
            TakeLinear("out_proj", source.hidden, source.hidden, config.bias, source.parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const FloatMatrix o = step.workspace->Take(x.rows, x.columns);
    {
      const StageTimer timer(step.times, Stage::kConvolution);
      convolution_.Run(step, {projected[kInputGate], projected[kOutputGate], projected[kInput]}, o);
    }
    ProjectOutput(step, output_, o, y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    const FloatMatrix gated = projected[kInput];
    RowPreparation rows(step, convolution_.OnDevice(*step.device, gated, projected[kInputGate]));
    const FloatMatrix o = rows.Numbers(gated);
    rows.Enqueue();
    output_.Enqueue(
        *step.device,
        Gated(step, o, projected[kOutputGate], Activation::kIdentity, Activation::kIdentity), y);
  }
  bool runs_on_device() const override { return true; }

 private:
  StateLayout layout_;
  Projection projection_;
  GatedConvolution convolution_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const GatedConvolutionConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<GatedConvolutionLayer>(config, source);
}

}  // namespace rivulet
