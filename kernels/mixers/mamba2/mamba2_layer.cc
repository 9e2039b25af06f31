// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_layer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// The columns of in_proj.
enum Part : size_t { kGate, kValue, kWrite, kRead, kDelta, kLevels };

std::vector<ProjectionPart> Parts(const Mamba2Config& c, size_t levels) {
  const size_t state = c.groups * c.state_size;
  std::vector<ProjectionPart> parts;
  for (const size_t columns : {c.inner(), c.inner(), state, state, c.heads, c.heads * levels}) {
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

Mamba2Layer::Mamba2Layer(const Mamba2Config& config, const RecurrenceDeclaration& declaration,
                         const MixerSource& source)
    : config_(config),
      layout_(source.options.fold_interval),
      max_tokens_(LevelMaxTokens(declaration.levels, source.options.level_overflow)),
      projection_(Parts(config, declaration.levels), source.hidden, source.parameters),
      delta_bias_(source.parameters.TakeVector("dt_bias", {config.heads})),
      convolution_(Convolution(config), projection_, source.parameters, layout_),
      level_weights_(config.heads, declaration.levels, source.parameters),
      recurrence_(declaration, layout_),
      output_(TakeLinear("out_proj", source.hidden, config.inner(), config.use_bias,
                         source.parameters)) {
  if (config.use_norm) norm_ = source.parameters.TakeVector("norm.weight", {config.inner()});
}

absl::Status Mamba2Layer::Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
  const TokenInputs inputs{.q = PaddedHeads(step, projected[kRead], config_.groups),
                           .k = PaddedHeads(step, projected[kWrite], config_.groups),
                           .v = projected[kValue],
                           .decay = Delta(step, projected[kDelta]),
                           .levels = level_weights_.Apply(step, projected[kLevels])};
  const FloatMatrix heads = RunRecurrence(step, recurrence_, inputs);
  ProjectOutput(step, output_, NormAndGate(step, heads, projected[kGate]), y);
  return absl::OkStatus();
}

// Δ [T, H] = clamp(softplus(dt + dt_bias), time_step_limit).
FloatMatrix Mamba2Layer::Delta(const LayerStep& step, ConstFloatMatrix dt) const {
  const size_t heads = config_.heads;
  return MapRows(step, dt, heads, [&](const float* logits, float* delta) {
    for (size_t h = 0; h < heads; ++h) delta[h] = logits[h] + delta_bias_[h];
    Activate(Activation::kSoftplus, delta, delta, heads);
    for (size_t h = 0; h < heads; ++h) {
      delta[h] = std::clamp(delta[h], config_.delta_low, config_.delta_high);
    }
  });
}

// [T, I] from the recurrence's heads [T, H*Pp] and the gate z [T, I].
FloatMatrix Mamba2Layer::NormAndGate(const LayerStep& step, ConstFloatMatrix heads,
                                     ConstFloatMatrix z) const {
  const StageTimer timer(step.times, Stage::kNorm);
  const ConstFloatMatrix o = Unpad(step, heads);
  const FloatMatrix y = step.workspace->Take(o.rows, o.columns);
  const size_t groups = config_.norm_groups;
  if (!config_.use_norm) {
    ParallelRows(*step.pool, o.rows, o.columns,
                 [&](size_t t) { SiluMultiply(z.row(t), o.row(t), y.row(t), o.columns); });
  } else if (!config_.norm_before_gate) {
    GateThenNorm(o, z, groups, norm_.data(), config_.norm_eps, y, *step.pool);
  } else {
    const size_t width = o.columns / groups;
    for (size_t first = 0; first < o.columns; first += width) {
      HeadNormGate(o.Columns(first, width), 1, width, width, norm_.data() + first, config_.norm_eps,
                   z.Columns(first, width), y.Columns(first, width), *step.pool);
    }
  }
  return y;
}

// [T, H*Pp] → [T, I]: the heads side by side, as the norm and out_proj want them.
ConstFloatMatrix Mamba2Layer::Unpad(const LayerStep& step, ConstFloatMatrix heads) const {
  const size_t p = config_.head_dim, padded = PaddedColumns(p);
  if (p == padded) return heads;
  return MapRows(step, heads, config_.inner(), [&](const float* from, float* to) {
    for (size_t h = 0; h < config_.heads; ++h) std::copy_n(from + h * padded, p, to + h * p);
  });
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

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Mamba2Config& config,
                                                 const MixerSource& source) {
  return std::make_unique<Mamba2Layer>(
      config,
      Mamba2Declaration(Mamba2ShapeOf(config, source.options.state_dtype),
                        TakeMamba2Constants(config, source.parameters)),
      source);
}

}  // namespace rivulet
