// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/mixers/block_linear.h"
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
BlockLinear TakeBlockDiagonal(const std::string& name, const RgLruConfig& config,
                              ParameterSource& parameters) {
  const size_t side = config.width / config.blocks;
  const AlignedBuffer<float> weight =
      parameters.TakeVector(name + "_weight", {config.blocks, side, side});
  const AlignedBuffer<float> bias = parameters.TakeVector(name + "_bias", {config.blocks, side});
  AlignedBuffer<float> turned(weight.size());
  std::vector<LinearSource> maps;
  for (size_t b = 0; b < config.blocks; ++b) {
    const float* from = weight.data() + b * side * side;
    float* to = turned.data() + b * side * side;
    for (size_t i = 0; i < side * side; ++i) to[i % side * side + i / side] = from[i];
    maps.push_back({to, DType::kFloat32, side, bias.data() + b * side});
  }
  return {maps, side, parameters};
}

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
        side_(config.width / config.blocks),
        input_gate_(TakeBlockDiagonal("rg_lru.input_gate", config, source.parameters)),
        recurrent_gate_(TakeBlockDiagonal("rg_lru.recurrent_gate", config, source.parameters)),
        recurrence_(TakeRate(config.width, source.parameters), layout_),
        output_(TakeLinear("linear_out", source.hidden, config.width, true, source.parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const FloatMatrix inner = projected[kInner];
    const auto gate = [&](const BlockLinear& map) {
      const FloatMatrix logits = step.workspace->Take(inner.rows, inner.columns);
      map.Apply(step, inner, side_, logits, side_);
      return logits;
    };
    const RgLruInput input{inner, gate(input_gate_), gate(recurrent_gate_)};
    const FloatMatrix h = step.workspace->Take(inner.rows, inner.columns);
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, input, h, *step.pool);
    }
    MultiplyByBranch(step, projected[kBranch], h);
    ProjectOutput(step, output_, h, y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    const size_t blocks = projected[kInner].columns / side_, padded = PaddedColumns(side_);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    const FloatMatrix inner = rows.Numbers(projected[kInner]);
    rows.Enqueue();
    const Operand in_blocks = InBlocks(step, inner, blocks);
    const auto gate = [&](const BlockLinear& map) {
      const FloatMatrix logits = step.workspace->Take(inner.rows, inner.columns);
      map.Enqueue(step, in_blocks, padded, logits, side_);
      return logits;
    };
    const FloatMatrix h = step.workspace->Take(inner.rows, inner.columns);
    recurrence_.Enqueue(step, {inner, gate(input_gate_), gate(recurrent_gate_)}, h);
    output_.Enqueue(
        *step.device,
        Gated(step, h, projected[kBranch], Activation::kIdentity, Activation::kGeluTanh), y);
  }
  bool runs_on_device() const override {
    return side_ == PaddedColumns(side_) || side_ <= kMostPreparedWidth;
  }

 private:
  // The operand of the gates' maps: blocks of padded columns.
  static Operand InBlocks(const DeviceStep& step, FloatMatrix inner, size_t blocks) {
    const size_t side = inner.columns / blocks;
    if (side == PaddedColumns(side)) return Gated(step, inner, {});
    RowPreparation rows(step, {});
    const FloatMatrix padded = rows.Heads(inner, blocks);
    rows.Enqueue();
    return Gated(step, padded, {});
  }

  // h *= gelu(branch).
  static void MultiplyByBranch(const LayerStep& step, FloatMatrix branch, FloatMatrix h) {
    ParallelRows(*step.pool, h.rows, 4 * h.columns, [&](size_t t) {
      GateMultiply(Activation::kGeluTanh, branch.row(t), h.row(t), h.row(t), h.columns);
    });
  }

  StateLayout layout_;
  Projection projection_;
  PartConvolution convolution_;
  size_t side_;  // of a block
  BlockLinear input_gate_, recurrent_gate_;
  RgLruRecurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const RgLruConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<RgLruLayer>(config, source);
}

}  // namespace rivulet
