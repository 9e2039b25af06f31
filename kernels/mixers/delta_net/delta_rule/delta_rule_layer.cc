// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// In place: each head becomes scale · x / Σx, or zeros where the sum is zero: fla divides by it
// and gets NaN, which would stay in the session's state.
void SumNormHeads(FloatMatrix x, size_t heads, size_t width, float scale, ThreadPool& pool) {
  const size_t stride = PaddedColumns(width);
  ParallelRows(pool, x.rows, x.columns, [&](size_t t) {
    for (size_t h = 0; h < heads; ++h) {
      float* head = x.row(t) + h * stride;
      float sum = 0.0f;
      for (size_t i = 0; i < width; ++i) sum += head[i];
      const float factor = sum == 0.0f ? 0.0f : scale / sum;
      for (size_t i = 0; i < width; ++i) head[i] *= factor;
    }
  });
}

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kGate, kBeta, kDecay, kLevels };

std::vector<ProjectionPart> FlaParts(const DeltaRuleConfig& c, size_t levels) {
  const size_t keys = c.shape.key_heads * c.shape.key_dim, heads = c.shape.value_heads;
  const size_t values = heads * c.shape.value_dim;
  return {{"q_proj", keys},
          {"k_proj", keys},
          {"v_proj", values},
          {"g_proj", c.use_gate ? values : 0},
          {"b_proj", c.learned_beta ? heads : 0},
          {"a_proj", c.shape.decays ? heads : 0},
          {"l_proj", heads * levels}};
}

// in_proj_qkvz holds, key head by key head, q | k | its value heads' v | their z, and in_proj_ba
// their b | their a. The convolution and the gate want all of q, then all of k, and so on.
std::vector<ProjectionPart> Qwen3NextParts(const DeltaRuleShape& shape) {
  const size_t d = shape.key_dim, group = shape.group(), ge = group * shape.value_dim;
  const auto part = [&](const char* tensor, size_t stride, size_t first, size_t block) {
    return ProjectionPart{.tensor = tensor,
                          .columns = shape.key_heads * block,
                          .rows = {shape.key_heads * stride, first, block, stride}};
  };
  const auto qkvz = [&](size_t first, size_t block) {
    return part("in_proj_qkvz", 2 * d + 2 * ge, first, block);
  };
  return {qkvz(0, d),
          qkvz(d, d),
          qkvz(2 * d, ge),
          qkvz(2 * d + ge, ge),
          part("in_proj_ba", 2 * group, 0, group),
          part("in_proj_ba", 2 * group, group, group)};
}

std::vector<ProjectionPart> Parts(const DeltaRuleConfig& config, size_t levels) {
  if (config.tensors == DeltaRuleTensors::kQwen3Next) return Qwen3NextParts(config.shape);
  return FlaParts(config, levels);
}

// One convolution serves q, k and v, so it applies SiLU to all of them or to none.
PartConvolutionConfig Convolution(const DeltaRuleConfig& config) {
  PartConvolutionConfig result = FlaConvolution(config.conv_size, config.conv_bias);
  if (config.tensors == DeltaRuleTensors::kQwen3Next) result.tensors = {"conv1d"};
  result.silu = config.qk_activation == Activation::kSilu;
  return result;
}

HeadOutputConfig Output(const DeltaRuleConfig& config) {
  const bool fla = config.tensors == DeltaRuleTensors::kFla;
  return {.heads = config.shape.value_heads,
          .width = config.shape.value_dim,
          .norm = fla ? "o_norm" : "norm",
          .norm_eps = config.norm_eps,
          .projection = fla ? "o_proj" : "out_proj"};
}

}  // namespace

DeltaRuleLayer::DeltaRuleLayer(const DeltaRuleConfig& config,
                               const RecurrenceDeclaration& declaration, const MixerSource& source)
    : config_(config),
      layout_(source.options.fold_interval),
      max_tokens_(LevelMaxTokens(declaration.levels, source.options.level_overflow)),
      projection_(Parts(config, declaration.levels), source.hidden, source.parameters),
      convolution_(Convolution(config), projection_, source.parameters, layout_),
      qk_activation_(config.qk_activation),
      v_activation_(Activation::kSilu),
      level_weights_(config.shape.value_heads, declaration.levels, source.parameters),
      recurrence_(declaration, layout_),
      output_(Output(config), source) {
  if (config.conv_size != 0 && config.qk_activation == Activation::kSilu) {
    qk_activation_ = v_activation_ = Activation::kIdentity;
  }
  if (config.shape.decays) TakeDecay(source.parameters);
}

