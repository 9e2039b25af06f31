// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence, with δ the input before the token's less the token's:
//
//   m_n = tanh((x + δ ∘ μ) A)_n B_n + b_n      x^n = x + δ ∘ m_n      n = r, w, k, v, g
//   r, k, v, gate = x^r W_r, x^k W_k, x^v W_v, x^g W_g
//   g = -exp(tanh(x^w W_1) W_2 + w_0)
//   o = recurrence(r, k, v, g) + (Σ r ∘ u ∘ k) v
//   y = (norm(o) ∘ silu(gate)) W_o
#include <algorithm>
#include <memory>
#include <string>

#include "kernels/base/parallel.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/rwkv6/rwkv6_config.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/token_shift/token_shift.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

enum Mixture : size_t { kReceptance, kDecay, kKey, kValue, kGate, kMixtures };  // fla's order

AlignedBuffer<float> Filled(size_t count, float value) {
  AlignedBuffer<float> buffer(count);
  std::fill_n(buffer.data(), count, value);
  return buffer;
}

class Rwkv6Layer : public Mixer {
 public:
  Rwkv6Layer(const Rwkv6Config& config, const MixerSource& source)
      : config_(config),
        hidden_(source.hidden),
        layout_(source.options.NewLayout()),
        shift_(hidden_, layout_),
        mix_(source.parameters.TakeVector("x_proj.0.mu", {hidden_})),
        mix_down_(TakeLinear("x_proj.0.linear", ranks(), hidden_, false, source.parameters)),
        mix_up_(TakeLinear("x_proj.2", hidden_, ranks(), false, source.parameters)),
        mix_bias_(source.parameters.TakeVector("x_bias", {kMixtures, hidden_})),
        receptance_(TakeLinear("r_proj.linear", keys(), hidden_, false, source.parameters)),
        key_(TakeLinear("k_proj.linear", keys(), hidden_, false, source.parameters)),
        value_(TakeLinear("v_proj.linear", values(), hidden_, false, source.parameters)),
        gate_(TakeLinear("g_proj.linear", values(), hidden_, false, source.parameters)),
        decay_down_(TakeLinear("w_proj.linear.lora.0", config.decay_rank, hidden_, false,
                               source.parameters)),
        decay_up_(
            TakeLinear("w_proj.linear.lora.2", keys(), config.decay_rank, true, source.parameters)),
        bonus_(source.parameters.TakeVector("bonus", {heads(), config.shape.key_dim})),
        recurrence_(Rwkv6Declaration(config.shape), layout_),
        norm_weight_(source.parameters.TakeVector("g_norm.weight", {values()})),
        norm_bias_(source.parameters.TakeVector("g_norm.bias", {values()})),
        ones_(Filled(config.shape.value_dim, 1.0f)),
        zeros_(Filled(config.shape.value_dim, 0.0f)),
        output_(TakeLinear("o_proj", hidden_, values(), false, source.parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Shifted in = Shift(step, x);
    const FloatMatrix gate = Project(step, gate_, Mixed(in, kGate));
    const TokenInputs inputs{
        .q = PaddedHeads(step, Project(step, receptance_, Mixed(in, kReceptance)), heads()),
        .k = PaddedHeads(step, Project(step, key_, Mixed(in, kKey)), heads()),
        .v = PaddedHeads(step, Project(step, value_, Mixed(in, kValue)), heads()),
        .decay = LogDecay(in)};
    const FloatMatrix o = RunRecurrence(step, recurrence_, inputs);
    AddBonus(step, inputs, o);
    ProjectOutput(step, output_, NormAndGate(step, o, gate), y);
    return absl::OkStatus();
  }

 private:
  struct Shifted {
    const LayerStep& step;
    ConstFloatMatrix x;
    ConstFloatMatrix difference;
    ConstFloatMatrix weights;  // [T · kMixtures, hidden]: a row for each mixture of a token
    FloatMatrix mixed;         // where each mixture in turn is
  };

  size_t heads() const { return config_.shape.heads; }
  size_t keys() const { return heads() * config_.shape.key_dim; }
  size_t values() const { return heads() * config_.shape.value_dim; }
  size_t ranks() const { return kMixtures * config_.mixture_rank; }

  Shifted Shift(const LayerStep& step, ConstFloatMatrix x) const {
    const FloatMatrix difference = shift_.Difference(step, x);
    const FloatMatrix mixed = step.workspace->Take(x.rows, x.columns);
    MixShifted(x, difference, mix_.data(), mixed, *step.pool);
    const FloatMatrix low = Project(step, mix_down_, mixed);
    return {step, x, difference, Project(step, mix_up_, OfEachMixture(step, low)), mixed};
  }

  // [T · kMixtures, ranks] of low [T, ranks]: the row of a mixture has tanh of its own numbers and
  // zeros elsewhere, so that one map serves all of them.
  FloatMatrix OfEachMixture(const LayerStep& step, FloatMatrix low) const {
    const FloatMatrix rows = step.workspace->Take(low.rows * kMixtures, ranks());
    ParallelRows(*step.pool, low.rows, kMixtures * ranks(), [&](size_t t) {
      Activate(Activation::kTanh, low.row(t), low.row(t), ranks());
      for (size_t n = 0; n < kMixtures; ++n) {
        const size_t first = n * config_.mixture_rank;
        float* const row = rows.row(t * kMixtures + n);
        std::fill_n(row, ranks(), 0.0f);
        std::copy_n(low.row(t) + first, config_.mixture_rank, row + first);
      }
    });
    return rows;
  }

  // [T, hidden] = x + δ ∘ (m_n + b_n)
  ConstFloatMatrix Mixed(const Shifted& in, Mixture n) const {
    const float* const bias = mix_bias_.data() + n * hidden_;
    ParallelRows(*in.step.pool, in.x.rows, hidden_, [&](size_t t) {
      const float* const x = in.x.row(t);
      const float* const difference = in.difference.row(t);
      const float* const weight = in.weights.row(t * kMixtures + n);
      float* const to = in.mixed.row(t);
      for (size_t i = 0; i < hidden_; ++i) to[i] = x[i] + difference[i] * (weight[i] + bias[i]);
    });
    return in.mixed;
  }

  // [T, H·Dp], zeros in the padding of each head.
  FloatMatrix LogDecay(const Shifted& in) const {
    const LayerStep& step = in.step;
    const FloatMatrix low = Project(step, decay_down_, Mixed(in, kDecay));
    ParallelRows(*step.pool, low.rows, 4 * low.columns, [&](size_t t) {
      Activate(Activation::kTanh, low.row(t), low.row(t), low.columns);
    });
    return PaddedHeads(step, Project(step, decay_up_, low), heads(), Activation::kExp, -1.0f);
  }

  // o += (Σ r ∘ u ∘ k) v for each head.
  void AddBonus(const LayerStep& step, const TokenInputs& inputs, FloatMatrix o) const {
    const HeadShape& shape = config_.shape;
    ParallelRows(*step.pool, o.rows, 4 * o.columns, [&](size_t t) {
      for (size_t h = 0; h < heads(); ++h) {
        const size_t key = h * shape.padded_key(), value = h * shape.padded_value();
        const float bonus = Bonus(h, inputs.q.row(t) + key, inputs.k.row(t) + key);
        const float* const v = inputs.v.row(t) + value;
        for (size_t i = 0; i < shape.value_dim; ++i) o.row(t)[value + i] += bonus * v[i];
      }
    });
  }

  // One chain of additions, in the order of the key's numbers.
  float Bonus(size_t head, const float* r, const float* k) const {
    const size_t width = config_.shape.key_dim;
    float sum = 0;
    for (size_t i = 0; i < width; ++i) sum += r[i] * (k[i] * bonus_[head * width + i]);
    return sum;
  }

  // [T, H·E] = norm(o) ∘ silu(gate). Overwrites o and the gate.
  FloatMatrix NormAndGate(const LayerStep& step, FloatMatrix o, FloatMatrix gate) const {
    const HeadShape& shape = config_.shape;
    const StageTimer timer(step.times, Stage::kNorm);
    const FloatMatrix rows{o.data, o.rows * heads(), shape.value_dim, shape.padded_value()};
    LayerNorm(rows, ones_.data(), zeros_.data(), config_.norm_eps, rows, *step.pool);
    ParallelRows(*step.pool, o.rows, 4 * o.columns, [&](size_t t) {
      Activate(Activation::kSilu, gate.row(t), gate.row(t), values());
      for (size_t h = 0; h < heads(); ++h) {
        GateHead(h * shape.value_dim, o.row(t) + h * shape.padded_value(), gate.row(t));
      }
    });
    return gate;
  }
  void GateHead(size_t first, const float* normed, float* gate) const {
    for (size_t i = 0; i < config_.shape.value_dim; ++i) {
      gate[first + i] *= normed[i] * norm_weight_[first + i] + norm_bias_[first + i];
    }
  }

  Rwkv6Config config_;
  size_t hidden_;
  StateLayout layout_;
  TokenShift shift_;
  AlignedBuffer<float> mix_;       // μ [hidden]
  Linear mix_down_, mix_up_;       // A and B of all mixtures side by side
  AlignedBuffer<float> mix_bias_;  // [kMixtures, hidden]
  Linear receptance_, key_, value_, gate_;
  Linear decay_down_, decay_up_;
  AlignedBuffer<float> bonus_;  // u [H·D]
  SumRecurrence recurrence_;
  AlignedBuffer<float> norm_weight_, norm_bias_;  // [H·E]
  AlignedBuffer<float> ones_, zeros_;             // [E]
  Linear output_;
};

}  // namespace

RecurrenceDeclaration Rwkv6Declaration(const HeadShape& shape) {
  return {.shape = shape,
          .decay = {.kind = Decay::kChannel},
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{"S", "k", "v"}},
          .reads = {{"o", "S", "q", /*strict=*/true}}};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Rwkv6Config& config,
                                                 const MixerSource& source) {
  return std::make_unique<Rwkv6Layer>(WithStateDType(config, source), source);
}

}  // namespace rivulet
