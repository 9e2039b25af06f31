// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence (docs/mixers.md#hla-format):
//
//   q, k, v, g = x W;  q, k, v through the short convolution (SiLU)
//   q, k ← scale · l2(rope(f(q))), scale · l2(rope(f(k)))     each as the config says
//   o = recurrence(q, k, v)                          per head
//   y = (rms(o) · w · silu(g)) W_o
#include <memory>
#include <optional>
#include <vector>

#include "kernels/mixers/hla/hla_config.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/rope/rope.h"

namespace rivulet {
namespace {

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kGate };

std::vector<ProjectionPart> Parts(const HlaConfig& config) {
  const HeadShape& shape = config.shape;
  return {{"q_proj", shape.heads * shape.key_dim},
          {"k_proj", shape.groups * shape.key_dim},
          {"v_proj", shape.groups * shape.value_dim},
          {"g_proj", config.use_output_gate ? shape.heads * shape.value_dim : 0}};
}

RecurrenceDeclaration Declare(const HlaConfig& config, ParameterSource& parameters) {
  if (!config.use_decay) return HlaDeclaration(config, {});
  return HlaDeclaration(config,
                        LogDecays(parameters.TakeVector("decay_logit", {config.shape.heads})));
}

class HlaLayer : public Mixer {
 public:
  HlaLayer(const HlaConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_(Parts(config), source.hidden, source.parameters),
        convolution_(FlaConvolution(config.conv_size, false), projection_, source.parameters,
                     layout_),
        recurrence_(Declare(config, source.parameters), layout_),
        output_({.heads = config.shape.heads,
                 .width = config.shape.value_dim,
                 .norm_eps = config.norm_eps},
                source) {
    if (config.rope.has_value()) rope_.emplace(*config.rope);
  }

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override {
    return rope_.has_value() ? rope_->most_tokens() : UINT64_MAX;
  }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const HeadShape& shape = config_.shape;
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const FloatMatrix q = Activated(step, projected[kQuery], shape.heads);
    const FloatMatrix k = Activated(step, projected[kKey], shape.groups);
    const FloatMatrix v = PaddedHeads(step, projected[kValue], shape.groups);
    if (rope_.has_value()) Rotate(step, *rope_, shape.padded_key(), q, k);
    if (config_.qk_l2_norm) {
      Normalise(step, q, shape.heads);
      Normalise(step, k, shape.groups);
    }
    output_.Apply(step, RunRecurrence(step, recurrence_, {q, k, v}), projected[kGate], y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    // A norm comes after the rotation.
    const bool rotated = rope_.has_value();
    FloatMatrix q = Prepared(rows, projected[kQuery], config_.shape.heads, !rotated);
    FloatMatrix k = Prepared(rows, projected[kKey], config_.shape.groups, !rotated);
    const FloatMatrix v = rows.Heads(projected[kValue], config_.shape.groups);
    rows.Enqueue();
    if (rotated) EnqueueRotation(step, q, k);
    output_.Enqueue(step, EnqueueRecurrence(step, recurrence_, {q, k, v}), projected[kGate], y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }

 private:
  FloatMatrix Prepared(RowPreparation& rows, ConstFloatMatrix x, size_t heads, bool norm) const {
    Preparation how{.f = config_.qk_activation};
    if (norm || !config_.qk_l2_norm) how.scale = config_.qk_scale;
    if (norm && config_.qk_l2_norm) how.norm = DeviceHeadNorm::kL2;
    return rows.Heads(x, heads, how);
  }

  // Rotates padded heads, and norms them afterwards.
  void EnqueueRotation(const DeviceStep& step, FloatMatrix& q, FloatMatrix& k) const {
    rope_->Enqueue(step, q, config_.shape.padded_key());
    rope_->Enqueue(step, k, config_.shape.padded_key());
    if (!config_.qk_l2_norm) return;
    const Preparation how{.scale = config_.qk_scale, .norm = DeviceHeadNorm::kL2};
    RowPreparation rows(step, {});
    q = rows.Heads(q, config_.shape.heads, how);
    k = rows.Heads(k, config_.shape.groups, how);
    rows.Enqueue();
  }

  // Padded heads of queries or keys. The scale is applied here unless a norm follows.
  FloatMatrix Activated(const LayerStep& step, FloatMatrix x, size_t heads) const {
    return PaddedHeads(step, x, heads, config_.qk_activation,
                       config_.qk_l2_norm ? 1.0f : config_.qk_scale);
  }

  void Normalise(const LayerStep& step, FloatMatrix x, size_t heads) const {
    L2NormHeads(x, heads, config_.shape.key_dim, config_.shape.padded_key(), config_.qk_scale,
                *step.pool);
  }

  StateLayout layout_;
  HlaConfig config_;
  Projection projection_;
  PartConvolution convolution_;
  std::optional<Rope> rope_;
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const HlaConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<HlaLayer>(WithStateDType(config, source), source);
}

}  // namespace rivulet
