// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_projection.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// In place: each head becomes scale · x / Σx, or zeros where the sum is zero: fla divides by it
// and gets NaN, after which the session would be lost.
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

}  // namespace

DeltaRuleProjection::DeltaRuleProjection(const DeltaRuleConfig& config, const MixerSource& source,
                                         StateLayout& layout)
    : config_(config), qk_activation_(config.qk_activation), v_activation_(Activation::kSilu) {
  if (config.tensors == DeltaRuleTensors::kFla) TakeFla(source);
  if (config.tensors == DeltaRuleTensors::kQwen3Next) TakeQwen3Next(source);
  if (config.conv_size != 0) TakeConvolution(source.parameters, layout);
  if (config.shape.decays) TakeDecay(source.parameters);
}

void DeltaRuleProjection::TakeFla(const MixerSource& source) {
  const size_t heads = config_.shape.value_heads;
  std::vector<LinearPart> parts = {{"q_proj.weight", key_columns(), ""},
                                   {"k_proj.weight", key_columns(), ""},
                                   {"v_proj.weight", value_columns(), ""}};
  if (config_.learned_beta) parts.push_back({"b_proj.weight", heads, ""});
  if (config_.shape.decays) parts.push_back({"a_proj.weight", heads, ""});
  if (config_.use_gate) parts.push_back({"g_proj.weight", value_columns(), ""});
  if (config_.level_columns != 0) parts.push_back({"l_proj.weight", config_.level_columns, ""});
  input_ = source.parameters.TakeLinear(parts, source.hidden);
}

void DeltaRuleProjection::TakeQwen3Next(const MixerSource& source) {
  input_ =
      source.parameters.TakeLinear({{"in_proj_qkvz.weight", qkv_columns() + value_columns(), ""},
                                    {"in_proj_ba.weight", 2 * config_.shape.value_heads, ""}},
                                   source.hidden);
}

// One convolution serves q, k and v, and so applies SiLU to all of them or to none.
void DeltaRuleProjection::TakeConvolution(ParameterSource& parameters, StateLayout& layout) {
  const bool silu = config_.qk_activation == Activation::kSilu;
  convolution_ = FlaConvolution({.q = key_columns(),
                                 .k = key_columns(),
                                 .v = value_columns(),
                                 .window = config_.conv_size,
                                 .bias = config_.conv_bias,
                                 .silu = silu,
                                 .joint = config_.tensors == DeltaRuleTensors::kQwen3Next},
                                parameters, layout);
  if (silu) qk_activation_ = v_activation_ = Activation::kIdentity;
}

void DeltaRuleProjection::TakeDecay(ParameterSource& parameters) {
  const size_t heads = config_.shape.value_heads;
  rate_ = parameters.TakeVector("A_log", {heads});
  for (size_t h = 0; h < heads; ++h) rate_[h] = -std::exp(rate_[h]);
  rate_bias_ = parameters.TakeVector("dt_bias", {heads});
}

DeltaRuleProjection::Result DeltaRuleProjection::Apply(const MixerStep& step,
                                                       ConstFloatMatrix x) const {
  const FloatMatrix projected = step.workspace->Take(x.rows, input_.outputs());
  input_.Apply(x, projected, *step.pool);
  const Parts parts = config_.tensors == DeltaRuleTensors::kFla ? SplitFla(projected)
                                                                : SplitQwen3Next(step, projected);
  const ConstFloatMatrix qkv = convolution_.Apply(step, parts.qkv);
  const float width = static_cast<float>(config_.shape.key_dim);
  const float scale = config_.scale_queries ? 1.0f / std::sqrt(width) : 1.0f;
  return {{.q = Keys(step, qkv.Columns(0, key_columns()), scale),
           .k = Keys(step, qkv.Columns(key_columns(), key_columns()), 1.0f),
           .v = Values(step, qkv.Columns(2 * key_columns(), value_columns())),
           .beta = Beta(step, x.rows, parts.b),
           .log_decay = config_.shape.decays ? LogDecay(step, parts.a) : ConstFloatMatrix()},
          parts.z,
          parts.l};
}

DeltaRuleProjection::Parts DeltaRuleProjection::SplitFla(ConstFloatMatrix projected) const {
  const size_t heads = config_.shape.value_heads;
  size_t next = 0;
  const auto take = [&](bool present, size_t columns) {
    if (!present) return ConstFloatMatrix();
    next += columns;
    return projected.Columns(next - columns, columns);
  };
  Parts parts;
  parts.qkv = take(true, qkv_columns());
  parts.b = take(config_.learned_beta, heads);
  parts.a = take(config_.shape.decays, heads);
  parts.z = take(config_.use_gate, value_columns());
  parts.l = take(config_.level_columns != 0, config_.level_columns);
  return parts;
}

