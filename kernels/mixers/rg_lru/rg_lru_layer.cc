// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/rg_lru/rg_lru_config.h"
#include "kernels/mixers/rg_lru/rg_lru_recurrence.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {
namespace {

// The columns of the one projection of the layer's input.
enum Part : size_t { kInner, kBranch };

// Griffin's constant c: log a = -c · softplus(Λ) · σ(r).
constexpr double kDecayScale = 8.0;

// rate = -c · softplus(Λ), in fp64 and rounded once.
AlignedBuffer<float> TakeRate(size_t width, ParameterSource& parameters) {
  AlignedBuffer<float> rate = parameters.TakeVector("rg_lru.recurrent_param", {width});
  for (size_t i = 0; i < rate.size(); ++i) {
    const double x = rate[i];
    rate[i] = static_cast<float>(-kDecayScale * (x > 20 ? x : std::log1p(std::exp(x))));
  }
  return rate;
}

// A map that is a matrix for each block of channels. The file has them with inputs as rows.
class BlockDiagonal {
 public:
  BlockDiagonal(const std::string& name, const RgLruConfig& config, ParameterSource& parameters) {
    const size_t side = config.width / config.blocks;
    const AlignedBuffer<float> weight =
        parameters.TakeVector(name + "_weight", {config.blocks, side, side});
    const AlignedBuffer<float> bias = parameters.TakeVector(name + "_bias", {config.blocks, side});
    AlignedBuffer<float> turned(side * side);
    for (size_t b = 0; b < config.blocks; ++b) {
      const float* from = weight.data() + b * side * side;
      for (size_t i = 0; i < side * side; ++i) turned[i % side * side + i / side] = from[i];
      maps_.push_back(Linear::Pack({{turned.data(), DType::kFloat32, side, bias.data() + b * side}},
                                   side, DType::kFloat32));
    }
  }

  FloatMatrix Apply(const LayerStep& step, ConstFloatMatrix x) const {
    const StageTimer timer(step.times, Stage::kProjection);
    const FloatMatrix y = step.workspace->Take(x.rows, x.columns);
    const size_t side = x.columns / maps_.size();
    for (size_t b = 0; b < maps_.size(); ++b) {
      maps_[b].Apply(x.Columns(b * side, side), y.Columns(b * side, side), *step.pool);
    }
    return y;
  }

 private:
  std::vector<Linear> maps_;
};

class RgLruLayer : public Mixer {
 public:
  RgLruLayer(const RgLruConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        projection_({{"linear_x", config.width, true}, {"linear_y", config.width, true}},
                    source.hidden, source.parameters),
        convolution_({.tensors = {"conv_1d"},
                      .first = kInner,
                      .window = config.conv_size,
                      .bias = true,
                      .silu = false},
                     projection_, source.parameters, layout_),
        input_gate_("rg_lru.input_gate", config, source.parameters),
        recurrent_gate_("rg_lru.recurrent_gate", config, source.parameters),
        recurrence_(TakeRate(config.width, source.parameters), layout_),
        output_(TakeLinear("linear_out", source.hidden, config.width, true, source.parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const FloatMatrix inner = projected[kInner];
    const RgLruInput input{inner, input_gate_.Apply(step, inner),
                           recurrent_gate_.Apply(step, inner)};
    const FloatMatrix h = step.workspace->Take(inner.rows, inner.columns);
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, input, h, *step.pool);
    }
    MultiplyByBranch(step, projected[kBranch], h);
    ProjectOutput(step, output_, h, y);
    return absl::OkStatus();
  }

 private:
  // h *= gelu(branch).
  static void MultiplyByBranch(const LayerStep& step, FloatMatrix branch, FloatMatrix h) {
    ParallelRows(*step.pool, h.rows, 4 * h.columns, [&](size_t t) {
      GateMultiply(Activation::kGeluTanh, branch.row(t), h.row(t), h.row(t), h.columns);
    });
  }

  StateLayout layout_;
  Projection projection_;
  PartConvolution convolution_;
  BlockDiagonal input_gate_, recurrent_gate_;
  RgLruRecurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const RgLruConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<RgLruLayer>(config, source);
}

}  // namespace rivulet
