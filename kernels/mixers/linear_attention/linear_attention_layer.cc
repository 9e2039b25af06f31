// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/base/status.h"
#include "kernels/mixers/linear_attention/feature_map.h"
#include "kernels/mixers/linear_attention/linear_attention.h"
#include "kernels/mixers/linear_attention/linear_attention_config.h"
#include "kernels/mixers/linear_attention/linear_attention_recurrence.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

LinearAttentionShape ShapeOf(const LinearAttentionConfig& config, DType state_dtype) {
  return {config.heads,     config.kv_heads,   FeatureCount(config.feature_map),
          config.value_dim, config.normalised, state_dtype};
}

// fla scales the features of q by R^{-1/2}, R counted after φ.
float QueryScale(const LinearAttentionConfig& config) {
  return 1.0f / std::sqrt(static_cast<float>(FeatureCount(config.feature_map)));
}

class LinearAttentionLayer : public Mixer {
 public:
  LinearAttentionLayer(const LinearAttentionConfig& config, const MixerSource& source)
      : config_(config),
        qkv_(source.parameters.TakeLinear({{"q_proj.weight", query_columns(), ""},
                                           {"k_proj.weight", key_columns(), ""},
                                           {"v_proj.weight", value_columns(), ""}},
                                          source.hidden)),
        feature_map_q_(config.feature_map, config.norm_q, QueryScale(config), "feature_map_q",
                       config.tie_feature_map ? "feature_map_k" : "", source.parameters),
        feature_map_k_(config.feature_map, config.norm_k, 1.0f, "feature_map_k",
                       config.tie_feature_map ? "feature_map_q" : "", source.parameters),
        recurrence_(ShapeOf(config, source.options.state_dtype), layout_),
        output_(source.parameters.TakeLinear({{"o_proj.weight", source.hidden, ""}},
                                             config.heads * config.value_dim)) {
    if (config.affine) norm_ = source.parameters.TakeVector("norm.weight", {config.value_dim});
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const LinearAttentionShape& shape = recurrence_.shape();
    Workspace& workspace = *step.workspace;
    ThreadPool& pool = *step.pool;
    const FloatMatrix projected = workspace.Take(x.rows, qkv_.outputs());
    qkv_.Apply(x, projected, pool);

    const FloatMatrix q = workspace.Take(x.rows, shape.heads * shape.padded_features());
    const FloatMatrix k = workspace.Take(x.rows, shape.kv_heads * shape.padded_features());
    const FloatMatrix v = workspace.Take(x.rows, shape.kv_heads * shape.padded_value());
    feature_map_q_.Apply(projected.Columns(0, query_columns()), config_.heads, q, workspace, pool);
    feature_map_k_.Apply(projected.Columns(query_columns(), key_columns()), config_.kv_heads, k,
                         workspace, pool);
    PadHeads(projected.Columns(query_columns() + key_columns(), value_columns()), config_.kv_heads,
             config_.value_dim, Activation::kIdentity, 1.0f, v, pool);

    const FloatMatrix o = workspace.Take(x.rows, shape.heads * shape.padded_value());
    recurrence_.Run(step.segments, step.state, {q, k, v}, o, pool);

    const FloatMatrix normed = workspace.Take(x.rows, config_.heads * config_.value_dim);
    HeadNormGate(o, config_.heads, config_.value_dim, shape.padded_value(),
                 norm_.empty() ? nullptr : norm_.data(), config_.norm_eps, {}, normed, pool);
    output_.Apply(normed, y, pool);
    return absl::OkStatus();
  }

 private:
  size_t query_columns() const { return config_.heads * config_.key_dim; }
  size_t key_columns() const { return config_.kv_heads * config_.key_dim; }
  size_t value_columns() const { return config_.kv_heads * config_.value_dim; }

  LinearAttentionConfig config_;
  Linear qkv_;
  FeatureMap feature_map_q_, feature_map_k_;
  StateLayout layout_;
  LinearAttentionRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [e]
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLinearAttention(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(
      const LinearAttentionConfig config,
      ParseLinearAttentionConfig(source.config, source.hidden, source.options));
  return std::make_unique<LinearAttentionLayer>(config, source);
}

}  // namespace rivulet
