// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "kernels/base/parallel.h"
#include "kernels/base/status.h"
#include "kernels/mixers/h3/h3.h"
#include "kernels/mixers/h3/h3_config.h"
#include "kernels/mixers/h3/h3_constants.h"
#include "kernels/mixers/h3/h3_recurrence.h"

namespace rivulet {
namespace {

Linear TakeInput(const H3Config& config, ParameterSource& parameters) {
  const size_t d = config.channels();
  return parameters.TakeLinear({{"q_proj.weight", d, "q_proj.bias"},
                                {"k_proj.weight", d, "k_proj.bias"},
                                {"v_proj.weight", d, "v_proj.bias"}},
                               d);
}

Linear TakeOutput(const H3Config& config, ParameterSource& parameters) {
  const size_t d = config.channels();
  return parameters.TakeLinear({{"output_linear.weight", d, "output_linear.bias"}}, d);
}

class H3Layer : public Mixer {
 public:
  H3Layer(const H3Config& config, ParameterSource& parameters)
      : config_(config),
        input_(TakeInput(config, parameters)),
        recurrence_({config.heads, config.head_dim, config.state_size, config.modes()},
                    TakeH3Constants(config, parameters), layout_),
        output_(TakeOutput(config, parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const size_t d = config_.channels();
    const FloatMatrix projected = step.workspace->Take(x.rows, 3 * d);
    input_.Apply(x, projected, *step.pool);
    const H3Input input{Split(step, projected.Columns(0, d)), Split(step, projected.Columns(d, d)),
                        Split(step, projected.Columns(2 * d, d))};
    const FloatMatrix o = step.workspace->Take(x.rows, recurrence_.shape().columns());
    recurrence_.Run(step.segments, step.state, input, o, *step.pool);
    output_.Apply(Join(step, o), y, *step.pool);
    return absl::OkStatus();
  }

 private:
  // Channel h·hd + i to column i·Hp + h.
  ConstFloatMatrix Split(const MixerStep& step, ConstFloatMatrix x) const {
    const size_t hd = config_.head_dim, padded = recurrence_.shape().padded_heads();
    if (hd == 1 && config_.heads == padded) return x;
    const FloatMatrix split = step.workspace->Take(x.rows, hd * padded);
    ParallelRows(*step.pool, x.rows, split.columns, [&](size_t t) {
      for (size_t i = 0; i < hd; ++i) {
        float* row = split.row(t) + i * padded;
        for (size_t h = 0; h < config_.heads; ++h) row[h] = x.row(t)[h * hd + i];
        std::fill(row + config_.heads, row + padded, 0.0f);
      }
    });
    return split;
  }

  // Column j·Hp + h to output channel j·Hs + h: "(d h)", unlike the inputs.
  ConstFloatMatrix Join(const MixerStep& step, FloatMatrix o) const {
    const size_t heads = config_.heads, padded = recurrence_.shape().padded_heads();
    if (heads == padded) return o;
    const FloatMatrix joined = step.workspace->Take(o.rows, config_.channels());
    ParallelRows(*step.pool, o.rows, joined.columns, [&](size_t t) {
      for (size_t j = 0; j < config_.head_dim; ++j) {
        std::copy_n(o.row(t) + j * padded, heads, joined.row(t) + j * heads);
      }
    });
    return joined;
  }

  H3Config config_;
  Linear input_;
  StateLayout layout_;
  H3Recurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeH3(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const H3Config config, ParseH3Config(source.config, source.hidden));
  return std::make_unique<H3Layer>(config, source.parameters);
}

}  // namespace rivulet
