// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_frame.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// The columns of in_proj.
enum Part : size_t { kGate, kValue, kWrite, kRead, kDelta, kExtra };

std::vector<ProjectionPart> Parts(const Mamba2Config& c, size_t extra) {
  const size_t state = c.groups * c.state_size;
  std::vector<ProjectionPart> parts;
  for (const size_t columns : {c.inner(), c.inner(), state, state, c.heads, extra}) {
    parts.push_back({"in_proj", columns, c.use_bias});
  }
  return parts;
}

PartConvolutionConfig Convolution(const Mamba2Config& config) {
  return {.tensors = {"conv1d"},
          .first = kValue,
          .parts = 3,
          .window = config.conv_kernel,
          .bias = config.use_conv_bias};
}

}  // namespace

Mamba2Frame::Mamba2Frame(const Mamba2Config& config, size_t extra, const MixerSource& source,
                         StateLayout& layout)
    : config_(config),
      norm_groups_(config.norm_groups),
      projection_(Parts(config, extra), source.hidden, source.parameters),
      delta_bias_(source.parameters.TakeVector("dt_bias", {config.heads})),
      convolution_(Convolution(config), projection_, source.parameters, layout),
      output_(TakeLinear("out_proj", source.hidden, config.inner(), config.use_bias,
                         source.parameters)) {
  if (config.use_norm) norm_ = source.parameters.TakeVector("norm.weight", {config.inner()});
}

Mamba2Frame::Result Mamba2Frame::Project(const MixerStep& step, ConstFloatMatrix x) const {
  const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
  return {projected[kGate],
          {.q = PaddedHeads(step, projected[kRead], config_.groups),
           .k = PaddedHeads(step, projected[kWrite], config_.groups),
           .v = projected[kValue],
           .decay = Delta(step, projected[kDelta])},
          projected[kExtra]};
}

void Mamba2Frame::Output(const MixerStep& step, ConstFloatMatrix heads, ConstFloatMatrix z,
                         FloatMatrix y) const {
  const FloatMatrix gated = step.workspace->Take(heads.rows, config_.inner());
  {
    const StageTimer timer(step.times, Stage::kNorm);
    NormAndGate(Unpad(step, heads), z, gated, *step.pool);
  }
  ProjectOutput(step, output_, gated, y);
}

// Δ [T, H] = clamp(softplus(dt + dt_bias), time_step_limit).
FloatMatrix Mamba2Frame::Delta(const MixerStep& step, ConstFloatMatrix dt) const {
  const size_t heads = config_.heads;
  return MapRows(step, dt, heads, [&](const float* logits, float* delta) {
    for (size_t h = 0; h < heads; ++h) delta[h] = logits[h] + delta_bias_[h];
    Activate(Activation::kSoftplus, delta, delta, heads);
    for (size_t h = 0; h < heads; ++h) {
      delta[h] = std::clamp(delta[h], config_.delta_low, config_.delta_high);
    }
  });
}

// [T, H*Pp] → [T, I]: the heads side by side, as the norm and out_proj want them.
ConstFloatMatrix Mamba2Frame::Unpad(const MixerStep& step, ConstFloatMatrix heads) const {
  const size_t p = config_.head_dim, padded = PaddedColumns(p);
  if (p == padded) return heads;
  return MapRows(step, heads, config_.inner(), [&](const float* from, float* to) {
    for (size_t h = 0; h < config_.heads; ++h) std::copy_n(from + h * padded, p, to + h * p);
  });
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
  const AlignedBuffer<float> logs = parameters.TakeVector("A_log", {config.heads});
  for (size_t h = 0; h < config.heads; ++h) constants.a.push_back(-std::exp(logs[h]));
  const size_t repeats = config.skip_by_channel ? 1 : config.head_dim;
  const AlignedBuffer<float> skip = parameters.TakeVector("D", {config.inner() / repeats});
  for (size_t i = 0; i < config.inner(); ++i) constants.d.push_back(skip[i / repeats]);
  return constants;
}

HeadShape Mamba2ShapeOf(const Mamba2Config& config, DType state_dtype) {
  return {config.heads, config.groups, config.state_size, config.head_dim, state_dtype};
}

}  // namespace rivulet
