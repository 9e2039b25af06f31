// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/linear_attention/feature_map.h"
#include "kernels/mixers/linear_attention/linear_attention_config.h"

namespace rivulet {
namespace {

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue };

std::vector<ProjectionPart> Parts(const LinearAttentionConfig& c) {
  return {{"q_proj", c.heads * c.key_dim},
          {"k_proj", c.kv_heads * c.key_dim},
          {"v_proj", c.kv_heads * c.value_dim}};
}

class LinearAttentionLayer : public Mixer {
 public:
  // fla scales the features of q by R^{-1/2}, R counted after φ.
  LinearAttentionLayer(const LinearAttentionConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_(Parts(config), source.hidden, source.parameters),
        feature_map_q_(config.feature_map, config.norm_q,
                       InverseRoot(FeatureCount(config.feature_map)), "feature_map_q",
                       config.tie_feature_map ? "feature_map_k" : "", source.parameters),
        feature_map_k_(config.feature_map, config.norm_k, 1.0f, "feature_map_k",
                       config.tie_feature_map ? "feature_map_q" : "", source.parameters),
        recurrence_(LinearAttentionDeclaration(
                        {config.heads, config.kv_heads, FeatureCount(config.feature_map),
                         config.value_dim, source.options.state_dtype},
                        config.normalised),
                    layout_),
        output_({.heads = config.heads,
                 .width = config.value_dim,
                 .norm = config.affine ? "norm" : "",
                 .norm_eps = config.norm_eps},
                source) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const TokenInputs inputs{.q = feature_map_q_.Apply(step, projected[kQuery], config_.heads),
                             .k = feature_map_k_.Apply(step, projected[kKey], config_.kv_heads),
                             .v = PaddedHeads(step, projected[kValue], config_.kv_heads)};
    output_.Apply(step, RunRecurrence(step, recurrence_, inputs), {}, y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    RowPreparation rows(step, {});
    const TokenInputs inputs{
        .q = feature_map_q_.Enqueue(step, rows, projected[kQuery], config_.heads),
        .k = feature_map_k_.Enqueue(step, rows, projected[kKey], config_.kv_heads),
        .v = rows.Heads(projected[kValue], config_.kv_heads)};
    rows.Enqueue();
    output_.Enqueue(step, EnqueueRecurrence(step, recurrence_, inputs), {}, y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }

 private:
  StateLayout layout_;
  LinearAttentionConfig config_;
  Projection projection_;
  FeatureMap feature_map_q_, feature_map_k_;
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace

RecurrenceDeclaration LinearAttentionDeclaration(const HeadShape& shape, bool normalised) {
  return {.shape = shape,
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{.name = "S", .key = "k", .value = "v", .normaliser = normalised}},
          .reads = {{"o", "S", "q"}},
          .division = normalised ? Division::kReciprocal : Division::kNone,
          .denominator_eps = 1e-10f};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LinearAttentionConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<LinearAttentionLayer>(config, source);
}

}  // namespace rivulet
