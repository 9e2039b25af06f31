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
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/linear_source.h"
#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/device/rwkv_operations.h"
#include "kernels/mixers/block_linear.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/rwkv6/rwkv6_config.h"
#include "kernels/mixers/time_mix_on_device.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/token_shift/token_shift.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

enum Mixture : size_t { kReceptance, kDecay, kKey, kValue, kGate, kMixtures };  // fla's order

// How far the mixtures' numbers lie apart between their two maps: a device's blocks begin at
// multiples of 16.
size_t StepOf(size_t rank, const ParameterSource& parameters) {
  return parameters.packs_on_device() ? PaddedColumns(rank) : rank;
}

// The first map of all mixtures: `rank` rows of the tensor for each, and rows of zeros up to the
// next one's.
Linear TakeMixDown(size_t rank, size_t hidden, ParameterSource& parameters) {
  const size_t step = StepOf(rank, parameters);
  const std::string name = "x_proj.0.linear";
  if (step == rank) return TakeLinear(name, kMixtures * rank, hidden, false, parameters);
  const AlignedBuffer<float> weight =
      parameters.TakeVector(name + ".weight", {kMixtures * rank, hidden});
  const std::vector<float> zeros((step - rank) * hidden);
  std::vector<LinearSource> rows;
  for (size_t n = 0; n < kMixtures; ++n) {
    rows.push_back({weight.data() + n * rank * hidden, DType::kFloat32, rank});
    rows.push_back({zeros.data(), DType::kFloat32, step - rank});
  }
  return parameters.PackRows(rows, hidden);
}

// The second maps, which lie side by side in the tensor [hidden, kMixtures · rank].
BlockLinear TakeMixUp(size_t rank, size_t hidden, ParameterSource& parameters) {
  const AlignedBuffer<float> weight =
      parameters.TakeVector("x_proj.2.weight", {hidden, kMixtures * rank});
  std::vector<float> apart(weight.size());
  std::vector<LinearSource> blocks;
  for (size_t n = 0; n < kMixtures; ++n) {
    float* const to = apart.data() + n * hidden * rank;
    for (size_t i = 0; i < hidden; ++i) {
      std::copy_n(weight.data() + (i * kMixtures + n) * rank, rank, to + i * rank);
    }
    blocks.push_back({to, DType::kFloat32, hidden});
  }
  return BlockLinear(blocks, rank, parameters);
}

