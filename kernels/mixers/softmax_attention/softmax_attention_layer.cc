// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/low_rank_update.h"
#include "kernels/mixers/pool_selection/mean_pool_selection.h"
#include "kernels/mixers/softmax_attention/softmax_attention_config.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// The columns of the one projection of x. With an output gate, each head of q is followed by its
// gate.
enum Part : size_t { kQuery, kKey, kValue };

std::vector<ProjectionPart> Parts(const SoftmaxAttentionConfig& c) {
  const size_t kv = c.kv_heads * c.head_dim;
  return {{"q_proj", c.heads * c.head_dim * (c.output_gate ? 2 : 1), c.qkv_bias},
          {"k_proj", kv, c.qkv_bias},
          {"v_proj", kv, c.qkv_bias}};
}

struct TensorNames {
  const char* q_norm;
  const char* k_norm;
  const char* output;
};

TensorNames NamesOf(AttentionTensors tensors) {
  if (tensors == AttentionTensors::kLfm2) {
    return {"q_layernorm.weight", "k_layernorm.weight", "out_proj"};
  }
  return {"q_norm.weight", "k_norm.weight", "o_proj"};
}

// [head_dim], or [heads * head_dim] for all heads together, or empty without a norm.
AlignedBuffer<float> TakeNorm(const SoftmaxAttentionConfig& config, const char* name, size_t heads,
                              ParameterSource& parameters) {
  if (config.qk_norm == HeadNorm::kNone) return {};
  const size_t normed = config.qk_norm == HeadNorm::kRmsAll ? heads : 1;
  AlignedBuffer<float> weight = parameters.TakeVector(name, {normed * config.head_dim});
  if (config.qk_norm != HeadNorm::kRmsOnePlus) return weight;
  for (size_t i = 0; i < weight.size(); ++i) weight[i] += 1.0f;
  return weight;
}

// Heads of q | gate: q to heads side by side, and σ(gate) as well.
void SplitGate(const float* x, size_t heads, size_t width, float* q, float* gate) {
  for (size_t h = 0; h < heads; ++h) {
    std::memcpy(q + h * width, x + 2 * h * width, width * sizeof(float));
    Activate(Activation::kSigmoid, x + (2 * h + 1) * width, gate + h * width, width);
  }
}

size_t InputsOf(const SoftmaxAttentionConfig& config, const MixerSource& source) {
  return config.inputs == 0 ? source.hidden : config.inputs;
}

LowRankUpdate TakeAdapter(const SoftmaxAttentionConfig& config, const MixerSource& source) {
  if (config.adapter_rank == 0) return {};
  const std::string number = std::to_string(config.adapter);
  const size_t kv = config.kv_heads * config.head_dim;
  return LowRankUpdate({{"linear_q_adapter_list." + number, config.heads * config.head_dim},
                        {"linear_k_adapter_list." + number, kv},
                        {"linear_v_adapter_list." + number, kv}},
                       config.adapter_rank, InputsOf(config, source), source.parameters);
}

