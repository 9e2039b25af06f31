// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/mixers/fla_convolution.h"
#include "kernels/mixers/retnet/retnet.h"
#include "kernels/mixers/retnet/retnet_config.h"
#include "kernels/mixers/retnet/retnet_recurrence.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/rope/rope.h"

namespace rivulet {
namespace {

// fla's layer takes no other, whatever config.json says.
constexpr float kRopeTheta = 10000.0f;

// Columns of the one projection of x: q | k | v | output gate.
struct Columns {
  explicit Columns(const RetNetConfig& c)
      : q(c.heads * c.key_dim),
        k(c.kv_heads * c.key_dim),
        v(c.kv_heads * c.value_dim),
        gate(c.output.gate ? c.heads * c.value_dim : 0) {}
  size_t qkv() const { return q + k + v; }

  size_t q, k, v, gate;
};

Linear TakeProjection(const RetNetConfig& config, const MixerSource& source) {
  const Columns columns(config);
  std::vector<LinearPart> parts = {{"q_proj.weight", columns.q, ""},
                                   {"k_proj.weight", columns.k, ""},
                                   {"v_proj.weight", columns.v, ""}};
  if (columns.gate != 0) parts.push_back({"g_proj.weight", columns.gate, ""});
  return source.parameters.TakeLinear(parts, source.hidden);
}

FlaConvolution TakeConvolution(const RetNetConfig& config, ParameterSource& parameters,
                               StateLayout& layout) {
  if (!config.use_short_conv) return {};
  const Columns columns(config);
  return FlaConvolution({.q = columns.q,
                         .k = columns.k,
                         .v = columns.v,
                         .window = config.conv_size,
                         .bias = config.conv_bias},
                        parameters, layout);
}

class RetNetLayer : public Mixer {
 public:
  RetNetLayer(const RetNetConfig& config, const MixerSource& source)
      : config_(config),
        columns_(config),
        projection_(TakeProjection(config, source)),
        convolution_(TakeConvolution(config, source.parameters, layout_)),
        rope_({.theta = kRopeTheta, .rotary_dim = config.key_dim}),
        recurrence_({config.heads, config.kv_heads, config.key_dim, config.value_dim,
                     source.options.state_dtype},
                    layout_),
        output_(source.parameters.TakeLinear({{"o_proj.weight", source.hidden, ""}},
                                             config.heads * config.value_dim)) {
    if (!config.output.affine) return;
    norm_ = source.parameters.TakeVector(config.output.norm_name + ".weight", {config.value_dim});
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    Workspace& workspace = *step.workspace;
    const size_t padded_value = recurrence_.shape().padded_value();
    const FloatMatrix projected = workspace.Take(x.rows, projection_.outputs());
    projection_.Apply(x, projected, *step.pool);

    const FloatMatrix o = workspace.Take(x.rows, config_.heads * padded_value);
    recurrence_.Run(step.segments, step.state, Inputs(step, projected), o, *step.pool);

    ConstFloatMatrix gate;
    if (columns_.gate != 0) gate = projected.Columns(columns_.qkv(), columns_.gate);
    const FloatMatrix normed = workspace.Take(x.rows, config_.heads * config_.value_dim);
    HeadNormGate(o, config_.heads, config_.value_dim, padded_value,
                 norm_.empty() ? nullptr : norm_.data(), config_.output.norm_eps, gate, normed,
                 *step.pool);
    output_.Apply(normed, y, *step.pool);
    return absl::OkStatus();
  }

 private:
  // q and k rotated, and v, in padded heads.
  RetNetInput Inputs(const MixerStep& step, FloatMatrix projected) const {
    const RetNetShape& shape = recurrence_.shape();
    const size_t rows = projected.rows, padded_key = shape.padded_key();
    const ConstFloatMatrix qkv = convolution_.Apply(step, projected.Columns(0, columns_.qkv()));
    const FloatMatrix q = step.workspace->Take(rows, shape.heads * padded_key);
    const FloatMatrix k = step.workspace->Take(rows, shape.kv_heads * padded_key);
    const FloatMatrix v = step.workspace->Take(rows, shape.kv_heads * shape.padded_value());
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
    PadHeads(qkv.Columns(0, columns_.q), shape.heads, shape.key_dim, config_.feature_map, scale, q,
             *step.pool);
    PadHeads(qkv.Columns(columns_.q, columns_.k), shape.kv_heads, shape.key_dim,
             config_.feature_map, 1.0f, k, *step.pool);
    PadHeads(qkv.Columns(columns_.q + columns_.k, columns_.v), shape.kv_heads, shape.value_dim,
             Activation::kIdentity, 1.0f, v, *step.pool);
    const RopeAngles angles = rope_.Angles(step.segments, rows, *step.workspace, *step.pool);
    ApplyRope(angles, q, shape.heads, padded_key, *step.pool);
    ApplyRope(angles, k, shape.kv_heads, padded_key, *step.pool);
    return {q, k, v};
  }

  RetNetConfig config_;
  Columns columns_;
  Linear projection_;
  StateLayout layout_;
  FlaConvolution convolution_;
  Rope rope_;
  RetNetRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [e]
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeRetNet(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const RetNetConfig config,
                           ParseRetNetConfig(source.config, source.hidden));
  return std::make_unique<RetNetLayer>(config, source);
}

}  // namespace rivulet
