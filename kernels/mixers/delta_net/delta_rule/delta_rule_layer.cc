// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence:
//
//   q, k, v, z, b, a, l = x W;   q, k, v through the short convolution
//   q, k = D^{-1/2} norm(f(q)), norm(f(k))     v = silu(v)     (scale_queries)
//   β = σ(b), doubled for negative eigenvalues     g = -e^{A_log} softplus(a + dt_bias)
//   λ = softplus(L ∘ l)
//   o = recurrence(q, k, v, β, g, λ)     y = (rms(o) · w · silu(z)) W_o
//
// What a mixer does not have is absent from its config: DeltaNet has no a, g, l and λ, and only the
// log-linear form has l and λ.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/log_linear/level_weights.h"
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

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue, kGate, kBeta, kDecay, kLevels };

std::vector<ProjectionPart> FlaParts(const DeltaRuleConfig& c, size_t levels) {
  const size_t keys = c.shape.groups * c.shape.key_dim, heads = c.shape.heads;
  const size_t values = heads * c.shape.value_dim;
  return {{"q_proj", keys},
          {"k_proj", keys},
          {"v_proj", values},
          {"g_proj", c.use_gate ? values : 0},
          {"b_proj", c.learned_beta ? heads : 0},
          {"a_proj", c.decays ? heads : 0},
          {"l_proj", heads * levels}};
}

// in_proj_qkvz holds, key head by key head, q | k | its value heads' v | their z, and in_proj_ba
// their b | their a. The convolution and the gate want all of q, then all of k, and so on.
std::vector<ProjectionPart> Qwen3NextParts(const HeadShape& shape) {
  const size_t d = shape.key_dim, group = shape.group(), ge = group * shape.value_dim;
  const auto part = [&](const char* tensor, size_t stride, size_t first, size_t block) {
    return ProjectionPart{.tensor = tensor,
                          .columns = shape.groups * block,
                          .rows = {shape.groups * stride, first, block, stride}};
  };
  const auto qkvz = [&](size_t first, size_t block) {
    return part("in_proj_qkvz", 2 * d + 2 * ge, first, block);
  };
  return {qkvz(0, d),
          qkvz(d, d),
          qkvz(2 * d, ge),
          qkvz(2 * d + ge, ge),
          part("in_proj_ba", 2 * group, 0, group),
          part("in_proj_ba", 2 * group, group, group)};
}

std::vector<ProjectionPart> Qwen35Parts(const HeadShape& shape) {
  const size_t keys = shape.groups * shape.key_dim, values = shape.heads * shape.value_dim;
  return {{"in_proj_qkv", keys}, {"in_proj_qkv", keys},      {"in_proj_qkv", values},
          {"in_proj_z", values}, {"in_proj_b", shape.heads}, {"in_proj_a", shape.heads}};
}

std::vector<ProjectionPart> Parts(const DeltaRuleConfig& config, size_t levels) {
  if (config.tensors == DeltaRuleTensors::kQwen3Next) return Qwen3NextParts(config.shape);
  if (config.tensors == DeltaRuleTensors::kQwen35) return Qwen35Parts(config.shape);
  return FlaParts(config, levels);
}

// One convolution serves q, k and v, so it applies SiLU to all of them or to none. OLMo Hybrid has
// fla's names with one tensor for all three.
PartConvolutionConfig Convolution(const DeltaRuleConfig& config,
                                  const ParameterSource& parameters) {
  PartConvolutionConfig result = FlaConvolution(config.conv_size, config.conv_bias);
  const bool fla = config.tensors == DeltaRuleTensors::kFla;
  if (!fla || parameters.Has("conv1d.weight")) result.tensors = {"conv1d"};
  result.silu = config.qk_activation == Activation::kSilu;
  return result;
}

