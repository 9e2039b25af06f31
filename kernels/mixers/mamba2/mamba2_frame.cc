// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_frame.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// Columns of in_proj: z | x | B | C | dt | extra. The convolution runs over x | B | C.
struct Columns {
  explicit Columns(const Mamba2Config& c)
      : inner(c.inner()), state(c.groups * c.state_size), delta(c.heads) {}
  size_t convolved() const { return inner + 2 * state; }
  size_t before_delta() const { return inner + convolved(); }
  size_t before_extra() const { return before_delta() + delta; }

  size_t inner;  // I, of z and of x
  size_t state;  // G*N, of B and of C
  size_t delta;  // H
};

ShortConvolution TakeConvolution(const Mamba2Config& config, ParameterSource& parameters,
                                 StateLayout& layout) {
  const size_t channels = Columns(config).convolved();
  AlignedBuffer<float> weight =
      parameters.TakeVector("conv1d.weight", {channels, 1, config.conv_kernel});
  AlignedBuffer<float> bias;
  if (config.use_conv_bias) bias = parameters.TakeVector("conv1d.bias", {channels});
  return ShortConvolution(std::move(weight), std::move(bias), channels, config.conv_kernel, true,
                          "conv", layout);
}

Linear TakeProjection(const char* name, const char* bias, size_t outputs, size_t inputs,
                      bool use_bias, ParameterSource& parameters) {
  return parameters.TakeLinear({{name, outputs, use_bias ? bias : ""}}, inputs);
}

}  // namespace

Mamba2Frame::Mamba2Frame(const Mamba2Config& config, size_t extra, const MixerSource& source,
                         StateLayout& layout)
    : config_(config),
      extra_(extra),
      norm_groups_(config.full_norm || source.options.mamba2_full_norm ? 1 : config.groups),
      input_(TakeProjection("in_proj.weight", "in_proj.bias",
                            Columns(config).before_extra() + extra, source.hidden, config.use_bias,
                            source.parameters)),
      delta_bias_(source.parameters.TakeVector("dt_bias", {config.heads})),
      convolution_(TakeConvolution(config, source.parameters, layout)),
      output_(TakeProjection("out_proj.weight", "out_proj.bias", source.hidden, config.inner(),
                             config.use_bias, source.parameters)) {
  if (config.use_norm) norm_ = source.parameters.TakeVector("norm.weight", {config.inner()});
}

Mamba2Frame::Projected Mamba2Frame::Project(const MixerStep& step, ConstFloatMatrix x) const {
  const Columns columns(config_);
  const FloatMatrix projected = step.workspace->Take(x.rows, input_.outputs());
  input_.Apply(x, projected, *step.pool);
  const FloatMatrix convolved = step.workspace->Take(x.rows, columns.convolved());
  convolution_.Apply(step.segments, step.state,
                     projected.Columns(columns.inner, columns.convolved()), convolved, *step.pool);
  return {projected.Columns(0, columns.inner),
          {convolved.Columns(0, columns.inner), Groups(step, convolved, columns.inner),
           Groups(step, convolved, columns.inner + columns.state),
           Delta(step, projected.Columns(columns.before_delta(), columns.delta))},
          projected.Columns(columns.before_extra(), extra_)};
}

void Mamba2Frame::Output(const MixerStep& step, ConstFloatMatrix heads, ConstFloatMatrix z,
                         FloatMatrix y) const {
  const FloatMatrix gated = step.workspace->Take(heads.rows, config_.inner());
  NormAndGate(Unpad(step, heads), z, gated, *step.pool);
  output_.Apply(gated, y, *step.pool);
}

// B or C in padded groups, [T, G*Np].
FloatMatrix Mamba2Frame::Groups(const MixerStep& step, ConstFloatMatrix convolved,
                                size_t first) const {
  const FloatMatrix groups =
      step.workspace->Take(convolved.rows, config_.groups * PaddedColumns(config_.state_size));
  PadHeads(convolved.Columns(first, config_.groups * config_.state_size), config_.groups,
           config_.state_size, Activation::kIdentity, 1.0f, groups, *step.pool);
  return groups;
}

// Δ [T, H] = clamp(softplus(dt + dt_bias), time_step_limit).
FloatMatrix Mamba2Frame::Delta(const MixerStep& step, ConstFloatMatrix dt) const {
  const FloatMatrix delta = step.workspace->Take(dt.rows, config_.heads);
  ParallelRows(*step.pool, dt.rows, config_.heads, [&](size_t t) {
    float* row = delta.row(t);
    for (size_t h = 0; h < config_.heads; ++h) row[h] = dt.row(t)[h] + delta_bias_[h];
    Activate(Activation::kSoftplus, row, row, config_.heads);
    for (size_t h = 0; h < config_.heads; ++h) {
      row[h] = std::clamp(row[h], config_.delta_low, config_.delta_high);
    }
  });
  return delta;
}

// [T, H*Pp] → [T, I]: the heads side by side, as the norm and out_proj want them.
ConstFloatMatrix Mamba2Frame::Unpad(const MixerStep& step, ConstFloatMatrix heads) const {
  const size_t p = config_.head_dim, padded = PaddedColumns(p);
  if (p == padded) return heads;
  const FloatMatrix packed = step.workspace->Take(heads.rows, config_.inner());
  ParallelRows(*step.pool, heads.rows, packed.columns, [&](size_t t) {
    for (size_t h = 0; h < config_.heads; ++h) {
      std::copy_n(heads.row(t) + h * padded, p, packed.row(t) + h * p);
    }
  });
  return packed;
}

// y [T, I] from o and the gate z.
void Mamba2Frame::NormAndGate(ConstFloatMatrix o, ConstFloatMatrix z, FloatMatrix y,
                              ThreadPool& pool) const {
  if (!config_.use_norm) {
    ParallelRows(pool, o.rows, o.columns,
                 [&](size_t t) { SiluMultiply(z.row(t), o.row(t), y.row(t), o.columns); });
    return;
  }
  if (!config_.norm_before_gate) {
    GateThenNorm(o, z, norm_groups_, norm_.data(), config_.norm_eps, y, pool);
    return;
  }
  const size_t width = config_.inner() / norm_groups_;
  for (size_t g = 0; g < norm_groups_; ++g) {
    HeadNormGate(o.Columns(g * width, width), 1, width, width, norm_.data() + g * width,
                 config_.norm_eps, z.Columns(g * width, width), y.Columns(g * width, width), pool);
  }
}

Mamba2Constants TakeMamba2Constants(const Mamba2Config& config, ParameterSource& parameters) {
  Mamba2Constants constants;
  constants.a = parameters.TakeVector("A_log", {config.heads});
  for (size_t h = 0; h < config.heads; ++h) constants.a[h] = -std::exp(constants.a[h]);
  if (config.skip_by_channel) {
    constants.d = parameters.TakeVector("D", {config.inner()});
    return constants;
  }
  const AlignedBuffer<float> by_head = parameters.TakeVector("D", {config.heads});
  constants.d = AlignedBuffer<float>(config.inner());
  for (size_t i = 0; i < config.inner(); ++i) constants.d[i] = by_head[i / config.head_dim];
  return constants;
}

Mamba2Shape Mamba2ShapeOf(const Mamba2Config& config, DType state_dtype) {
  return {config.heads, config.groups, config.state_size, config.head_dim, state_dtype};
}

}  // namespace rivulet
