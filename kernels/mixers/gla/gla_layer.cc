// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/status.h"
#include "kernels/mixers/fla_convolution.h"
#include "kernels/mixers/gla/gla.h"
#include "kernels/mixers/gla/gla_config.h"
#include "kernels/mixers/gla/gla_recurrence.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// Columns of the one projection of x: q | k | v | low rank of the decay | output gate.
struct Columns {
  explicit Columns(const GlaConfig& c)
      : q(c.heads * c.key_dim),
        k(c.kv_heads * c.key_dim),
        v(c.kv_heads * c.value_dim),
        low_rank(c.gate_rank),
        gate(c.output.gate ? c.heads * c.value_dim : 0) {}
  size_t qkv() const { return q + k + v; }

  size_t q, k, v, low_rank, gate;
};

Linear TakeProjection(const GlaConfig& config, const MixerSource& source) {
  const Columns columns(config);
  std::vector<LinearPart> parts = {{"q_proj.weight", columns.q, ""},
                                   {"k_proj.weight", columns.k, ""},
                                   {"v_proj.weight", columns.v, ""},
                                   {"gk_proj.0.weight", columns.low_rank, ""}};
  if (columns.gate != 0) parts.push_back({"g_proj.weight", columns.gate, ""});
  return source.parameters.TakeLinear(parts, source.hidden);
}

FlaConvolution TakeConvolution(const GlaConfig& config, ParameterSource& parameters,
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

class GlaLayer : public Mixer {
 public:
  GlaLayer(const GlaConfig& config, const MixerSource& source)
      : config_(config),
        columns_(config),
        projection_(TakeProjection(config, source)),
        decay_(source.parameters.TakeLinear({{"gk_proj.1.weight", columns_.k, "gk_proj.1.bias"}},
                                            config.gate_rank)),
        convolution_(TakeConvolution(config, source.parameters, layout_)),
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
    const FloatMatrix projected = workspace.Take(x.rows, projection_.outputs());
    projection_.Apply(x, projected, *step.pool);

    const FloatMatrix o =
        workspace.Take(x.rows, config_.heads * recurrence_.shape().padded_value());
    recurrence_.Run(step.segments, step.state, Inputs(step, projected), o, *step.pool);

    ConstFloatMatrix gate;
    if (columns_.gate != 0) {
      gate = projected.Columns(columns_.qkv() + columns_.low_rank, columns_.gate);
    }
    const FloatMatrix normed = workspace.Take(x.rows, config_.heads * config_.value_dim);
    HeadNormGate(o, config_.heads, config_.value_dim, recurrence_.shape().padded_value(),
                 norm_.empty() ? nullptr : norm_.data(), config_.output.norm_eps, gate, normed,
                 *step.pool);
    output_.Apply(normed, y, *step.pool);
    return absl::OkStatus();
  }

 private:
  // q, k, v and log decay in padded heads.
  GlaInput Inputs(const MixerStep& step, FloatMatrix projected) const {
    const GlaShape& shape = recurrence_.shape();
    const size_t rows = projected.rows;
    const ConstFloatMatrix qkv = convolution_.Apply(step, projected.Columns(0, columns_.qkv()));
    const FloatMatrix q = step.workspace->Take(rows, shape.heads * shape.padded_key());
    const FloatMatrix k = step.workspace->Take(rows, shape.kv_heads * shape.padded_key());
    const FloatMatrix v = step.workspace->Take(rows, shape.kv_heads * shape.padded_value());
    const float scale = 1.0f / std::sqrt(static_cast<float>(config_.key_dim));
    PadHeads(qkv.Columns(0, columns_.q), config_.heads, config_.key_dim, config_.feature_map, scale,
             q, *step.pool);
    PadHeads(qkv.Columns(columns_.q, columns_.k), config_.kv_heads, config_.key_dim,
             config_.feature_map, 1.0f, k, *step.pool);
    PadHeads(qkv.Columns(columns_.q + columns_.k, columns_.v), config_.kv_heads, config_.value_dim,
             Activation::kIdentity, 1.0f, v, *step.pool);
    return {q, k, v, LogDecay(step, projected.Columns(columns_.qkv(), columns_.low_rank))};
  }

  // [T, Hkv*Dp] = max(logsigmoid(gk_proj.1(low_rank)) / normalizer, clamp_min).
  FloatMatrix LogDecay(const MixerStep& step, ConstFloatMatrix low_rank) const {
    const size_t padded = recurrence_.shape().padded_key();
    const FloatMatrix logits = step.workspace->Take(low_rank.rows, columns_.k);
    decay_.Apply(low_rank, logits, *step.pool);
    const FloatMatrix g = step.workspace->Take(low_rank.rows, config_.kv_heads * padded);
    PadHeads(logits, config_.kv_heads, config_.key_dim, Activation::kLogSigmoid,
             1.0f / config_.gate_logit_normalizer, g, *step.pool);
    if (!config_.clamp_min.has_value()) return g;
    ParallelRows(*step.pool, g.rows, g.columns, [&](size_t t) {
      float* row = g.row(t);
      for (size_t i = 0; i < g.columns; ++i) row[i] = std::max(row[i], *config_.clamp_min);
    });
    return g;
  }

  GlaConfig config_;
  Columns columns_;
  Linear projection_;
  Linear decay_;
  StateLayout layout_;
  FlaConvolution convolution_;
  GlaRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [e]
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeGla(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const GlaConfig config, ParseGlaConfig(source.config, source.hidden));
  return std::make_unique<GlaLayer>(config, source);
}

}  // namespace rivulet
