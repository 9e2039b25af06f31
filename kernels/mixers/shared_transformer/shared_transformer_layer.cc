// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer, for the residual stream s and the embeddings e of its tokens, x = s | e:
//
//   a = attention(rms(x))     m = mlp(rms(a))     y = mamba2(rms(s + linear m))
//   mlp(u) = down(f(gate u) · up u), gate | up = gate_up_proj + adapter
//
// Attention, MLP and their norms are one set of weights for several layers; adapters, `linear` and
// Mamba-2 are each layer's own. Nothing but y is added to the residual stream.
#include <memory>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/base/status.h"
#include "kernels/device/gated.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/low_rank_update.h"
#include "kernels/mixers/shared_transformer/shared_transformer_config.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

LowRankUpdate TakeAdapter(const SharedTransformerConfig& c, size_t hidden,
                          ParameterSource& parameters) {
  if (c.adapter_rank == 0) return {};
  const std::string tensor = "feed_forward.gate_up_proj_adapter_list." + std::to_string(c.adapter);
  return LowRankUpdate({{tensor, 2 * c.intermediate}}, c.adapter_rank, hidden, parameters);
}

// The MLP with its adapter.
class AdaptedMlp {
 public:
  AdaptedMlp(const SharedTransformerConfig& c, size_t hidden, ParameterSource& shared)
      : f_(c.f),
        gate_up_(
            TakeLinear("feed_forward.gate_up_proj", 2 * c.intermediate, hidden, c.bias, shared)),
        down_(TakeLinear("feed_forward.down_proj", hidden, c.intermediate, c.bias, shared)),
        adapter_(TakeAdapter(c, hidden, shared)) {}

  FloatMatrix Apply(const LayerStep& step, ConstFloatMatrix x) const {
    const size_t width = down_.inputs();
    const FloatMatrix both = Project(step, gate_up_, x);
    adapter_.Apply(step, x, {&both, 1});
    ParallelRows(*step.pool, x.rows, width, [&](size_t t) {
      float* row = both.row(t);
      GateMultiply(f_, row, row + width, row, width);
    });
    return Project(step, down_, both.Columns(0, width));
  }

  FloatMatrix Enqueue(const DeviceStep& step, const Operand& x) const {
    const size_t width = down_.inputs();
    const FloatMatrix both = step.workspace->Take(x.rows, gate_up_.outputs());
    gate_up_.Enqueue(*step.device, x, both);
    adapter_.Enqueue(step, x, {&both, 1});
    const FloatMatrix y = step.workspace->Take(x.rows, down_.outputs());
    down_.Enqueue(
        *step.device,
        Gated(step, both.Columns(width, width), both.Columns(0, width), Activation::kIdentity, f_),
        y);
    return y;
  }

 private:
  Activation f_;
  Linear gate_up_, down_;
  LowRankUpdate adapter_;
};

class SharedTransformerLayer : public Mixer {
 public:
  // `own` and `shared` are below the layer's prefix and the shared block's.
  SharedTransformerLayer(const SharedTransformerConfig& config, std::unique_ptr<Mixer> attention,
                         std::unique_ptr<Mixer> mamba, size_t hidden, ParameterSource& own,
                         ParameterSource& shared)
      : eps_(config.norm_eps),
        attention_(std::move(attention)),
        mamba_(std::move(mamba)),
        layout_(mamba_->state_layout().Empty()),
        attention_state_(layout_.Append(attention_->state_layout(), "attention.")),
        mamba_state_(layout_.Append(mamba_->state_layout(), "mamba.")),
        mlp_(config, hidden, shared),
        linear_(TakeLinear("linear", hidden, hidden, false, own)),
        attention_norm_(shared.TakeVector("input_layernorm.weight", {2 * hidden})),
        mlp_norm_(shared.TakeVector("pre_ff_layernorm.weight", {hidden})),
        mamba_norm_(own.TakeVector("mamba_decoder.input_layernorm.weight", {hidden})) {}

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return attention_->max_tokens(); }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const size_t hidden = y.columns;
    LayerStep own = step;
    own.state = attention_state_.Of(step.state);
    const FloatMatrix attended = step.workspace->Take(x.rows, hidden);
    RIVULET_RETURN_IF_ERROR(attention_->Forward(own, Normed(step, x, attention_norm_), attended));
    const FloatMatrix m = mlp_.Apply(step, Normed(step, attended, mlp_norm_));
    const FloatMatrix sum = Project(step, linear_, m);
    AddRows(x.Columns(0, hidden), sum, *step.pool);
    own.state = mamba_state_.Of(step.state);
    return mamba_->Forward(own, Normed(step, sum, mamba_norm_), y);
  }

  void Enqueue(const DeviceStep& step, const Operand& /*x*/, FloatMatrix y) const override {
    const size_t rows = y.rows, hidden = y.columns;
    const FloatMatrix attended = step.workspace->Take(rows, hidden);
    DeviceStep own = step;
    own.slots = attention_state_.Of(step.slots);
    own.output_factor = nullptr;  // its output goes into the MLP as it is
    attention_->Enqueue(own, Normed(step, {.x = step.stream}, attention_norm_), attended);
    const FloatMatrix m = mlp_.Enqueue(step, Normed(step, {.x = attended}, mlp_norm_));
    const FloatMatrix sum = step.workspace->Take(rows, hidden);
    linear_.Enqueue(*step.device, Gated(step, m, {}), sum);
    own.slots = mamba_state_.Of(step.slots);
    own.output_factor = step.output_factor;
    const AddNormCall add{.x = sum, .update = step.stream.Columns(0, hidden)};
    mamba_->Enqueue(own, Normed(step, add, mamba_norm_), y);
  }
  bool runs_on_device() const override {
    return attention_norm_.size() <= kMostNormedWidth && attention_->runs_on_device() &&
           mamba_->runs_on_device();
  }

 private:
  Operand Normed(const DeviceStep& step, AddNormCall call,
                 const AlignedBuffer<float>& weight) const {
    call.weight = step.device->Constant({weight.data(), weight.size()});
    call.eps = eps_;
    call.y = step.workspace->TakeOperand(call.x.rows, call.x.columns);
    step.device->AddNorm(call);
    return call.y;
  }

  FloatMatrix Normed(const LayerStep& step, ConstFloatMatrix x,
                     const AlignedBuffer<float>& weight) const {
    const FloatMatrix y = step.workspace->Take(x.rows, x.columns);
    RmsNorm(x, weight.data(), eps_, y, *step.pool);
    return y;
  }

  float eps_;
  std::unique_ptr<Mixer> attention_, mamba_;
  StateLayout layout_;
  PartOffsets attention_state_, mamba_state_;
  AdaptedMlp mlp_;
  Linear linear_;
  AlignedBuffer<float> attention_norm_, mlp_norm_, mamba_norm_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const SharedTransformerConfig& config,
                                                 const MixerSource& source) {
  ParameterSource& own = source.parameters;
  ParameterSource shared = own.At(config.shared).Sharing();
  ParameterSource attention = own.At(config.shared + "self_attn.").Sharing();
  ParameterSource mamba = own.Below("mamba_decoder.mamba.");
  RIVULET_ASSIGN_OR_RETURN(auto first,
                           MakeLayer(config.attention, {source.hidden, attention, source.options}));
  RIVULET_ASSIGN_OR_RETURN(auto second,
                           MakeLayer(config.mamba, {source.hidden, mamba, source.options}));
  return std::make_unique<SharedTransformerLayer>(config, std::move(first), std::move(second),
                                                  source.hidden, own, shared);
}

}  // namespace rivulet
