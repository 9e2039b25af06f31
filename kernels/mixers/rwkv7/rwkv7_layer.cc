// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence. x^m is the token shift's mixture m of x and the input before it,
// v¹ are the values of the model's first such layer:
//
//   r, k, v = x^r W_r, x^k W_k, x^v W_v      v += (v¹ - v) ∘ σ(x^v V_1 V_2 + v_0)
//   g = -e^{-1/2} σ(tanh(x^w W_1) W_2 + w_0)      ρ = σ(x^a A_1 A_2 + a_0)
//   κ = (k ∘ k_k) / |k ∘ k_k|      a = -κ      b = κ ∘ ρ      k += k ∘ (ρ - 1) ∘ k_a
//   o = recurrence(r, k, v, a, b, g)
//   y = ((norm(o) + (Σ r ∘ k ∘ r_k) v) ∘ (σ(x^g G_1) G_2)) W_o
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/device/rwkv_operations.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/rwkv7/rwkv7_config.h"
#include "kernels/mixers/time_mix_on_device.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/token_shift/token_shift.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

// The mixtures of the token shift, as the rows of x_x in files of fla before March 2025.
enum Mixture : size_t { kReceptance, kDecay, kKey, kValue, kRate, kGate, kMixtures };

// The columns of the projection of x^v.
enum ValuePart : size_t { kValues, kLowRankShare };

using Mixtures = std::array<AlignedBuffer<float>, kMixtures>;

Mixtures SplitMixtures(const AlignedBuffer<float>& all, size_t hidden) {
  Mixtures mixtures;
  for (size_t m = 0; m < kMixtures; ++m) {
    mixtures[m] = AlignedBuffer<float>(hidden);
    std::copy_n(all.data() + m * hidden, hidden, mixtures[m].data());
  }
  return mixtures;
}

