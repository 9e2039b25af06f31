// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence:
//
//   q, k, v = silu(convolution(x W));   q, k = D^{-1/2} q / |q|, k / |k|
//   β = σ(b), doubled for negative eigenvalues
//   g = -e^{A} softplus(f + dt_bias), or bound · σ(e^{A} (f + dt_bias))      f = W_f1 W_f0 x
//   o = recurrence(q, k, v, β, g)     y = (rms(o) · w · σ(W_g1 W_g0 x + bias)) W_o
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/mixers/kda/kda_config.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kBeta, kLowRankDecay, kLowRankGate };

struct TensorNames {
  std::string decay_in, decay_out, gate_in, gate_out, rate, rate_bias;
};

TensorNames NamesOf(const KdaConfig& config, const ParameterSource& parameters) {
  if (config.tensors == KdaTensors::kFla) {
    return {"f_proj.0", "f_proj.1", "g_proj.0", "g_proj.1", "A_log", "dt_bias"};
  }
  // transformers keeps the decay's tensors in a module of their own.
  const std::string own = parameters.Has("forget_gate.f_a_proj.weight") ? "forget_gate." : "";
  return {own + "f_a_proj", own + "f_b_proj", "g_a_proj",
          "g_b_proj",       own + "A_log",    own + "dt_bias"};
}

std::vector<ProjectionPart> Parts(const KdaConfig& c, const TensorNames& names) {
  const size_t keys = c.shape.groups * c.shape.key_dim;
  return {{"q_proj", keys},
          {"k_proj", keys},
          {"v_proj", c.shape.heads * c.shape.value_dim},
          {"b_proj", c.shape.heads},
          {names.decay_in, c.gate_rank},
          {names.gate_in, c.gate_rank}};
}

// Moonshot's files have a convolution each for q, k and v; transformers' have one for all.
PartConvolutionConfig Convolution(const KdaConfig& config, const ParameterSource& parameters) {
  PartConvolutionConfig result = FlaConvolution(config.conv_size, false);
  if (config.tensors == KdaTensors::kKimi && parameters.Has("conv1d.weight")) {
    result.tensors = {"conv1d"};
  }
  return result;
}

// [H] = e^{A_log}, from a tensor of any shape with as many numbers.
AlignedBuffer<float> TakeRate(const std::string& name, size_t heads, ParameterSource& parameters) {
  std::vector<size_t> shape = {heads};
  if (parameters.Shape(name) == std::vector<size_t>{1, 1, heads, 1}) shape = {1, 1, heads, 1};
  AlignedBuffer<float> rate = parameters.TakeVector(name, shape);
  for (size_t h = 0; h < rate.size(); ++h) rate[h] = std::exp(rate[h]);
  return rate;
}

