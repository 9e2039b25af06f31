// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/retnet/retnet_config.h"

namespace rivulet {
namespace {

// fla's layer always uses this one and ignores config.json.
constexpr float kRopeTheta = 10000.0f;

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kGate };

std::vector<ProjectionPart> Parts(const RetNetConfig& c) {
  return {{"q_proj", c.heads * c.key_dim},
          {"k_proj", c.kv_heads * c.key_dim},
          {"v_proj", c.kv_heads * c.value_dim},
          {"g_proj", c.output.gate ? c.heads * c.value_dim : 0}};
}

class RetNetLayer : public Mixer {
 public:
  RetNetLayer(const RetNetConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_(Parts(config), source.hidden, source.parameters),
        convolution_(FlaConvolution(config.use_short_conv ? config.conv_size : 0, config.conv_bias),
                     projection_, source.parameters, layout_),
        rope_({.theta = kRopeTheta, .rotary_dim = config.key_dim}),
        recurrence_(RetNetDeclaration({config.heads, config.kv_heads, config.key_dim,
                                       config.value_dim, source.options.state_dtype}),
                    layout_),
        output_(FlaHeadOutput(config.output, config.heads, config.value_dim), source) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const FloatMatrix q = PaddedHeads(step, projected[kQuery], config_.heads, config_.feature_map,
                                      InverseRoot(config_.key_dim));
    const FloatMatrix k = PaddedHeads(step, projected[kKey], config_.kv_heads, config_.feature_map);
    const FloatMatrix v = PaddedHeads(step, projected[kValue], config_.kv_heads);
    Rotate(step, rope_, recurrence_.shape().padded_key(), q, k);
    output_.Apply(step, RunRecurrence(step, recurrence_, {q, k, v}), projected[kGate], y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    const FloatMatrix q =
        rows.Heads(projected[kQuery], config_.heads,
                   {.f = config_.feature_map, .scale = InverseRoot(config_.key_dim)});
    const FloatMatrix k = rows.Heads(projected[kKey], config_.kv_heads, {.f = config_.feature_map});
    const FloatMatrix v = rows.Heads(projected[kValue], config_.kv_heads);
    rows.Enqueue();
    const size_t padded = recurrence_.shape().padded_key();
    rope_.Enqueue(step, q, padded);
    rope_.Enqueue(step, k, padded);
    output_.Enqueue(step, EnqueueRecurrence(step, recurrence_, {q, k, v}), projected[kGate], y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }

 private:
  StateLayout layout_;
  RetNetConfig config_;
  Projection projection_;
  PartConvolution convolution_;
  Rope rope_;
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace

double RetentionLogDecay(size_t head) {
  const float gamma = 1.0f - std::exp2(-5.0f - static_cast<float>(head));
  return std::log(static_cast<double>(gamma));
}

RecurrenceDeclaration RetNetDeclaration(const HeadShape& shape) {
  std::vector<double> log_gamma;
  for (size_t head = 0; head < shape.heads; ++head) log_gamma.push_back(RetentionLogDecay(head));
  return {.shape = shape,
          .decay = {.kind = Decay::kScalar, .constant = log_gamma},
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{"S", "k", "v"}},
          .reads = {{"o", "S", "q"}}};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const RetNetConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<RetNetLayer>(config, source);
}

}  // namespace rivulet
