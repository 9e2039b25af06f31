// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/status.h"
#include "kernels/mixers/softmax_attention/softmax_attention.h"
#include "kernels/mixers/softmax_attention/softmax_attention_config.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// Columns of the one projection of x: q | k | v. With an output gate a head of q is q | gate.
struct Columns {
  explicit Columns(const SoftmaxAttentionConfig& c)
      : q(c.heads * c.head_dim * (c.output_gate ? 2 : 1)), kv(c.kv_heads * c.head_dim) {}

  size_t q, kv;
};

Linear TakeProjection(const SoftmaxAttentionConfig& config, const MixerSource& source) {
  const Columns columns(config);
  const auto bias = [&](const char* name) { return config.qkv_bias ? name : ""; };
  return source.parameters.TakeLinear({{"q_proj.weight", columns.q, bias("q_proj.bias")},
                                       {"k_proj.weight", columns.kv, bias("k_proj.bias")},
                                       {"v_proj.weight", columns.kv, bias("v_proj.bias")}},
                                      source.hidden);
}

// [head_dim], or empty without a norm.
AlignedBuffer<float> TakeNorm(const SoftmaxAttentionConfig& config, const char* name,
                              ParameterSource& parameters) {
  if (config.qk_norm == HeadNorm::kNone) return {};
  AlignedBuffer<float> weight = parameters.TakeVector(name, {config.head_dim});
  if (config.qk_norm == HeadNorm::kRms) return weight;
  for (size_t i = 0; i < weight.size(); ++i) weight[i] += 1.0f;
  return weight;
}

// Heads of q | gate: q to heads side by side, and σ(gate) as well.
void SplitGate(const float* x, size_t heads, size_t width, float* q, float* gate) {
  for (size_t h = 0; h < heads; ++h) {
    std::memcpy(q + h * width, x + 2 * h * width, width * sizeof(float));
    Activate(Activation::kSigmoid, x + (2 * h + 1) * width, gate + h * width, width);
  }
}

class SoftmaxAttentionLayer : public Mixer {
 public:
  SoftmaxAttentionLayer(const SoftmaxAttentionConfig& config, const MixerSource& source)
      : config_(config),
        columns_(config),
        projection_(TakeProjection(config, source)),
        q_norm_(TakeNorm(config, "q_norm.weight", source.parameters)),
        k_norm_(TakeNorm(config, "k_norm.weight", source.parameters)),
        recurrence_({config.heads, config.kv_heads, config.head_dim, config.window,
                     source.options.state_dtype},
                    layout_),
        output_(source.parameters.TakeLinear(
            {{"o_proj.weight", source.hidden, config.output_bias ? "o_proj.bias" : ""}},
            config.heads * config.head_dim)) {
    if (config.rope.has_value()) rope_.emplace(*config.rope);
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const FloatMatrix projected = step.workspace->Take(x.rows, projection_.outputs());
    projection_.Apply(x, projected, *step.pool);
    ConstFloatMatrix gate;
    const SoftmaxAttentionInput input = Inputs(step, projected, &gate);
    const FloatMatrix o = step.workspace->Take(x.rows, config_.heads * config_.head_dim);
    recurrence_.Run(step.segments, step.state, input, o, *step.workspace, *step.pool);
    if (config_.output_gate) ApplyGate(gate, o, *step.pool);
    output_.Apply(o, y, *step.pool);
    return absl::OkStatus();
  }

 private:
  // q, k and v in padded heads, normed, scaled and rotated; and the output gate if there is one.
  SoftmaxAttentionInput Inputs(const MixerStep& step, FloatMatrix projected,
                               ConstFloatMatrix* gate) const {
    ConstFloatMatrix query = projected.Columns(0, columns_.q);
    if (config_.output_gate) query = SplitGates(step, query, gate);
    const FloatMatrix q = Heads(step, query, config_.heads, q_norm_, config_.scale);
    const FloatMatrix k =
        Heads(step, projected.Columns(columns_.q, columns_.kv), config_.kv_heads, k_norm_, 1.0f);
    const FloatMatrix v = Heads(step, projected.Columns(columns_.q + columns_.kv, columns_.kv),
                                config_.kv_heads, {}, 1.0f);
    if (rope_.has_value()) {
      const RopeAngles angles =
          rope_->Angles(step.segments, projected.rows, *step.workspace, *step.pool);
      ApplyRope(angles, q, config_.heads, recurrence_.shape().padded(), *step.pool);
      ApplyRope(angles, k, config_.kv_heads, recurrence_.shape().padded(), *step.pool);
    }
    return {q, k, v};
  }

  ConstFloatMatrix SplitGates(const MixerStep& step, ConstFloatMatrix x,
                              ConstFloatMatrix* gate) const {
    const size_t width = config_.heads * config_.head_dim;
    const FloatMatrix q = step.workspace->Take(x.rows, width);
    const FloatMatrix sigmoid = step.workspace->Take(x.rows, width);
    ParallelRows(*step.pool, x.rows, 4 * width, [&](size_t t) {
      SplitGate(x.row(t), config_.heads, config_.head_dim, q.row(t), sigmoid.row(t));
    });
    *gate = sigmoid;
    return q;
  }

  // Padded heads of x, each scale · norm(x).
  FloatMatrix Heads(const MixerStep& step, ConstFloatMatrix x, size_t heads,
                    const AlignedBuffer<float>& norm, float scale) const {
    if (!norm.empty()) {
      const FloatMatrix normed = step.workspace->Take(x.rows, heads * config_.head_dim);
      HeadNormGate(x, heads, config_.head_dim, config_.head_dim, norm.data(), config_.norm_eps, {},
                   normed, *step.pool);
      x = normed;
    }
    const FloatMatrix padded = step.workspace->Take(x.rows, heads * recurrence_.shape().padded());
    PadHeads(x, heads, config_.head_dim, Activation::kIdentity, scale, padded, *step.pool);
    return padded;
  }

  static void ApplyGate(ConstFloatMatrix gate, FloatMatrix o, ThreadPool& pool) {
    ParallelRows(pool, o.rows, o.columns, [&](size_t t) {
      for (size_t i = 0; i < o.columns; ++i) o.row(t)[i] *= gate.row(t)[i];
    });
  }

  SoftmaxAttentionConfig config_;
  Columns columns_;
  Linear projection_;
  AlignedBuffer<float> q_norm_, k_norm_;  // [head_dim]
  StateLayout layout_;
  SoftmaxAttentionRecurrence recurrence_;
  Linear output_;
  std::optional<Rope> rope_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeSoftmaxAttention(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const SoftmaxAttentionConfig config,
                           ParseSoftmaxAttentionConfig(source.config, source.hidden));
  return std::make_unique<SoftmaxAttentionLayer>(config, source);
}

}  // namespace rivulet