class KdaLayer : public Mixer {
 public:
  KdaLayer(const KdaConfig& config, const TensorNames& names, const MixerSource& source)
      : config_(config),
        layout_(source.options.NewLayout()),
        projection_(Parts(config, names), source.hidden, source.parameters),
        convolution_(Convolution(config, source.parameters), projection_, source.parameters,
                     layout_),
        decay_(TakeLinear(names.decay_out, config.shape.heads * config.shape.key_dim,
                          config.gate_rank, false, source.parameters)),
        gate_(TakeLinear(names.gate_out, values(), config.gate_rank, config.gate_bias,
                         source.parameters)),
        rate_(TakeRate(names.rate, config.shape.heads, source.parameters)),
        rate_bias_(source.parameters.TakeVector(names.rate_bias,
                                                {config.shape.heads * config.shape.key_dim})),
        recurrence_(KdaDeclaration(config.shape), layout_),
        norm_(source.parameters.TakeVector("o_norm.weight", {config.shape.value_dim})),
        output_(TakeLinear("o_proj", source.hidden, values(), false, source.parameters)) {
    if (layout_.device()) MakeChannelRates();
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const HeadShape& shape = config_.shape;
    const TokenInputs inputs{
        .q = Keys(step, projected[kQuery], InverseRoot(shape.key_dim)),
        .k = Keys(step, projected[kKey], 1.0f),
        .v = PaddedHeads(step, projected[kValue], shape.heads, after_convolution()),
        .decay = LogDecay(step, projected[kLowRankDecay]),
        .beta = Beta(step, projected[kBeta])};
    const FloatMatrix o = RunRecurrence(step, recurrence_, inputs);
    ProjectOutput(step, output_, NormAndGate(step, o, projected[kLowRankGate]), y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const HeadShape& shape = config_.shape;
    const Projected projected = projection_.Enqueue(step, x);
    const FloatMatrix f = LowRank(step, decay_, projected[kLowRankDecay]);
    const FloatMatrix gate = LowRank(step, gate_, projected[kLowRankGate]);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    const Preparation key{.f = after_convolution(), .norm = DeviceHeadNorm::kL2};
    Preparation query = key;
    query.scale = InverseRoot(shape.key_dim);
    const TokenInputs inputs{
        .q = rows.Heads(projected[kQuery], shape.groups, query),
        .k = rows.Heads(projected[kKey], shape.groups, key),
        .v = rows.Heads(projected[kValue], shape.heads, {.f = after_convolution()}),
        .decay = rows.Heads(f, shape.heads, DecayOnDevice(*step.device)),
        .beta = rows.Numbers(
            projected[kBeta],
            {.f = Activation::kSigmoid, .scale = config_.negative_eigenvalues ? 2.0f : 1.0f})};
    rows.Enqueue();
    const FloatMatrix o = EnqueueRecurrence(step, recurrence_, inputs);
    const GatedNorm how{.heads = shape.heads,
                        .width = shape.value_dim,
                        .norm_width = shape.value_dim,
                        .weight = {norm_.data(), norm_.size()},
                        .eps = config_.norm_eps,
                        .gate_f = Activation::kSigmoid};
    output_.Enqueue(*step.device, EnqueueNormAndGate(step, o, gate, how), y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }

 private:
  static FloatMatrix LowRank(const DeviceStep& step, const Linear& map, ConstFloatMatrix x) {
    const FloatMatrix y = step.workspace->Take(x.rows, map.outputs());
    map.Enqueue(*step.device, Gated(step, x, {}), y);
    return y;
  }

  // -e^A softplus(f + bias), or bound · σ(e^A f + e^A bias).
  Preparation DecayOnDevice(Device& device) const {
    const auto constant = [&](const AlignedBuffer<float>& numbers) {
      return device.Constant({numbers.data(), numbers.size()});
    };
    if (!config_.lower_bound.has_value()) {
      return {.f = Activation::kSoftplus,
              .bias = constant(rate_bias_),
              .rate = constant(channel_rate_)};
    }
    return {.f = Activation::kSigmoid,
            .scale = *config_.lower_bound,
            .multiplier = constant(channel_rate_),
            .bias = constant(bounded_bias_)};
  }

  // The constants of DecayOnDevice.
  void MakeChannelRates() {
    const size_t width = config_.shape.key_dim;
    channel_rate_ = AlignedBuffer<float>(rate_bias_.size());
    bounded_bias_ = AlignedBuffer<float>(rate_bias_.size());
    const float sign = config_.lower_bound.has_value() ? 1.0f : -1.0f;
    for (size_t i = 0; i < rate_bias_.size(); ++i) {
      channel_rate_[i] = sign * rate_[i / width];
      bounded_bias_[i] = rate_[i / width] * rate_bias_[i];
    }
  }

  size_t values() const { return config_.shape.heads * config_.shape.value_dim; }
  // The convolution applies SiLU; without it something else must.
  Activation after_convolution() const {
    return config_.conv_size == 0 ? Activation::kSilu : Activation::kIdentity;
  }

  // Queries and keys alike, in padded heads: activation, then norm, then scale.
  FloatMatrix Keys(const LayerStep& step, FloatMatrix x, float scale) const {
    const HeadShape& shape = config_.shape;
    FloatMatrix keys = PaddedHeads(step, x, shape.groups, after_convolution());
    L2NormHeads(keys, shape.groups, shape.key_dim, shape.padded_key(), scale, *step.pool);
    return keys;
  }

  // [T, H]
  FloatMatrix Beta(const LayerStep& step, ConstFloatMatrix b) const {
    const float scale = config_.negative_eigenvalues ? 2.0f : 1.0f;
    return MapRows(step, b, b.columns, [&](const float* logits, float* beta) {
      Activate(Activation::kSigmoid, logits, beta, b.columns);
      for (size_t h = 0; h < b.columns; ++h) beta[h] *= scale;
    });
  }

  // [T, H·Dp], zeros in the padding of each head.
  FloatMatrix LogDecay(const LayerStep& step, ConstFloatMatrix low_rank) const {
    const FloatMatrix f = Project(step, decay_, low_rank);
    ParallelRows(*step.pool, f.rows, 4 * f.columns, [&](size_t t) { DecayRow(f.row(t)); });
    return PaddedHeads(step, f, config_.shape.heads);
  }

  // g of all heads in place of f.
  void DecayRow(float* row) const {
    const size_t width = config_.shape.key_dim, count = rate_bias_.size();
    const bool bounded = config_.lower_bound.has_value();
    for (size_t i = 0; i < count; ++i) row[i] += rate_bias_[i];
    if (bounded) ScaleHeads(row, width, 1.0f);
    Activate(bounded ? Activation::kSigmoid : Activation::kSoftplus, row, row, count);
    if (!bounded) return ScaleHeads(row, width, -1.0f);
    for (size_t i = 0; i < count; ++i) row[i] *= *config_.lower_bound;
  }

  // Each head times its e^{A_log}, and sign.
  void ScaleHeads(float* row, size_t width, float sign) const {
    for (size_t h = 0; h < rate_.size(); ++h) {
      for (size_t i = 0; i < width; ++i) row[h * width + i] *= sign * rate_[h];
    }
  }

  // [T, H·E] = rms(o) · w · σ(gate).
  FloatMatrix NormAndGate(const LayerStep& step, ConstFloatMatrix o,
                          ConstFloatMatrix low_rank) const {
    const HeadShape& shape = config_.shape;
    const FloatMatrix gate = Project(step, gate_, low_rank);
    const FloatMatrix y = step.workspace->Take(o.rows, values());
    const StageTimer timer(step.times, Stage::kNorm);
    HeadNormGate(o, shape.heads, shape.value_dim, shape.padded_value(), norm_.data(),
                 config_.norm_eps, {}, y, *step.pool);
    ParallelRows(*step.pool, y.rows, 4 * y.columns, [&](size_t t) {
      GateMultiply(Activation::kSigmoid, gate.row(t), y.row(t), y.row(t), y.columns);
    });
    return y;
  }

  KdaConfig config_;
  StateLayout layout_;
  Projection projection_;
  PartConvolution convolution_;
  Linear decay_, gate_;
  AlignedBuffer<float> rate_;                         // [H]: e^{A_log}
  AlignedBuffer<float> rate_bias_;                    // [H·D]
  AlignedBuffer<float> channel_rate_, bounded_bias_;  // [H·D], on a device
  SumRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [E]
  Linear output_;
};

}  // namespace

RecurrenceDeclaration KdaDeclaration(const HeadShape& shape) {
  return {.shape = shape,
          .sharing = Sharing::kQueriesAndKeys,
          .decay = {.kind = Decay::kChannel},
          .rows = {{"k", shape.key_dim, {"k"}}, {"u", shape.value_dim}},
          .sums = {{"S", "k", "u"}},
          .reads = {{"o", "S", "q"}},
          .delta = true};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const KdaConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<KdaLayer>(WithStateDType(config, source),
                                    NamesOf(config, source.parameters), source);
}

}  // namespace rivulet