Mixtures TakeMixtures(size_t hidden, ParameterSource& parameters) {
  if (parameters.Has("x_x")) {
    return SplitMixtures(parameters.TakeVector("x_x", {kMixtures, hidden}), hidden);
  }
  Mixtures mixtures;
  constexpr const char* kNames[kMixtures] = {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"};
  for (size_t m = 0; m < kMixtures; ++m) {
    std::vector<size_t> shape = {1, 1, hidden};
    if (parameters.Shape(kNames[m]) == std::vector<size_t>{hidden}) shape = {hidden};
    mixtures[m] = parameters.TakeVector(kNames[m], shape);
  }
  return mixtures;
}

// A map through few numbers, second(f(first x)).
struct LowRankMap {
  LowRankMap(const std::string& name, size_t rank, size_t outputs, bool bias, size_t hidden,
             ParameterSource& parameters)
      : first(TakeLinear(name + ".lora.0", rank, hidden, false, parameters)),
        second(TakeLinear(name + ".lora.2", outputs, rank, bias, parameters)) {}
  Linear first, second;
};

Linear TakeShareOut(const Rwkv7Config& config, size_t values, ParameterSource& parameters) {
  if (config.first) return {};
  return TakeLinear("v_lora.lora.2", values, config.ranks.value, true, parameters);
}

AlignedBuffer<float> Filled(size_t count, float value) {
  AlignedBuffer<float> buffer(count);
  std::fill_n(buffer.data(), count, value);
  return buffer;
}

class Rwkv7Layer : public Mixer {
 public:
  Rwkv7Layer(const Rwkv7Config& config, const MixerSource& source)
      : config_(config),
        layout_(source.options.NewLayout()),
        shift_(source.hidden, layout_),
        mixtures_(TakeMixtures(source.hidden, source.parameters)),
        receptance_(TakeLinear("r_proj", keys(), source.hidden, false, source.parameters)),
        key_(TakeLinear("k_proj", keys(), source.hidden, false, source.parameters)),
        value_({{"v_proj", values()}, {"v_lora.lora.0", config.first ? 0 : config.ranks.value}},
               source.hidden, source.parameters),
        share_(TakeShareOut(config, values(), source.parameters)),
        decay_("w_lora", config.ranks.decay, keys(), true, source.hidden, source.parameters),
        rate_("a_lora", config.ranks.rate, keys(), true, source.hidden, source.parameters),
        gate_("g_lora", config.ranks.gate, values(), false, source.hidden, source.parameters),
        removed_(source.parameters.TakeVector("k_k", {keys()})),
        replaced_(source.parameters.TakeVector("k_a", {keys()})),
        bonus_(source.parameters.TakeVector("r_k", {config.shape.heads, config.shape.key_dim})),
        recurrence_(Rwkv7Declaration(config.shape), layout_),
        norm_weight_(source.parameters.TakeVector("g_norm.weight", {values()})),
        norm_bias_(source.parameters.TakeVector("g_norm.bias", {values()})),
        ones_(Filled(config.shape.value_dim, 1.0f)),
        zeros_(Filled(config.shape.value_dim, 0.0f)),
        output_(TakeLinear("o_proj", source.hidden, values(), false, source.parameters)) {
    if (!layout_.device()) return;
    device_call_ = AddTimeMixPlanes(TimeMixForm::kRwkv7, config_.shape, layout_);
  }

  const StateLayout& state_layout() const override { return layout_; }
  size_t handed_on_columns() const override { return values(); }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Shifted in{step, x, shift_.Difference(step, x), step.workspace->Take(x.rows, x.columns)};
    const FloatMatrix r =
        PaddedHeads(step, Project(step, receptance_, Mixed(in, kReceptance)), heads());
    const FloatMatrix k = Project(step, key_, Mixed(in, kKey));
    const FloatMatrix v = Values(in);
    const Keys key = MakeKeys(step, k, Rate(in));
    const TokenInputs inputs{.q = r,
                             .k = key.added,
                             .v = PaddedHeads(step, v, heads()),
                             .decay = LogDecay(in),
                             .a = key.read,
                             .b = key.replaced};
    const FloatMatrix o = RunRecurrence(step, recurrence_, inputs);
    ProjectOutput(step, output_, NormAndGate(step, o, {r, key.added, v, Gate(in)}), y);
    return absl::OkStatus();
  }

  // One operation has the rows, the recurrence, the norm and the gate.
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const auto mixed = shift_.Enqueue(step, x, mixtures_);
    TimeMixCall call = DeviceCall(step);
    call.r = EnqueueMap(step, receptance_, mixed[kReceptance]);
    call.k = EnqueueMap(step, key_, mixed[kKey]);
    EnqueueValues(step, mixed[kValue], call);
    call.decay = EnqueueLowRank(step, decay_, mixed[kDecay], Activation::kTanh);
    call.rate = EnqueueLowRank(step, rate_, mixed[kRate], Activation::kIdentity);
    call.gate = EnqueueLowRank(step, gate_, mixed[kGate], Activation::kSigmoid);
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
    FloatMatrix mixed;  // where each mixture in turn is
  };
  struct Keys {
    FloatMatrix added, read, replaced;  // k, a and b [T, H·Dp]
  };
  // What of a token reaches its output beside the recurrence's read.
  struct Beside {
    ConstFloatMatrix r;  // [T, H·Dp]
    FloatMatrix k;       // [T, H·Dp]
    ConstFloatMatrix v;  // [T, H·E]
    FloatMatrix gate;    // [T, H·E], and then the result
  };

  size_t heads() const { return config_.shape.heads; }
  size_t keys() const { return heads() * config_.shape.key_dim; }
  size_t values() const { return heads() * config_.shape.value_dim; }

  ConstFloatMatrix Mixed(const Shifted& in, Mixture mixture) const {
    MixShifted(in.x, in.difference, mixtures_[mixture].data(), in.mixed, *in.step.pool);
    return in.mixed;
  }

  // In place: f of each row.
  template <typename Row>
  static FloatMatrix InPlace(const LayerStep& step, FloatMatrix x, Row&& f) {
    ParallelRows(*step.pool, x.rows, 4 * x.columns, [&](size_t t) { f(x.row(t)); });
    return x;
  }
  static FloatMatrix Sigmoid(const LayerStep& step, FloatMatrix x) {
    return InPlace(step, x,
                   [&](float* row) { Activate(Activation::kSigmoid, row, row, x.columns); });
  }

  // [T, H·E]: the layer's values; those of the first layer are left for later ones, which mix them
  // in.
  FloatMatrix Values(const Shifted& in) const {
    const LayerStep& step = in.step;
    const Projected projected = value_.Apply(step, Mixed(in, kValue));
    const FloatMatrix v = projected[kValues];
    RIVULET_CHECK(step.handed_on.columns >= v.columns, "the step has no place for first values");
    if (config_.first) {
      ParallelRows(*step.pool, v.rows, v.columns,
                   [&](size_t t) { std::copy_n(v.row(t), v.columns, step.handed_on.row(t)); });
      return v;
    }
    const FloatMatrix share = Sigmoid(step, Project(step, share_, projected[kLowRankShare]));
    ParallelRows(*step.pool, v.rows, v.columns,
                 [&](size_t t) { MixIn(step.handed_on.row(t), share.row(t), v.row(t)); });
    return v;
  }
  void MixIn(const float* first, const float* share, float* v) const {
    for (size_t i = 0; i < values(); ++i) v[i] += (first[i] - v[i]) * share[i];
  }

  // [T, H·Dp], zeros in the padding of each head.
  FloatMatrix LogDecay(const Shifted& in) const {
    const LayerStep& step = in.step;
    FloatMatrix low = Project(step, decay_.first, Mixed(in, kDecay));
    low =
        InPlace(step, low, [&](float* row) { Activate(Activation::kTanh, row, row, low.columns); });
    const FloatMatrix g = Sigmoid(step, Project(step, decay_.second, low));
    return PaddedHeads(step, g, heads(), Activation::kIdentity, kFastestTimeMixDecay);
  }

  // ρ [T, H·D]
  FloatMatrix Rate(const Shifted& in) const {
    const FloatMatrix low = Project(in.step, rate_.first, Mixed(in, kRate));
    return Sigmoid(in.step, Project(in.step, rate_.second, low));
  }

  // [T, H·E]
  FloatMatrix Gate(const Shifted& in) const {
    const FloatMatrix low = Project(in.step, gate_.first, Mixed(in, kGate));
    return Project(in.step, gate_.second, Sigmoid(in.step, low));
  }

  Keys MakeKeys(const LayerStep& step, ConstFloatMatrix k, ConstFloatMatrix rate) const {
    const size_t width = config_.shape.key_dim, padded = config_.shape.padded_key();
    const auto take = [&] { return step.workspace->Take(k.rows, heads() * padded); };
    const Keys keys{take(), take(), take()};
    ParallelRows(*step.pool, k.rows, 4 * k.columns, [&](size_t t) {
      for (size_t h = 0; h < heads(); ++h) {
        const size_t to = h * padded;
        MakeHeadKeys(h * width, k.row(t) + h * width, rate.row(t) + h * width,
                     keys.added.row(t) + to, keys.read.row(t) + to, keys.replaced.row(t) + to);
      }
    });
    return keys;
  }

  // One head, whose weights begin at `first`.
  void MakeHeadKeys(size_t first, const float* k, const float* rate, float* added, float* read,
                    float* replaced) const {
    const size_t width = config_.shape.key_dim, padded = config_.shape.padded_key();
    for (size_t i = 0; i < width; ++i) read[i] = k[i] * removed_[first + i];
    const float scale = InverseNorm(OrderedDot(read, read, width));
    for (size_t i = 0; i < width; ++i) {
      const float removed = read[i] * scale;
      read[i] = -removed;
      replaced[i] = removed * rate[i];
      added[i] = k[i] + k[i] * (rate[i] - 1.0f) * replaced_[first + i];
    }
    for (float* row : {added, read, replaced}) std::fill(row + width, row + padded, 0.0f);
  }
  float InverseNorm(float squares) const {
    if (config_.fused_norm) return 1.0f / std::sqrt(squares + 1e-6f);
    return 1.0f / std::max(std::sqrt(squares), 1e-12f);
  }

  // [T, H·E] = (norm(o) + (Σ r ∘ k ∘ r_k) v) ∘ gate. Overwrites o, k and the gate.
  FloatMatrix NormAndGate(const LayerStep& step, FloatMatrix o, const Beside& beside) const {
    const HeadShape& shape = config_.shape;
    const StageTimer timer(step.times, Stage::kNorm);
    const FloatMatrix rows{o.data, o.rows * heads(), shape.value_dim, shape.padded_value()};
    const float eps = static_cast<float>(shape.key_dim) * config_.norm_eps;
    LayerNorm(rows, ones_.data(), zeros_.data(), eps, rows, *step.pool);
    ParallelRows(*step.pool, o.rows, 4 * o.columns, [&](size_t t) {
      for (size_t h = 0; h < heads(); ++h) {
        GateHead(h, Bonus(h, t, beside), o.row(t) + h * shape.padded_value(), beside.v.row(t),
                 beside.gate.row(t));
      }
    });
    return beside.gate;
  }

  // Σ r ∘ k ∘ r_k of one head.
  float Bonus(size_t head, size_t t, const Beside& beside) const {
    const size_t width = config_.shape.key_dim, column = head * config_.shape.padded_key();
    float* k = beside.k.row(t) + column;
    for (size_t i = 0; i < width; ++i) k[i] *= bonus_[head * width + i];
    return OrderedDot(beside.r.row(t) + column, k, width);
  }
  void GateHead(size_t head, float bonus, const float* normed, const float* v, float* gate) const {
    const size_t width = config_.shape.value_dim, first = head * width;
    for (size_t i = 0; i < width; ++i) {
      const float o = normed[i] * norm_weight_[first + i] + norm_bias_[first + i];
      gate[first + i] *= o + bonus * v[first + i];
    }
  }

  // --- on a device -------------------------------------------------------------------------------

  static FloatMatrix EnqueueMap(const DeviceStep& step, const Linear& map, const Operand& x) {
    const FloatMatrix y = step.workspace->Take(x.rows, map.outputs());
    map.Enqueue(*step.device, x, y);
    return y;
  }
  static FloatMatrix EnqueueLowRank(const DeviceStep& step, const LowRankMap& map, const Operand& x,
                                    Activation f) {
    const FloatMatrix low = EnqueueMap(step, map.first, x);
    return EnqueueMap(step, map.second, Gated(step, low, {}, f));
  }

  // v, v¹ and what mixes them. The first layer's values go where later ones find them.
  void EnqueueValues(const DeviceStep& step, const Operand& x, TimeMixCall& call) const {
    RIVULET_CHECK(step.handed_on.columns >= values(), "the step has no place for first values");
    const Projected projected = value_.Enqueue(step, x);
    call.v = projected[kValues];
    call.first_values = step.handed_on;
    call.values = step.handed_on;
    if (config_.first) return;
    call.values = step.workspace->Take(x.rows, values());
    call.share = EnqueueMap(step, share_, Gated(step, projected[kLowRankShare], {}));
  }

  TimeMixCall DeviceCall(const DeviceStep& step) const {
    const auto constant = [&](const AlignedBuffer<float>& numbers) {
      return step.device->Constant({numbers.data(), numbers.size()});
    };
    TimeMixCall call = device_call_;
    call.rows = step.rows;
    call.slots = step.slots;
    call.removed = constant(removed_);
    call.replaced = constant(replaced_);
    call.bonus = constant(bonus_);
    call.norm_weight = constant(norm_weight_);
    call.norm_bias = constant(norm_bias_);
    // The other norm's limit, squared: the two forms differ for keys about as short as it alone.
    call.key_eps = config_.fused_norm ? 1e-6f : 1e-24f;
    call.norm_eps = static_cast<float>(config_.shape.key_dim) * config_.norm_eps;
    return call;
  }

  Rwkv7Config config_;
  StateLayout layout_;
  TokenShift shift_;
  Mixtures mixtures_;  // [hidden] each
  Linear receptance_, key_;
  Projection value_;
  Linear share_;  // V_2; empty in the first layer
  LowRankMap decay_, rate_, gate_;
  AlignedBuffer<float> removed_, replaced_, bonus_;  // k_k, k_a and r_k [H·D]
  SumRecurrence recurrence_;
  AlignedBuffer<float> norm_weight_, norm_bias_;  // [H·E]
  AlignedBuffer<float> ones_, zeros_;             // [E]
  Linear output_;
  TimeMixCall device_call_;  // what is the same in every step, on a device
};

}  // namespace

RecurrenceDeclaration Rwkv7Declaration(const HeadShape& shape) {
  return {
      .shape = shape,
      .sharing = Sharing::kQueriesAndKeys,
      .decay = {.kind = Decay::kChannel},
      .rows = {{"kb", 2 * shape.padded_key(), {"k", "b"}}, {"vu", 2 * shape.padded_value(), {"v"}}},
      .sums = {{"S", "kb", "vu"}},
      .reads = {{"o", "S", "q"}},
      .low_rank = true};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Rwkv7Config& config,
                                                 const MixerSource& source) {
  return std::make_unique<Rwkv7Layer>(WithStateDType(config, source), source);
}

}  // namespace rivulet
