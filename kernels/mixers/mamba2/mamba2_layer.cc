// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/base/status.h"
#include "kernels/mixers/mamba2/mamba2.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mamba2/mamba2_recurrence.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/short_convolution/short_convolution.h"

namespace rivulet {
namespace {

// Columns of in_proj: z | x | B | C | dt. The convolution runs over x | B | C.
struct Columns {
  explicit Columns(const Mamba2Config& c)
      : inner(c.inner()), state(c.groups * c.state_size), delta(c.heads) {}
  size_t convolved() const { return inner + 2 * state; }
  size_t all() const { return inner + convolved() + delta; }

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

Mamba2Constants TakeConstants(const Mamba2Config& config, ParameterSource& parameters) {
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

Linear TakeProjection(const char* name, const char* bias, size_t outputs, size_t inputs,
                      bool use_bias, ParameterSource& parameters) {
  return parameters.TakeLinear({{name, outputs, use_bias ? bias : ""}}, inputs);
}

class Mamba2Layer : public Mixer {
 public:
  Mamba2Layer(const Mamba2Config& config, const MixerSource& source)
      : config_(config),
        columns_(config),
        norm_groups_(source.options.mamba2_full_norm ? 1 : config.groups),
        input_(TakeProjection("in_proj.weight", "in_proj.bias", columns_.all(), source.hidden,
                              config.use_bias, source.parameters)),
        delta_bias_(source.parameters.TakeVector("dt_bias", {config.heads})),
        convolution_(TakeConvolution(config, source.parameters, layout_)),
        recurrence_({config.heads, config.groups, config.state_size, config.head_dim,
                     source.options.state_dtype},
                    TakeConstants(config, source.parameters), layout_),
        output_(TakeProjection("out_proj.weight", "out_proj.bias", source.hidden, config.inner(),
                               config.use_bias, source.parameters)) {
    if (config.use_norm) norm_ = source.parameters.TakeVector("norm.weight", {config.inner()});
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const FloatMatrix projected = step.workspace->Take(x.rows, columns_.all());
    input_.Apply(x, projected, *step.pool);
    const ConstFloatMatrix z = projected.Columns(0, columns_.inner);

    const FloatMatrix convolved = step.workspace->Take(x.rows, columns_.convolved());
    convolution_.Apply(step.segments, step.state,
                       projected.Columns(columns_.inner, columns_.convolved()), convolved,
                       *step.pool);
    const Mamba2Input input{
        convolved.Columns(0, columns_.inner), Groups(step, convolved, columns_.inner),
        Groups(step, convolved, columns_.inner + columns_.state),
        Delta(step, projected.Columns(columns_.inner + columns_.convolved(), columns_.delta))};
    const FloatMatrix heads =
        step.workspace->Take(x.rows, config_.heads * recurrence_.shape().padded_head());
    recurrence_.Run(step.segments, step.state, input, heads, *step.pool);

    const FloatMatrix gated = step.workspace->Take(x.rows, columns_.inner);
    NormAndGate(Unpad(step, heads), z, gated, *step.pool);
    output_.Apply(gated, y, *step.pool);
    return absl::OkStatus();
  }

 private:
  // B or C in padded groups, [T, G*Np].
  FloatMatrix Groups(const MixerStep& step, ConstFloatMatrix convolved, size_t first) const {
    const FloatMatrix groups =
        step.workspace->Take(convolved.rows, config_.groups * recurrence_.shape().padded_state());
    PadHeads(convolved.Columns(first, columns_.state), config_.groups, config_.state_size,
             Activation::kIdentity, 1.0f, groups, *step.pool);
    return groups;
  }

  // Δ [T, H] = clamp(softplus(dt + dt_bias), time_step_limit).
  FloatMatrix Delta(const MixerStep& step, ConstFloatMatrix dt) const {
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
  ConstFloatMatrix Unpad(const MixerStep& step, FloatMatrix heads) const {
    const size_t p = config_.head_dim, padded = recurrence_.shape().padded_head();
    if (p == padded) return heads;
    const FloatMatrix packed = step.workspace->Take(heads.rows, columns_.inner);
    ParallelRows(*step.pool, heads.rows, columns_.inner, [&](size_t t) {
      for (size_t h = 0; h < config_.heads; ++h) {
        std::copy_n(heads.row(t) + h * padded, p, packed.row(t) + h * p);
      }
    });
    return packed;
  }

  // y [T, I] from o and the gate z.
  void NormAndGate(ConstFloatMatrix o, ConstFloatMatrix z, FloatMatrix y, ThreadPool& pool) const {
    if (!config_.use_norm) {
      ParallelRows(pool, o.rows, o.columns,
                   [&](size_t t) { SiluMultiply(z.row(t), o.row(t), y.row(t), columns_.inner); });
      return;
    }
    if (!config_.norm_before_gate) {
      GateThenNorm(o, z, norm_groups_, norm_.data(), config_.norm_eps, y, pool);
      return;
    }
    const size_t width = columns_.inner / norm_groups_;
    for (size_t g = 0; g < norm_groups_; ++g) {
      HeadNormGate(o.Columns(g * width, width), 1, width, width, norm_.data() + g * width,
                   config_.norm_eps, z.Columns(g * width, width), y.Columns(g * width, width),
                   pool);
    }
  }

  Mamba2Config config_;
  Columns columns_;
  size_t norm_groups_;
  Linear input_;
  AlignedBuffer<float> delta_bias_;  // [H]
  StateLayout layout_;
  ShortConvolution convolution_;
  Mamba2Recurrence recurrence_;
  AlignedBuffer<float> norm_;  // [I], empty without norm
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba2(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const Mamba2Config config,
                           ParseMamba2Config(source.config, source.hidden));
  return std::make_unique<Mamba2Layer>(config, source);
}

}  // namespace rivulet
