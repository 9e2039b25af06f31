// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_projection.h"

#include <algorithm>
#include <cmath>
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

// The columns [first, first + count) of group `group` of `stride` columns, to `to`.
void CopyColumns(const float* row, size_t group, size_t stride, size_t first, size_t count,
                 float* to) {
  std::copy_n(row + group * stride + first, count, to + group * count);
}

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kGate, kBeta, kDecay, kLevels };

std::vector<ProjectionPart> Parts(const DeltaRuleConfig& c) {
  const bool fla = c.tensors == DeltaRuleTensors::kFla;
  const char *qkvz = "in_proj_qkvz", *ba = "in_proj_ba";
  const size_t keys = c.shape.key_heads * c.shape.key_dim, heads = c.shape.value_heads;
  const size_t values = heads * c.shape.value_dim;
  return {{fla ? "q_proj" : qkvz, keys},
          {fla ? "k_proj" : qkvz, keys},
          {fla ? "v_proj" : qkvz, values},
          {fla ? "g_proj" : qkvz, c.use_gate ? values : 0},
          {fla ? "b_proj" : ba, c.learned_beta ? heads : 0},
          {fla ? "a_proj" : ba, c.shape.decays ? heads : 0},
          {"l_proj", c.level_columns}};
}

// One convolution serves q, k and v, so it applies SiLU to all of them or to none.
PartConvolutionConfig Convolution(const DeltaRuleConfig& config) {
  PartConvolutionConfig result = FlaConvolution(config.conv_size, config.conv_bias);
  if (config.tensors == DeltaRuleTensors::kQwen3Next) result.tensors = {"conv1d"};
  result.silu = config.qk_activation == Activation::kSilu;
  return result;
}

}  // namespace

HeadOutputConfig DeltaRuleOutput(const DeltaRuleConfig& config) {
  const bool fla = config.tensors == DeltaRuleTensors::kFla;
  return {.heads = config.shape.value_heads,
          .width = config.shape.value_dim,
          .norm = fla ? "o_norm" : "norm",
          .norm_eps = config.norm_eps,
          .projection = fla ? "o_proj" : "out_proj"};
}

DeltaRuleProjection::DeltaRuleProjection(const DeltaRuleConfig& config, const MixerSource& source,
                                         StateLayout& layout)
    : config_(config),
      projection_(Parts(config), source.hidden, source.parameters),
      convolution_(Convolution(config), projection_, source.parameters, layout),
      qk_activation_(config.qk_activation),
      v_activation_(Activation::kSilu) {
  if (config.conv_size != 0 && config.qk_activation == Activation::kSilu) {
    qk_activation_ = v_activation_ = Activation::kIdentity;
  }
  if (config.shape.decays) TakeDecay(source.parameters);
}

void DeltaRuleProjection::TakeDecay(ParameterSource& parameters) {
  const size_t heads = config_.shape.value_heads;
  rate_ = parameters.TakeVector("A_log", {heads});
  for (size_t h = 0; h < heads; ++h) rate_[h] = -std::exp(rate_[h]);
  rate_bias_ = parameters.TakeVector("dt_bias", {heads});
}

DeltaRuleProjection::Result DeltaRuleProjection::Apply(const MixerStep& step,
                                                       ConstFloatMatrix x) const {
  Projected projected = projection_.Apply(step, x);
  if (config_.tensors == DeltaRuleTensors::kQwen3Next) projected = Qwen3NextParts(step, projected);
  projected = convolution_.Apply(step, projected);
  const float scale = config_.scale_queries ? InverseRoot(config_.shape.key_dim) : 1.0f;
  return {{.q = Keys(step, projected[kQuery], scale),
           .k = Keys(step, projected[kKey], 1.0f),
           .v = PaddedHeads(step, projected[kValue], config_.shape.value_heads, v_activation_),
           .decay = LogDecay(step, projected[kDecay]),
           .beta = Beta(step, x, projected[kBeta])},
          projected[kGate],
          projected[kLevels]};
}

// in_proj_qkvz gives, key head by key head, q | k | its value heads' v | their z, and in_proj_ba
// their b | their a; the convolution and the gate want all of q, then all of k, and so on.
Projected DeltaRuleProjection::Qwen3NextParts(const MixerStep& step,
                                              const Projected& projected) const {
  const DeltaRuleShape& shape = config_.shape;
  const size_t d = shape.key_dim, group = shape.group(), ge = group * shape.value_dim;
  Projected parts;
  const size_t qkv = 2 * projected[kQuery].columns + projected[kValue].columns;
  parts[kQuery] = step.workspace->Take(projected[kQuery].rows, qkv);
  parts[kKey] = parts[kQuery].Columns(projected[kQuery].columns, projected[kKey].columns);
  parts[kValue] = parts[kQuery].Columns(2 * projected[kKey].columns, projected[kValue].columns);
  parts[kQuery].columns = projected[kQuery].columns;
  for (const Part part : {kGate, kBeta, kDecay}) {
    parts[part] = step.workspace->Take(projected[part].rows, projected[part].columns);
  }
  ParallelRows(*step.pool, projected[kQuery].rows, qkv, [&](size_t t) {
    const float *qkvz = projected[kQuery].row(t), *ba = projected[kBeta].row(t);
    for (size_t j = 0; j < shape.key_heads; ++j) {
      CopyColumns(qkvz, j, 2 * d + 2 * ge, 0, d, parts[kQuery].row(t));
      CopyColumns(qkvz, j, 2 * d + 2 * ge, d, d, parts[kKey].row(t));
      CopyColumns(qkvz, j, 2 * d + 2 * ge, 2 * d, ge, parts[kValue].row(t));
      CopyColumns(qkvz, j, 2 * d + 2 * ge, 2 * d + ge, ge, parts[kGate].row(t));
      CopyColumns(ba, j, 2 * group, 0, group, parts[kBeta].row(t));
      CopyColumns(ba, j, 2 * group, group, group, parts[kDecay].row(t));
    }
  });
  return parts;
}

// Queries and keys alike, in padded heads: activation, then norm, then scale.
FloatMatrix DeltaRuleProjection::Keys(const MixerStep& step, FloatMatrix x, float scale) const {
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
FloatMatrix DeltaRuleProjection::Beta(const MixerStep& step, ConstFloatMatrix x,
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
FloatMatrix DeltaRuleProjection::LogDecay(const MixerStep& step, ConstFloatMatrix a) const {
  if (!config_.shape.decays) return {};
  const size_t heads = config_.shape.value_heads;
  return MapRows(step, a, heads, [&](const float* logits, float* g) {
    for (size_t h = 0; h < heads; ++h) g[h] = logits[h] + rate_bias_[h];
    Activate(Activation::kSoftplus, g, g, heads);
    for (size_t h = 0; h < heads; ++h) g[h] *= rate_[h];
  });
}

}  // namespace rivulet