// μ, as the token shift takes mixtures.
std::array<AlignedBuffer<float>, 1> TakeMix(size_t hidden, ParameterSource& parameters) {
  return {parameters.TakeVector("x_proj.0.mu", {hidden})};
}

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
        mix_(TakeMix(hidden_, source.parameters)),
        mix_step_(StepOf(config.mixture_rank, source.parameters)),
        mix_down_(TakeMixDown(config.mixture_rank, hidden_, source.parameters)),
        mix_up_(TakeMixUp(config.mixture_rank, hidden_, source.parameters)),
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
        output_(TakeLinear("o_proj", hidden_, values(), false, source.parameters)) {
    if (!layout_.device()) return;
    device_call_ = AddTimeMixPlanes(TimeMixForm::kRwkv6, config_.shape, layout_);
  }

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

  // One operation has the recurrence, the bonus, the norm and the gate.
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const auto mixed = EnqueueMixtures(step, x);
    const auto map = [&](const Linear& linear, const Operand& of) {
      const FloatMatrix to = step.workspace->Take(of.rows, linear.outputs());
      linear.Enqueue(*step.device, of, to);
      return to;
    };
    TimeMixCall call = DeviceCall(step);
    call.r = map(receptance_, mixed[kReceptance]);
    call.k = map(key_, mixed[kKey]);
    call.v = call.values = map(value_, mixed[kValue]);
    call.gate = map(gate_, mixed[kGate]);
    const FloatMatrix low = map(decay_down_, mixed[kDecay]);
    call.decay = map(decay_up_, Gated(step, low, {}, Activation::kTanh));
    call.out = step.workspace->Take(x.rows, values());
    call.bonus_sum = step.workspace->Take(x.rows, heads());
    call.y = step.workspace->TakeOperand(x.rows, values());
    step.device->TimeMix(call);
    output_.Enqueue(*step.device, call.y, y);
  }
  bool runs_on_device() const override { return config_.shape.padded_key() <= kMostTimeMixKeys; }

 private:
  struct Shifted {
    const LayerStep& step;
    ConstFloatMatrix x;
    ConstFloatMatrix difference;
    ConstFloatMatrix weights;  // [T, kMixtures · hidden]
    FloatMatrix mixed;         // where each mixture in turn is
  };

  size_t heads() const { return config_.shape.heads; }
  size_t keys() const { return heads() * config_.shape.key_dim; }
  size_t values() const { return heads() * config_.shape.value_dim; }

  Shifted Shift(const LayerStep& step, ConstFloatMatrix x) const {
    const FloatMatrix difference = shift_.Difference(step, x);
    const FloatMatrix mixed = step.workspace->Take(x.rows, x.columns);
    MixShifted(x, difference, mix_[0].data(), mixed, *step.pool);
    const FloatMatrix low = Tanh(step, Project(step, mix_down_, mixed));
    const FloatMatrix weights = step.workspace->Take(x.rows, kMixtures * hidden_);
    mix_up_.Apply(step, low, mix_step_, weights, hidden_);
    return {step, x, difference, weights, mixed};
  }

  // In place.
  static FloatMatrix Tanh(const LayerStep& step, FloatMatrix x) {
    ParallelRows(*step.pool, x.rows, 4 * x.columns,
                 [&](size_t t) { Activate(Activation::kTanh, x.row(t), x.row(t), x.columns); });
    return x;
  }

  // [T, hidden] = x + δ ∘ (m_n + b_n)
  ConstFloatMatrix Mixed(const Shifted& in, Mixture n) const {
    const float* const bias = mix_bias_.data() + n * hidden_;
    ParallelRows(*in.step.pool, in.x.rows, hidden_, [&](size_t t) {
      const float* const x = in.x.row(t);
      const float* const difference = in.difference.row(t);
      const float* const weight = in.weights.row(t) + n * hidden_;
      float* const to = in.mixed.row(t);
      for (size_t i = 0; i < hidden_; ++i) to[i] = x[i] + difference[i] * (weight[i] + bias[i]);
    });
    return in.mixed;
  }

  // [T, H·Dp], zeros in the padding of each head.
  FloatMatrix LogDecay(const Shifted& in) const {
    const LayerStep& step = in.step;
    const FloatMatrix low = Tanh(step, Project(step, decay_down_, Mixed(in, kDecay)));
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

  // --- on a device -------------------------------------------------------------------------------

  std::array<Operand, kMostMixtures> EnqueueMixtures(const DeviceStep& step,
                                                     const Operand& x) const {
    const FloatMatrix difference = step.workspace->Take(x.rows, hidden_);
    const Operand mixed = shift_.Enqueue(step, x, mix_, difference)[0];
    const FloatMatrix low = step.workspace->Take(x.rows, mix_down_.outputs());
    mix_down_.Enqueue(*step.device, mixed, low);
    const FloatMatrix weights = step.workspace->Take(x.rows, kMixtures * hidden_);
    mix_up_.Enqueue(step, Gated(step, low, {}, Activation::kTanh), mix_step_, weights, hidden_);
    OwnMixturesCall call{.x = x,
                         .channels = static_cast<uint32_t>(hidden_),
                         .difference = difference,
                         .weights = weights,
                         .bias = Constant(step, mix_bias_),
                         .mixtures = kMixtures};
    std::array<Operand, kMostMixtures> result = {};
    for (size_t n = 0; n < kMixtures; ++n) {
      call.y[n] = result[n] = step.workspace->TakeOperand(x.rows, hidden_);
    }
    step.device->MixOwn(call);
    return result;
  }

  static const float* Constant(const DeviceStep& step, const AlignedBuffer<float>& numbers) {
    return step.device->Constant({numbers.data(), numbers.size()});
  }

  TimeMixCall DeviceCall(const DeviceStep& step) const {
    TimeMixCall call = device_call_;
    call.rows = step.rows;
    call.slots = step.slots;
    call.bonus = Constant(step, bonus_);
    call.norm_weight = Constant(step, norm_weight_);
    call.norm_bias = Constant(step, norm_bias_);
    call.norm_eps = config_.norm_eps;
    return call;
  }

  Rwkv6Config config_;
  size_t hidden_;
  StateLayout layout_;
  TokenShift shift_;
  std::array<AlignedBuffer<float>, 1> mix_;  // μ [hidden]
  size_t mix_step_;                          // columns of a mixture between its maps
  Linear mix_down_;                          // A of all mixtures
  BlockLinear mix_up_;                       // B of each
  AlignedBuffer<float> mix_bias_;            // [kMixtures, hidden]
  Linear receptance_, key_, value_, gate_;
  Linear decay_down_, decay_up_;
  AlignedBuffer<float> bonus_;  // u [H·D]
  SumRecurrence recurrence_;
  AlignedBuffer<float> norm_weight_, norm_bias_;  // [H·E]
  AlignedBuffer<float> ones_, zeros_;             // [E]
  Linear output_;
  TimeMixCall device_call_;  // what is the same in every step, on a device
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
