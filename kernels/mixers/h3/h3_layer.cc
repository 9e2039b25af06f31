// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "kernels/mixers/h3/h3_config.h"
#include "kernels/mixers/h3/h3_constants.h"
#include "kernels/mixers/h3/h3_recurrence.h"
#include "kernels/mixers/layer_stages.h"

namespace rivulet {
namespace {

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue };

class H3Layer : public Mixer {
 public:
  H3Layer(const H3Config& config, size_t fold_interval, ParameterSource& parameters)
      : layout_(fold_interval),
        config_(config),
        projection_({{"q_proj", config.channels(), true},
                     {"k_proj", config.channels(), true},
                     {"v_proj", config.channels(), true}},
                    config.channels(), parameters),
        recurrence_({config.heads, config.head_dim, config.state_size, config.modes()},
                    TakeH3Constants(config, parameters), layout_),
        output_(
            TakeLinear("output_linear", config.channels(), config.channels(), true, parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const H3Input input{Split(step, projected[kQuery]), Split(step, projected[kKey]),
                        Split(step, projected[kValue])};
    const FloatMatrix o = step.workspace->Take(x.rows, recurrence_.shape().columns());
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, input, o, *step.pool);
    }
    ProjectOutput(step, output_, Join(step, o), y);
    return absl::OkStatus();
  }

 private:
  // Channel h·hd + i to column i·Hp + h.
  ConstFloatMatrix Split(const LayerStep& step, ConstFloatMatrix x) const {
    const size_t hd = config_.head_dim, heads = config_.heads;
    const size_t padded = recurrence_.shape().padded_heads();
    if (hd == 1 && heads == padded) return x;
    return MapRows(step, x, hd * padded, [&](const float* from, float* to) {
      for (size_t i = 0; i < hd; ++i, to += padded) {
        for (size_t h = 0; h < heads; ++h) to[h] = from[h * hd + i];
        std::fill(to + heads, to + padded, 0.0f);
      }
    });
  }

  // Column j·Hp + h to output channel j·Hs + h: "(d h)", unlike the inputs.
  ConstFloatMatrix Join(const LayerStep& step, FloatMatrix o) const {
    const size_t heads = config_.heads, padded = recurrence_.shape().padded_heads();
    if (heads == padded) return o;
    return MapRows(step, o, config_.channels(), [&](const float* from, float* to) {
      for (size_t j = 0; j < config_.head_dim; ++j) {
        std::copy_n(from + j * padded, heads, to + j * heads);
      }
    });
  }

  StateLayout layout_;
  H3Config config_;
  Projection projection_;
  H3Recurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const H3Config& config,
                                                 const MixerSource& source) {
  return std::make_unique<H3Layer>(config, source.options.fold_interval, source.parameters);
}

}  // namespace rivulet
