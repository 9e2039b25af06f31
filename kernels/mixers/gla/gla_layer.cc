// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/mixers/gla/gla_config.h"
#include "kernels/mixers/layer_stages.h"

namespace rivulet {
namespace {

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kLowRankDecay, kGate };

std::vector<ProjectionPart> Parts(const GlaConfig& c) {
  return {{"q_proj", c.heads * c.key_dim},
          {"k_proj", c.kv_heads * c.key_dim},
          {"v_proj", c.kv_heads * c.value_dim},
          {"gk_proj.0", c.gate_rank},
          {"g_proj", c.output.gate ? c.heads * c.value_dim : 0}};
}

class GlaLayer : public Mixer {
 public:
  GlaLayer(const GlaConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_(Parts(config), source.hidden, source.parameters),
        decay_(TakeLinear("gk_proj.1", config.kv_heads * config.key_dim, config.gate_rank, true,
                          source.parameters)),
        convolution_(FlaConvolution(config.use_short_conv ? config.conv_size : 0, config.conv_bias),
                     projection_, source.parameters, layout_),
        recurrence_(GlaDeclaration({config.heads, config.kv_heads, config.key_dim, config.value_dim,
                                    source.options.state_dtype}),
                    layout_),
        output_(FlaHeadOutput(config.output, config.heads, config.value_dim), source) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const TokenInputs inputs{
        .q = PaddedHeads(step, projected[kQuery], config_.heads, config_.feature_map,
                         InverseRoot(config_.key_dim)),
        .k = PaddedHeads(step, projected[kKey], config_.kv_heads, config_.feature_map),
        .v = PaddedHeads(step, projected[kValue], config_.kv_heads),
        .decay = LogDecay(step, projected[kLowRankDecay])};
    output_.Apply(step, RunRecurrence(step, recurrence_, inputs), projected[kGate], y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    const ConstFloatMatrix low_rank = projected[kLowRankDecay];
    const FloatMatrix decay = step.workspace->Take(low_rank.rows, decay_.outputs());
    decay_.Enqueue(*step.device, Gated(step, low_rank, {}), decay);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    const float normalizer = config_.gate_logit_normalizer;
    Preparation log_decay{.f = Activation::kLogSigmoid, .scale = 1.0f / normalizer};
    if (config_.clamp_min.has_value()) log_decay.low = *config_.clamp_min * normalizer;
    const TokenInputs inputs{
        .q = rows.Heads(projected[kQuery], config_.heads,
                        {.f = config_.feature_map, .scale = InverseRoot(config_.key_dim)}),
        .k = rows.Heads(projected[kKey], config_.kv_heads, {.f = config_.feature_map}),
        .v = rows.Heads(projected[kValue], config_.kv_heads),
        .decay = rows.Heads(decay, config_.kv_heads, log_decay)};
    rows.Enqueue();
    output_.Enqueue(step, EnqueueRecurrence(step, recurrence_, inputs), projected[kGate], y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }

 private:
  // [T, Hkv*Dp] = max(logsigmoid(gk_proj.1(low_rank)) / normalizer, clamp_min).
  FloatMatrix LogDecay(const LayerStep& step, ConstFloatMatrix low_rank) const {
    const FloatMatrix g =
        PaddedHeads(step, Project(step, decay_, low_rank), config_.kv_heads,
                    Activation::kLogSigmoid, 1.0f / config_.gate_logit_normalizer);
    if (!config_.clamp_min.has_value()) return g;
    ParallelRows(*step.pool, g.rows, g.columns, [&](size_t t) {
      float* row = g.row(t);
      for (size_t i = 0; i < g.columns; ++i) row[i] = std::max(row[i], *config_.clamp_min);
    });
    return g;
  }

  StateLayout layout_;
  GlaConfig config_;
  Projection projection_;
  Linear decay_;
  PartConvolution convolution_;
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace

RecurrenceDeclaration GlaDeclaration(const HeadShape& shape) {
  return {.shape = shape,
          .decay = {.kind = Decay::kChannel},
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{"S", "k", "v"}},
          .reads = {{"o", "S", "q"}}};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const GlaConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<GlaLayer>(config, source);
}

}  // namespace rivulet