HeadOutputConfig Output(const DeltaRuleConfig& config) {
  const bool fla = config.tensors == DeltaRuleTensors::kFla;
  return {.heads = config.shape.heads,
          .width = config.shape.value_dim,
          .norm = fla ? "o_norm" : "norm",
          .norm_eps = config.norm_eps,
          .projection = fla ? "o_proj" : "out_proj",
          .gate_f = config.gate_f};
}

class DeltaRuleLayer : public Mixer {
 public:
  DeltaRuleLayer(const DeltaRuleConfig& config, uint32_t levels, const MixerSource& source)
      : config_(config),
        layout_(source.options.NewLayout()),
        max_tokens_(LevelMaxTokens(levels, source.options.level_overflow)),
        projection_(Parts(config, levels), source.hidden, source.parameters),
        convolution_(Convolution(config, source.parameters), projection_, source.parameters,
                     layout_),
        qk_activation_(config.qk_activation),
        v_activation_(Activation::kSilu),
        level_weights_(config.shape.heads, levels, source.parameters),
        recurrence_(DeltaRuleDeclaration(config.shape, config.decays, levels), layout_),
        output_(Output(config), source) {
    if (config.conv_size != 0 && config.qk_activation == Activation::kSilu) {
      qk_activation_ = v_activation_ = Activation::kIdentity;
    }
    if (config.decays) TakeDecay(source.parameters);
    if (!config.learned_beta) {
      constant_beta_ = AlignedBuffer<float>(config.shape.heads);
      std::fill_n(constant_beta_.data(), constant_beta_.size(), beta_scale());
    }
  }

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return max_tokens_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = convolution_.Apply(step, projection_.Apply(step, x));
    const float scale = config_.scale_queries ? InverseRoot(config_.shape.key_dim) : 1.0f;
    const TokenInputs inputs{
        .q = Keys(step, projected[kQuery], scale),
        .k = Keys(step, projected[kKey], 1.0f),
        .v = PaddedHeads(step, projected[kValue], config_.shape.heads, v_activation_),
        .decay = LogDecay(step, projected[kDecay]),
        .beta = Beta(step, x, projected[kBeta]),
        .levels = level_weights_.Apply(step, projected[kLevels])};
    output_.Apply(step, RunRecurrence(step, recurrence_, inputs), projected[kGate], y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    Device& device = *step.device;
    const Projected projected = projection_.Enqueue(step, x);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    const size_t keys = config_.shape.groups, heads = config_.shape.heads;
    const Preparation key{.f = qk_activation_,
                          .norm = config_.qk_sum_norm ? DeviceHeadNorm::kSum : DeviceHeadNorm::kL2};
    Preparation query = key;
    if (config_.scale_queries) query.scale = InverseRoot(config_.shape.key_dim);
    TokenInputs inputs{.q = rows.Heads(projected[kQuery], keys, query),
                       .k = rows.Heads(projected[kKey], keys, key),
                       .v = rows.Heads(projected[kValue], heads, {.f = v_activation_})};
    if (config_.learned_beta) {
      inputs.beta =
          rows.Numbers(projected[kBeta], {.f = Activation::kSigmoid, .scale = beta_scale()});
    } else {
      inputs.beta = {device.Constant({constant_beta_.data(), heads}), x.rows, heads, 0};
    }
    if (config_.decays) {
      inputs.decay =
          rows.Numbers(projected[kDecay], {.f = Activation::kSoftplus,
                                           .bias = device.Constant({rate_bias_.data(), heads}),
                                           .rate = device.Constant({rate_.data(), heads})});
    }
    inputs.levels = level_weights_.OnDevice(step, rows, projected[kLevels]);
    rows.Enqueue();
    output_.Enqueue(step, EnqueueRecurrence(step, recurrence_, inputs), projected[kGate], y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }

 private:
  float beta_scale() const { return config_.negative_eigenvalues ? 2.0f : 1.0f; }

  void TakeDecay(ParameterSource& parameters) {
    const size_t heads = config_.shape.heads;
    rate_ = parameters.TakeVector("A_log", {heads});
    for (size_t h = 0; h < heads; ++h) rate_[h] = -std::exp(rate_[h]);
    rate_bias_ = parameters.TakeVector("dt_bias", {heads});
  }

  // Queries and keys alike, in padded heads: activation, then norm, then scale.
  FloatMatrix Keys(const LayerStep& step, FloatMatrix x, float scale) const {
    const HeadShape& shape = config_.shape;
    const FloatMatrix keys = PaddedHeads(step, x, shape.groups, qk_activation_);
    if (config_.qk_sum_norm) {
      SumNormHeads(keys, shape.groups, shape.key_dim, scale, *step.pool);
    } else {
      L2NormHeads(keys, shape.groups, shape.key_dim, shape.padded_key(), scale, *step.pool);
    }
    return keys;
  }

  // [T, H]
  FloatMatrix Beta(const LayerStep& step, ConstFloatMatrix x, ConstFloatMatrix b) const {
    const size_t heads = config_.shape.heads;
    if (!config_.learned_beta) {
      return MapRows(step, x, heads,
                     [&](const float*, float* beta) { std::fill_n(beta, heads, beta_scale()); });
    }
    return MapRows(step, b, heads, [&](const float* logits, float* beta) {
      Activate(Activation::kSigmoid, logits, beta, heads);
      for (size_t h = 0; h < heads; ++h) beta[h] *= beta_scale();
    });
  }

  // [T, H], or null data without decay.
  FloatMatrix LogDecay(const LayerStep& step, ConstFloatMatrix a) const {
    if (!config_.decays) return {};
    const size_t heads = config_.shape.heads;
    return MapRows(step, a, heads, [&](const float* logits, float* g) {
      for (size_t h = 0; h < heads; ++h) g[h] = logits[h] + rate_bias_[h];
      Activate(Activation::kSoftplus, g, g, heads);
      for (size_t h = 0; h < heads; ++h) g[h] *= rate_[h];
    });
  }

  DeltaRuleConfig config_;
  StateLayout layout_;
  uint64_t max_tokens_;
  Projection projection_;
  PartConvolution convolution_;
  // What remains to be applied after the convolution.
  Activation qk_activation_, v_activation_;
  AlignedBuffer<float> rate_, rate_bias_;  // [H]: -e^{A_log}, dt_bias; empty without decay
  AlignedBuffer<float> constant_beta_;     // [H]: of a layer that does not learn β
  LevelWeights level_weights_;             // of the log-linear form
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace

RecurrenceDeclaration DeltaRuleDeclaration(const HeadShape& shape, bool decays, uint32_t levels) {
  DeclaredRow values{"u", shape.value_dim};
  if (levels != 0) values = {"v", shape.value_dim, {"v"}};
  return {.shape = shape,
          .sharing = Sharing::kQueriesAndKeys,
          .decay = {.kind = decays ? Decay::kScalar : Decay::kNone},
          .rows = {{"k", shape.key_dim, {"k"}}, values},
          .sums = {{"S", "k", values.name}},
          .reads = {{"o", "S", "q"}},
          .delta = true,
          .levels = levels};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const DeltaRuleConfig& config,
                                                 const MixerSource& source) {
  uint32_t levels = 0;
  if (config.log_linear) {
    const LevelProjection projection{"l_proj.weight", 0, config.shape.heads};
    RIVULET_ASSIGN_OR_RETURN(levels, FindLevels(config.max_levels, projection, source.parameters));
  } else if (config.decays && source.parameters.Has("D")) {
    // Checkpoints of Gated DeltaNet from before 2025-03-12 hold a D that nothing ever read.
    source.parameters.TakeVector("D", {config.shape.groups});
  }
  return std::make_unique<DeltaRuleLayer>(WithStateDType(config, source), levels, source);
}

}  // namespace rivulet