class SoftmaxAttentionLayer : public Mixer {
 public:
  SoftmaxAttentionLayer(const SoftmaxAttentionConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_(Parts(config), InputsOf(config, source), source.parameters),
        adapter_(TakeAdapter(config, source)),
        q_norm_(TakeNorm(config, NamesOf(config.tensors).q_norm, config.heads, source.parameters)),
        k_norm_(
            TakeNorm(config, NamesOf(config.tensors).k_norm, config.kv_heads, source.parameters)),
        recurrence_({config.heads, config.kv_heads, config.head_dim, config.window,
                     source.options.KvDType(), 0, config.unseen},
                    layout_),
        output_(TakeLinear(NamesOf(config.tensors).output, source.hidden,
                           config.heads * config.head_dim, config.output_bias, source.parameters)) {
    if (config.rope.has_value()) rope_.emplace(*config.rope);
    if (config.selection.pool == 0) return;
    RIVULET_CHECK(rope_.has_value(), "a selection rotates its keys as the layer does");
    selection_ = std::make_unique<MeanPoolSelection>(config.selection, source, layout_);
  }

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override {
    const uint64_t most = rope_.has_value() ? rope_->most_tokens() : UINT64_MAX;
    return std::min(most, config_.selection.max_tokens());
  }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    adapter_.Apply(step, x, {projected.data(), 3});
    FloatMatrix query = projected[kQuery], gate;
    if (config_.output_gate) std::tie(query, gate) = SplitGates(step, query);
    const FloatMatrix q = Heads(step, query, config_.heads, q_norm_, config_.scale);
    const FloatMatrix k = Heads(step, projected[kKey], config_.kv_heads, k_norm_, 1.0f);
    const FloatMatrix v = PaddedHeads(step, projected[kValue], config_.kv_heads);
    if (rope_.has_value()) Rotate(step, *rope_, recurrence_.shape().padded(), q, k);
    const FloatMatrix o = step.workspace->Take(x.rows, config_.heads * config_.head_dim);
    ChosenPools chosen;
    if (selection_) chosen = {config_.selection.pool, selection_->Choose(step, *rope_, x)};
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, {q, k, v, chosen}, o, *step.workspace, *step.pool);
    }
    if (config_.output_gate) Multiply(o, gate, *step.pool);
    ProjectOutput(step, output_, o, y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    adapter_.Enqueue(step, x, {projected.data(), 3});
    NormAllHeads(step, q_norm_, projected[kQuery]);
    NormAllHeads(step, k_norm_, projected[kKey]);
    RowPreparation rows(step, {});
    ConstFloatMatrix query = projected[kQuery], gate;
    size_t query_stride = 0;
    if (config_.output_gate) {  // heads of q | gate
      const size_t width = config_.heads * config_.head_dim;
      query_stride = 2 * config_.head_dim;
      query = projected[kQuery].Columns(0, width);
      gate = GateOnDevice(rows, projected[kQuery].Columns(config_.head_dim, width));
    }
    // Side by side, so that they are rotated together.
    const size_t padded = recurrence_.shape().padded();
    const FloatMatrix both =
        step.workspace->Take(x.rows, (config_.heads + config_.kv_heads) * padded);
    const FloatMatrix q = both.Columns(0, config_.heads * padded);
    const FloatMatrix k = both.Columns(config_.heads * padded, config_.kv_heads * padded);
    rows.HeadsInto(query, config_.heads, Prepared(step, q_norm_, config_.scale, query_stride), q);
    rows.HeadsInto(projected[kKey], config_.kv_heads, Prepared(step, k_norm_, 1.0f, 0), k);
    const FloatMatrix v = rows.Heads(projected[kValue], config_.kv_heads);
    rows.Enqueue();
    if (rope_.has_value()) rope_->Enqueue(step, both, padded);
    ChosenPools chosen;
    if (selection_) chosen = {config_.selection.pool, selection_->Enqueue(step, *rope_, x)};
    if (step.state_only) return recurrence_.EnqueueAppend(step, {q, k, v, chosen});
    const Operand o = FinishedRows(step, recurrence_.Enqueue(step, {q, k, v, chosen}), gate);
    output_.Enqueue(*step.device, o, y);
  }
  bool runs_on_device() const override {
    if (!PoolSelectionRecurrence::RunsOnDevice(config_.selection)) return false;
    if (config_.qk_norm != HeadNorm::kRmsAll) return true;
    return !config_.output_gate && q_norm_.size() <= kMostNormedWidth;
  }

 private:
  // q and σ(gate) [T, H*head_dim] of x, whose heads are q | gate.
  std::pair<FloatMatrix, FloatMatrix> SplitGates(const LayerStep& step, ConstFloatMatrix x) const {
    const size_t width = config_.heads * config_.head_dim;
    const FloatMatrix q = step.workspace->Take(x.rows, width);
    const FloatMatrix gate = step.workspace->Take(x.rows, width);
    ParallelRows(*step.pool, x.rows, 4 * width, [&](size_t t) {
      SplitGate(x.row(t), config_.heads, config_.head_dim, q.row(t), gate.row(t));
    });
    return {q, gate};
  }

  // Padded heads of x, each scale · norm(x).
  FloatMatrix Heads(const LayerStep& step, FloatMatrix x, size_t heads,
                    const AlignedBuffer<float>& norm, float scale) const {
    if (config_.qk_norm == HeadNorm::kRmsAll) {
      RmsNorm(x, norm.data(), config_.norm_eps, x, *step.pool);
    } else if (!norm.empty()) {
      const FloatMatrix normed = step.workspace->Take(x.rows, x.columns);
      HeadNormGate(x, heads, config_.head_dim, config_.head_dim, norm.data(), config_.norm_eps, {},
                   normed, *step.pool);
      x = normed;
    }
    return PaddedHeads(step, x, heads, Activation::kIdentity, scale);
  }

  // In place, where the norm is over all heads together.
  void NormAllHeads(const DeviceStep& step, const AlignedBuffer<float>& norm, FloatMatrix x) const {
    if (config_.qk_norm != HeadNorm::kRmsAll) return;
    step.device->AddNorm({.x = x,
                          .weight = step.device->Constant({norm.data(), norm.size()}),
                          .eps = config_.norm_eps,
                          .keeps_normed = true});
  }

  // Each head scale · norm(x).
  Preparation Prepared(const DeviceStep& step, const AlignedBuffer<float>& norm, float scale,
                       size_t head_stride) const {
    Preparation how{.scale = scale, .head_stride = head_stride};
    if (norm.empty() || config_.qk_norm == HeadNorm::kRmsAll) return how;
    how.norm = DeviceHeadNorm::kRms;
    how.norm_weight = step.device->Constant({norm.data(), norm.size()});
    how.norm_eps = config_.norm_eps;
    return how;
  }

  // σ(gate) [T, H*head_dim] of every other head.
  FloatMatrix GateOnDevice(RowPreparation& rows, ConstFloatMatrix gate) const {
    return rows.PackedHeads(gate, config_.heads,
                            {.f = Activation::kSigmoid, .head_stride = 2 * config_.head_dim});
  }

  // The input of the last product: o [T, H*padded], times the gate.
  Operand FinishedRows(const DeviceStep& step, ConstFloatMatrix o, ConstFloatMatrix gate) const {
    constexpr uint32_t kNumbersOfAWarp = 256;
    const size_t columns = config_.heads * config_.head_dim;
    const Operand y = step.workspace->TakeOperand(o.rows, columns);
    step.device->Finish({.o = o,
                         .gate = gate,
                         .heads = static_cast<uint32_t>(config_.heads),
                         .width = static_cast<uint32_t>(config_.head_dim),
                         .padded = static_cast<uint32_t>(recurrence_.shape().padded()),
                         .norm_width = kNumbersOfAWarp,
                         .order = FinishOrder::kGateOnly,
                         .gate_f = Activation::kIdentity,
                         .y = y});
    return y;
  }

  static void Multiply(FloatMatrix o, ConstFloatMatrix gate, ThreadPool& pool) {
    ParallelRows(pool, o.rows, o.columns, [&](size_t t) {
      for (size_t i = 0; i < o.columns; ++i) o.row(t)[i] *= gate.row(t)[i];
    });
  }

  StateLayout layout_;
  SoftmaxAttentionConfig config_;
  Projection projection_;
  LowRankUpdate adapter_;
  AlignedBuffer<float> q_norm_, k_norm_;  // [head_dim]
  SoftmaxAttentionRecurrence recurrence_;
  Linear output_;
  std::optional<Rope> rope_;
  std::unique_ptr<MeanPoolSelection> selection_;  // null: it sees all tokens
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const SoftmaxAttentionConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<SoftmaxAttentionLayer>(config, source);
}

}  // namespace rivulet
