// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence (docs/mixers.md#hla-format):
//
//   q, k, v, g = x W;  q, k, v through the short convolution (SiLU)
//   q, k ← scale · l2(rope(f(q))), scale · l2(rope(f(k)))     each as the config says
//   o = recurrence(q, k, v)                          per head
//   y = (rms(o) · w · silu(g)) W_o
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/mixers/ahla/ahla_recurrence.h"
#include "kernels/mixers/fla_convolution.h"
#include "kernels/mixers/hla/hla.h"
#include "kernels/mixers/hla/hla_config.h"
#include "kernels/mixers/hla/hla_recurrence.h"
#include "kernels/mixers/hla/third_order/paper_third_order_recurrence.h"
#include "kernels/mixers/hla/third_order/third_order_recurrence.h"
#include "kernels/ops/heads/heads.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/rope/rope.h"

namespace rivulet {
namespace {

class HlaMixer : public Mixer {
 public:
  HlaMixer(const HlaConfig& config, const MixerSource& source);

  const StateLayout& state_layout() const override { return layout_; }
  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;

 private:
  size_t q_columns() const { return config_.shape.heads * config_.shape.key_dim; }
  size_t k_columns() const { return config_.shape.kv_heads * config_.shape.key_dim; }
  size_t v_columns() const { return config_.shape.kv_heads * config_.shape.value_dim; }
  size_t qkv_columns() const { return q_columns() + k_columns() + v_columns(); }
  size_t o_columns() const { return config_.shape.heads * config_.shape.value_dim; }

  void TakeProjections(const MixerSource& source);
  void TakeRecurrence(ParameterSource& parameters);

  HigherOrderInput SplitHeads(const MixerStep& step, ConstFloatMatrix qkv) const;
  ConstFloatMatrix PrepareKeys(const MixerStep& step, ConstFloatMatrix x, size_t heads,
                               const RopeAngles& angles) const;

  HlaConfig config_;
  StateLayout layout_;
  Linear input_;  // q | k | v | g
  FlaConvolution convolution_;
  std::optional<Rope> rope_;
  std::unique_ptr<HigherOrderRecurrence> recurrence_;
  AlignedBuffer<float> norm_;  // [E]
  Linear output_;
};

HlaMixer::HlaMixer(const HlaConfig& config, const MixerSource& source) : config_(config) {
  TakeProjections(source);
  if (config_.conv_size != 0) {
    convolution_ = FlaConvolution(
        {.q = q_columns(), .k = k_columns(), .v = v_columns(), .window = config_.conv_size},
        source.parameters, layout_);
  }
  if (config_.rope.has_value()) rope_.emplace(*config_.rope);
  TakeRecurrence(source.parameters);
  norm_ = source.parameters.TakeVector("o_norm.weight", {config_.shape.value_dim});
}

void HlaMixer::TakeProjections(const MixerSource& source) {
  std::vector<LinearPart> parts = {{"q_proj.weight", q_columns(), ""},
                                   {"k_proj.weight", k_columns(), ""},
                                   {"v_proj.weight", v_columns(), ""}};
  if (config_.use_output_gate) parts.push_back({"g_proj.weight", o_columns(), ""});
  input_ = source.parameters.TakeLinear(parts, source.hidden);
  output_ = source.parameters.TakeLinear({{"o_proj.weight", source.hidden, ""}}, o_columns());
}

void HlaMixer::TakeRecurrence(ParameterSource& parameters) {
  const HigherOrderShape& shape = config_.shape;
  DecayTable decay;
  if (config_.use_decay) decay = DecayTable(parameters.TakeVector("decay_logit", {shape.heads}));
  if (config_.variant == HlaVariant::kAsymmetric) {
    recurrence_ = std::make_unique<AhlaRecurrence>(shape, std::move(decay), layout_);
  } else if (config_.variant == HlaVariant::kSymmetric) {
    recurrence_ = std::make_unique<HlaRecurrence>(shape, config_.form, config_.ridge_lambda,
                                                  std::move(decay), layout_);
  } else if (config_.form == HlaForm::kPaper) {
    recurrence_ = std::make_unique<PaperThirdOrderRecurrence>(shape, std::move(decay), layout_);
  } else {
    recurrence_ = std::make_unique<ThirdOrderRecurrence>(shape, std::move(decay), layout_);
  }
}

absl::Status HlaMixer::Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  Workspace& workspace = *step.workspace;
  ThreadPool& pool = *step.pool;
  const HigherOrderShape& shape = config_.shape;

  const FloatMatrix projected = workspace.Take(x.rows, input_.outputs());
  input_.Apply(x, projected, pool);
  const ConstFloatMatrix qkv = convolution_.Apply(step, projected.Columns(0, qkv_columns()));
  const FloatMatrix o = workspace.Take(x.rows, shape.heads * shape.padded_value());
  recurrence_->Run(step, SplitHeads(step, qkv), o);

  ConstFloatMatrix gate;
  if (config_.use_output_gate) gate = projected.Columns(qkv_columns(), o_columns());
  const FloatMatrix normed = workspace.Take(x.rows, o_columns());
  HeadNormGate(o, shape.heads, shape.value_dim, shape.padded_value(), norm_.data(),
               config_.norm_eps, gate, normed, pool);
  output_.Apply(normed, y, pool);
  return absl::OkStatus();
}

HigherOrderInput HlaMixer::SplitHeads(const MixerStep& step, ConstFloatMatrix qkv) const {
  const HigherOrderShape& shape = config_.shape;
  const FloatMatrix v = step.workspace->Take(qkv.rows, shape.kv_heads * shape.padded_value());
  PadHeads(qkv.Columns(q_columns() + k_columns(), v_columns()), shape.kv_heads, shape.value_dim,
           Activation::kIdentity, 1.0f, v, *step.pool);
  RopeAngles angles;
  if (rope_.has_value()) {
    angles = rope_->Angles(step.segments, qkv.rows, *step.workspace, *step.pool);
  }
  return {PrepareKeys(step, qkv.Columns(0, q_columns()), shape.heads, angles),
          PrepareKeys(step, qkv.Columns(q_columns(), k_columns()), shape.kv_heads, angles), v};
}

// Queries and keys alike: activation, then rotation, then l2 norm, then scale.
ConstFloatMatrix HlaMixer::PrepareKeys(const MixerStep& step, ConstFloatMatrix x, size_t heads,
                                       const RopeAngles& angles) const {
  const HigherOrderShape& shape = config_.shape;
  const FloatMatrix result = step.workspace->Take(x.rows, heads * shape.padded_key());
  const float scale = config_.qk_l2_norm ? 1.0f : config_.qk_scale;
  PadHeads(x, heads, shape.key_dim, config_.qk_activation, scale, result, *step.pool);
  if (rope_.has_value()) ApplyRope(angles, result, heads, shape.padded_key(), *step.pool);
  if (config_.qk_l2_norm) {
    L2NormHeads(result, heads, shape.key_dim, shape.padded_key(), config_.qk_scale, *step.pool);
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeHla(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const HlaConfig config,
                           ParseHlaConfig(source.config, source.hidden, source.options));
  return std::make_unique<HlaMixer>(config, source);
}

}  // namespace rivulet