void DeltaRuleLayer::TakeDecay(ParameterSource& parameters) {
  const size_t heads = config_.shape.value_heads;
  rate_ = parameters.TakeVector("A_log", {heads});
  for (size_t h = 0; h < heads; ++h) rate_[h] = -std::exp(rate_[h]);
  rate_bias_ = parameters.TakeVector("dt_bias", {heads});
}

absl::Status DeltaRuleLayer::Forward(const LayerStep& step, ConstFloatMatrix x,
                                     FloatMatrix y) const {
  const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
  const float scale = config_.scale_queries ? InverseRoot(config_.shape.key_dim) : 1.0f;
  const TokenInputs inputs{
      .q = Keys(step, projected[kQuery], scale),
      .k = Keys(step, projected[kKey], 1.0f),
      .v = PaddedHeads(step, projected[kValue], config_.shape.value_heads, v_activation_),
      .decay = LogDecay(step, projected[kDecay]),
      .beta = Beta(step, x, projected[kBeta]),
      .levels = level_weights_.Apply(step, projected[kLevels])};
  output_.Apply(step, RunRecurrence(step, recurrence_, inputs), projected[kGate], y);
  return absl::OkStatus();
}

// Queries and keys alike, in padded heads: activation, then norm, then scale.
FloatMatrix DeltaRuleLayer::Keys(const LayerStep& step, FloatMatrix x, float scale) const {
  const DeltaRuleShape& shape = config_.shape;
  const FloatMatrix keys = PaddedHeads(step, x, shape.key_heads, qk_activation_);
  if (config_.qk_sum_norm) {
    SumNormHeads(keys, shape.key_heads, shape.key_dim, scale, *step.pool);
  } else {
    L2NormHeads(keys, shape.key_heads, shape.key_dim, shape.padded_key(), scale, *step.pool);
  }
  return keys;
}

// [T, Hv]
FloatMatrix DeltaRuleLayer::Beta(const LayerStep& step, ConstFloatMatrix x,
                                 ConstFloatMatrix b) const {
  const size_t heads = config_.shape.value_heads;
  const float scale = config_.negative_eigenvalues ? 2.0f : 1.0f;
  if (!config_.learned_beta) {
    return MapRows(step, x, heads,
                   [&](const float*, float* beta) { std::fill_n(beta, heads, scale); });
  }
  return MapRows(step, b, heads, [&](const float* logits, float* beta) {
    Activate(Activation::kSigmoid, logits, beta, heads);
    for (size_t h = 0; h < heads; ++h) beta[h] *= scale;
  });
}

// [T, Hv], or null data without decay.
FloatMatrix DeltaRuleLayer::LogDecay(const LayerStep& step, ConstFloatMatrix a) const {
  if (!config_.shape.decays) return {};
  const size_t heads = config_.shape.value_heads;
  return MapRows(step, a, heads, [&](const float* logits, float* g) {
    for (size_t h = 0; h < heads; ++h) g[h] = logits[h] + rate_bias_[h];
    Activate(Activation::kSoftplus, g, g, heads);
    for (size_t h = 0; h < heads; ++h) g[h] *= rate_[h];
  });
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const DeltaRuleConfig& config,
                                                 const MixerSource& source) {
  // Checkpoints of Gated DeltaNet from before 2025-03-12 hold a D that nothing ever read.
  if (config.shape.decays && source.parameters.Has("D")) {
    source.parameters.TakeVector("D", {config.shape.key_heads});
  }
  DeltaRuleShape shape = config.shape;
  shape.state_dtype = source.options.state_dtype;
  return std::make_unique<DeltaRuleLayer>(config, DeltaRuleDeclaration(shape), source);
}

}  // namespace rivulet
