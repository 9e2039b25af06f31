// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence:
//
//   q | k | v = silu(qkv_proj x), head by head
//   o = recurrence(q, k, v)     y = out_proj(σ(output_gate x) ∘ rms(o) · weight)
//
// The norm is over all heads together.
#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/lightning_attention/lightning_attention_config.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kGate };

std::vector<ProjectionPart> Parts(const LightningAttentionConfig& c) {
  const size_t columns = c.heads * c.head_dim;
  const auto part = [&](size_t first) {
    return ProjectionPart{.tensor = "qkv_proj",
                          .columns = columns,
                          .rows = {3 * columns, first, c.head_dim, 3 * c.head_dim}};
  };
  return {part(0), part(c.head_dim), part(2 * c.head_dim), {"output_gate", columns}};
}

class LightningAttentionLayer : public Mixer {
 public:
  LightningAttentionLayer(const LightningAttentionConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_(Parts(config), source.hidden, source.parameters),
        recurrence_(LightningAttentionDeclaration({config.heads, config.heads, config.head_dim,
                                                   config.head_dim, source.options.state_dtype},
                                                  config.log_decay),
                    layout_),
        norm_(source.parameters.TakeVector("norm.weight", {config.heads * config.head_dim})),
        output_(TakeLinear("out_proj", source.hidden, config.heads * config.head_dim, false,
                           source.parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const auto heads = [&](Part part) {
      return PaddedHeads(step, projected[part], config_.heads, Activation::kSilu);
    };
    const TokenInputs inputs{.q = heads(kQuery), .k = heads(kKey), .v = heads(kValue)};
    const FloatMatrix o = Unpad(step, RunRecurrence(step, recurrence_, inputs));
    NormAndGate(step, projected[kGate], o);
    ProjectOutput(step, output_, o, y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    RowPreparation rows(step, {});
    const auto heads = [&](Part part) {
      return rows.Heads(projected[part], config_.heads, {.f = Activation::kSilu});
    };
    const TokenInputs inputs{.q = heads(kQuery), .k = heads(kKey), .v = heads(kValue)};
    rows.Enqueue();
    const FloatMatrix o = EnqueueRecurrence(step, recurrence_, inputs);
    const GatedNorm how{.heads = config_.heads,
                        .width = config_.head_dim,
                        .norm_width = norm_.size(),
                        .weight = {norm_.data(), norm_.size()},
                        .eps = config_.norm_eps,
                        .gate_f = Activation::kSigmoid};
    output_.Enqueue(*step.device, EnqueueNormAndGate(step, o, projected[kGate], how), y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }

 private:
  // [T, H*Dp] → [T, H*D]
  FloatMatrix Unpad(const LayerStep& step, ConstFloatMatrix heads) const {
    const size_t width = config_.head_dim, padded = PaddedColumns(width);
    return MapRows(step, heads, config_.heads * width, [&](const float* from, float* to) {
      for (size_t h = 0; h < config_.heads; ++h) {
        std::copy_n(from + h * padded, width, to + h * width);
      }
    });
  }

  // In place.
  void NormAndGate(const LayerStep& step, ConstFloatMatrix gate, FloatMatrix o) const {
    const StageTimer timer(step.times, Stage::kNorm);
    RmsNorm(o, norm_.data(), config_.norm_eps, o, *step.pool);
    const FloatMatrix open = MapRows(step, gate, o.columns, [&](const float* from, float* to) {
      Activate(Activation::kSigmoid, from, to, o.columns);
    });
    MultiplyRows(open, o, *step.pool);
  }

  StateLayout layout_;
  LightningAttentionConfig config_;
  Projection projection_;
  SumRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [H*D]
  Linear output_;
};

}  // namespace

RecurrenceDeclaration LightningAttentionDeclaration(const HeadShape& shape,
                                                    const std::vector<double>& log_decay) {
  RIVULET_CHECK(log_decay.size() == shape.heads, "a decay for each head");
  return {.shape = shape,
          .decay = {.kind = Decay::kScalar, .constant = log_decay},
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{"S", "k", "v"}},
          .reads = {{"o", "S", "q"}}};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LightningAttentionConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<LightningAttentionLayer>(config, source);
}

}  // namespace rivulet