// in_proj_qkvz gives, key head by key head, q | k | its value heads' v | their z, and in_proj_ba
// their b | their a; the convolution and the gate want all of q, then all of k, and so on.
DeltaRuleProjection::Parts DeltaRuleProjection::SplitQwen3Next(const MixerStep& step,
                                                               ConstFloatMatrix projected) const {
  const DeltaRuleShape& shape = config_.shape;
  const size_t d = shape.key_dim, group = shape.group(), ge = group * shape.value_dim;
  const auto take = [&](size_t columns) { return step.workspace->Take(projected.rows, columns); };
  const FloatMatrix qkv = take(qkv_columns()), z = take(value_columns());
  const FloatMatrix b = take(shape.value_heads), a = take(shape.value_heads);
  ParallelRows(*step.pool, projected.rows, projected.columns, [&](size_t t) {
    const float* qkvz = projected.row(t);
    const float* ba = qkvz + qkv_columns() + value_columns();
    for (size_t j = 0; j < shape.key_heads; ++j) {
      CopyColumns(qkvz, j, 2 * d + 2 * ge, 0, d, qkv.row(t));
      CopyColumns(qkvz, j, 2 * d + 2 * ge, d, d, qkv.row(t) + key_columns());
      CopyColumns(qkvz, j, 2 * d + 2 * ge, 2 * d, ge, qkv.row(t) + 2 * key_columns());
      CopyColumns(qkvz, j, 2 * d + 2 * ge, 2 * d + ge, ge, z.row(t));
      CopyColumns(ba, j, 2 * group, 0, group, b.row(t));
      CopyColumns(ba, j, 2 * group, group, group, a.row(t));
    }
  });
  return {qkv, b, a, z, {}};
}

// Queries and keys alike, in padded heads: activation, then norm, then scale.
ConstFloatMatrix DeltaRuleProjection::Keys(const MixerStep& step, ConstFloatMatrix x,
                                           float scale) const {
  const DeltaRuleShape& shape = config_.shape;
  const FloatMatrix keys = step.workspace->Take(x.rows, shape.key_heads * shape.padded_key());
  PadHeads(x, shape.key_heads, shape.key_dim, qk_activation_, 1.0f, keys, *step.pool);
  if (config_.qk_sum_norm) {
    SumNormHeads(keys, shape.key_heads, shape.key_dim, scale, *step.pool);
  } else {
    L2NormHeads(keys, shape.key_heads, shape.key_dim, shape.padded_key(), scale, *step.pool);
  }
  return keys;
}

ConstFloatMatrix DeltaRuleProjection::Values(const MixerStep& step, ConstFloatMatrix x) const {
  const DeltaRuleShape& shape = config_.shape;
  const bool in_place = v_activation_ == Activation::kIdentity &&
                        shape.value_dim == shape.padded_value() && 2 * key_columns() % kBlock == 0;
  if (in_place) return x;
  const FloatMatrix values = step.workspace->Take(x.rows, shape.value_heads * shape.padded_value());
  PadHeads(x, shape.value_heads, shape.value_dim, v_activation_, 1.0f, values, *step.pool);
  return values;
}

// [T, Hv]
ConstFloatMatrix DeltaRuleProjection::Beta(const MixerStep& step, size_t tokens,
                                           ConstFloatMatrix b) const {
  const size_t heads = config_.shape.value_heads;
  const FloatMatrix beta = step.workspace->Take(tokens, heads);
  const float scale = config_.negative_eigenvalues ? 2.0f : 1.0f;
  ParallelRows(*step.pool, tokens, heads, [&](size_t t) {
    float* row = beta.row(t);
    if (!config_.learned_beta) {
      std::fill_n(row, heads, scale);
      return;
    }
    Activate(Activation::kSigmoid, b.row(t), row, heads);
    for (size_t h = 0; h < heads; ++h) row[h] *= scale;
  });
  return beta;
}

// [T, Hv]
ConstFloatMatrix DeltaRuleProjection::LogDecay(const MixerStep& step, ConstFloatMatrix a) const {
  const size_t heads = config_.shape.value_heads;
  const FloatMatrix g = step.workspace->Take(a.rows, heads);
  ParallelRows(*step.pool, a.rows, heads, [&](size_t t) {
    float* row = g.row(t);
    for (size_t h = 0; h < heads; ++h) row[h] = a.row(t)[h] + rate_bias_[h];
    Activate(Activation::kSoftplus, row, row, heads);
    for (size_t h = 0; h < heads; ++h) row[h] *= rate_[h];
  });
  return g;
}

}  // namespace rivulet
