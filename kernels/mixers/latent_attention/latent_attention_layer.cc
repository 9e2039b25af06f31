// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Keys and values are never expanded. A head's key is W_K c, so its score is q·(W_K c) =
// (W_Kᵀ q)·c, and its output Σ w W_V c = W_V (Σ w c): the map to keys moves to the query, the one
// to values behind the sum, and what lies between is attention over the latents.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/device/gated.h"
#include "kernels/mixers/block_linear.h"
#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/pool_selection/pool_selection.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// The columns of the one projection of x.
enum Part : size_t { kQuery, kLatent, kSharedKey };

std::vector<ProjectionPart> Parts(const LatentAttentionConfig& c) {
  const bool low_rank = c.query_rank != 0;
  return {
      {low_rank ? "q_a_proj" : "q_proj", low_rank ? c.query_rank : c.query(), low_rank && c.bias},
      {"kv_a_proj_with_mqa", c.latent, c.bias},
      {"kv_a_proj_with_mqa", c.shared_key, c.bias}};
}

// kv_b_proj, [H · (N + V), R], head by head N rows of keys, then V of values.
struct Expansions {
  BlockLinear to_latent;  // scale · W_Kᵀ: [R, N]
  BlockLinear to_value;   // W_V: [V, R]; on a device [V, padded (P + R)], zeros but for the latent
};

// to [columns, count] = scale · the transposed rows.
void Turn(const float* rows, size_t count, size_t columns, float scale, float* to) {
  for (size_t i = 0; i < count * columns; ++i) {
    to[i % columns * count + i / columns] = scale * rows[i];
  }
}

Expansions TakeExpansions(const LatentAttentionConfig& c, ParameterSource& parameters) {
  const size_t rows = c.key_dim + c.value_dim,
               first = parameters.packs_on_device() ? c.shared_key : 0;
  const size_t inputs =
      parameters.packs_on_device() ? PaddedColumns(c.shared_key + c.latent) : c.latent;
  const AlignedBuffer<float> all =
      parameters.TakeVector("kv_b_proj.weight", {c.heads * rows, c.latent});
  AlignedBuffer<float> keys(c.heads * c.key_dim * c.latent), values(c.heads * c.value_dim * inputs);
  std::vector<LinearSource> to_latent, to_value;
  for (size_t h = 0; h < c.heads; ++h) {
    const float* from = all.data() + h * rows * c.latent;
    float* key = keys.data() + h * c.key_dim * c.latent;
    float* value = values.data() + h * c.value_dim * inputs;
    Turn(from, c.key_dim, c.latent, c.scale, key);
    for (size_t i = 0; i < c.value_dim; ++i) {
      std::copy_n(from + (c.key_dim + i) * c.latent, c.latent, value + i * inputs + first);
    }
    to_latent.push_back({key, DType::kFloat32, c.latent});
    to_value.push_back({value, DType::kFloat32, c.value_dim});
  }
  return {BlockLinear(to_latent, c.key_dim, parameters), BlockLinear(to_value, inputs, parameters)};
}

// to [padded] from `first` on = scale · from, zeros behind.
void FillRow(const float* from, size_t count, float scale, float* to, size_t first, size_t padded) {
  for (size_t i = 0; i < count; ++i) to[first + i] = scale * from[i];
  std::fill(to + first + count, to + padded, 0.0f);
}

class LatentAttentionLayer : public Mixer {
 public:
  LatentAttentionLayer(const LatentAttentionConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_(Parts(config), source.hidden, source.parameters),
        latent_norm_(source.parameters.TakeVector("kv_a_layernorm.weight", {config.latent})),
        expansions_(TakeExpansions(config, source.parameters)),
        recurrence_(config.Absorbed(source.options.KvDType()), layout_),
        output_(TakeLinear("o_proj", source.hidden, config.heads * config.value_dim, config.bias,
                           source.parameters)) {
    const bool chooses = config.selection.pool != 0 && !config.takes_choice;
    if (chooses) selection_ = std::make_unique<PoolSelection>(config.selection, source, layout_);
    if (config.query_rank == 0) return;
    query_norm_ = source.parameters.TakeVector("q_a_layernorm.weight", {config.query_rank});
    query_ = TakeLinear("q_b_proj", config.query(), config.query_rank, false, source.parameters);
  }

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return config_.selection.max_tokens(); }
  size_t handed_on_columns() const override { return config_.selection.columns(); }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const FloatMatrix latent = projected[kLatent];
    RmsNorm(latent, latent_norm_.data(), config_.norm_eps, latent, *step.pool);
    const FloatMatrix query = Query(step, projected[kQuery]);
    const SoftmaxAttentionInput input{
        Queries(step, query), Keys(step, latent, projected[kSharedKey]),
        PaddedHeads(step, latent, 1), Chosen(step, x, projected[kQuery])};
    const FloatMatrix o = step.workspace->Take(x.rows, config_.heads * config_.latent);
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, input, o, *step.workspace, *step.pool);
    }
    ProjectOutput(step, output_, Values(step, o), y);
    return absl::OkStatus();
  }

  // On a device a head's row is shared key | latent, and its values are whole rows.
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    const Operand low = LowQueryOnDevice(step, projected[kQuery]);
    const FloatMatrix query = QueryOnDevice(step, projected[kQuery], low);
    const ChosenPools chosen = ChosenOnDevice(step, x, low);
    const size_t width = config_.key_dim + config_.shared_key, heads = config_.heads;
    const size_t padded = recurrence_.shape().padded();
    const FloatMatrix q = step.workspace->Take(x.rows, heads * padded);
    const FloatMatrix k = step.workspace->Take(x.rows, padded);
    RowPreparation rows(step, {});
    const FloatMatrix own =
        rows.Heads(query.Columns(0, heads * config_.key_dim), heads, {.head_stride = width});
    // Zeros in the place of the latent's part, which comes next.
    rows.HeadsInto({query.data + config_.key_dim, x.rows, heads * config_.shared_key, query.stride},
                   heads, {.scale = config_.scale, .head_stride = width, .padded = padded}, q);
    KeysInto(step, rows, projected, k);
    rows.Enqueue();
    expansions_.to_latent.Enqueue(step, Gated(step, own, {}), own.columns / heads,
                                  q.Columns(config_.shared_key, q.columns - config_.shared_key),
                                  padded);
    const FloatMatrix o = recurrence_.Enqueue(step, {q, k, k, chosen});
    const FloatMatrix values = step.workspace->Take(x.rows, heads * config_.value_dim);
    expansions_.to_value.Enqueue(step, Gated(step, o, {}), padded, values, config_.value_dim);
    output_.Enqueue(*step.device, Gated(step, values, {}), y);
  }
  bool runs_on_device() const override {
    const size_t row = config_.latent + config_.shared_key;
    // Wider heads are not padded by row preparation.
    const bool filled = row <= kMostPreparedWidth || row % 16 == 0;
    return PoolSelectionRecurrence::RunsOnDevice(config_.selection) &&
           recurrence_.runs_on_device() && filled && config_.latent <= kMostPreparedWidth &&
           config_.key_dim <= kMostPreparedWidth && config_.query_rank <= kMostNormedWidth;
  }

 private:
  // The norm of low-rank queries.
  Operand LowQueryOnDevice(const DeviceStep& step, FloatMatrix projected) const {
    if (config_.query_rank == 0) return {};
    const Operand normed = step.workspace->TakeOperand(projected.rows, projected.columns);
    step.device->AddNorm({.x = projected,
                          .weight = step.device->Constant({query_norm_.data(), query_norm_.size()}),
                          .eps = config_.norm_eps,
                          .y = normed});
    return normed;
  }
  FloatMatrix QueryOnDevice(const DeviceStep& step, FloatMatrix projected,
                            const Operand& low) const {
    if (config_.query_rank == 0) return projected;
    const FloatMatrix query = step.workspace->Take(projected.rows, query_.outputs());
    query_.Enqueue(*step.device, low, query);
    return query;
  }
  ChosenPools ChosenOnDevice(const DeviceStep& step, const Operand& x, const Operand& low) const {
    if (config_.selection.pool == 0) return {};
    const size_t columns = handed_on_columns();
    RIVULET_CHECK(step.handed_on.columns >= columns, "the step has no place for a choice");
    const FloatMatrix chosen = step.handed_on.Columns(0, columns);
    if (selection_ != nullptr) selection_->Enqueue(step, x, low, chosen);
    return {config_.selection.pool, chosen};
  }

  // k [T, padded (P + R)] = shared key | norm(latent), on a device.
  void KeysInto(const DeviceStep& step, RowPreparation& rows, const Projected& projected,
                FloatMatrix k) const {
    const size_t shared = config_.shared_key;
    if (shared != 0) {
      rows.HeadsInto(projected[kSharedKey], 1, {.padded = shared}, k.Columns(0, shared));
    }
    const Preparation norm{
        .norm = DeviceHeadNorm::kRms,
        .norm_weight = step.device->Constant({latent_norm_.data(), latent_norm_.size()}),
        .padded = k.columns - shared,
        .norm_eps = config_.norm_eps};
    rows.HeadsInto(projected[kLatent], 1, norm, k.Columns(shared, k.columns - shared));
  }

  // `query` is what Query left of the projected one: its norm.
  ChosenPools Chosen(const LayerStep& step, ConstFloatMatrix x, ConstFloatMatrix query) const {
    if (config_.selection.pool == 0) return {};
    const size_t columns = handed_on_columns();
    RIVULET_CHECK(step.handed_on.columns >= columns, "the step has no place for a choice");
    const FloatMatrix chosen = step.handed_on.Columns(0, columns);
    if (selection_ != nullptr) selection_->Choose(step, x, query, chosen);
    return {config_.selection.pool, chosen};
  }

  // [T, H·(N + P)]; norms a low-rank query in place.
  FloatMatrix Query(const LayerStep& step, FloatMatrix projected) const {
    if (config_.query_rank == 0) return projected;
    RmsNorm(projected, query_norm_.data(), config_.norm_eps, projected, *step.pool);
    return Project(step, query_, projected);
  }

  // [T, H·padded (R + P)]: what meets the latent, and the part that meets the shared key.
  FloatMatrix Queries(const LayerStep& step, ConstFloatMatrix query) const {
    const size_t padded = recurrence_.shape().padded(),
                 width = config_.key_dim + config_.shared_key;
    const FloatMatrix q = step.workspace->Take(query.rows, config_.heads * padded);
    expansions_.to_latent.Apply(step, query, width, q, padded);
    ParallelRows(*step.pool, q.rows, q.columns, [&](size_t t) {
      for (size_t h = 0; h < config_.heads; ++h) {
        FillRow(query.row(t) + h * width + config_.key_dim, config_.shared_key, config_.scale,
                q.row(t) + h * padded, config_.latent, padded);
      }
    });
    return q;
  }

  // [T, padded (R + P)]
  FloatMatrix Keys(const LayerStep& step, ConstFloatMatrix latent, ConstFloatMatrix shared) const {
    const size_t padded = recurrence_.shape().padded();
    const FloatMatrix k = step.workspace->Take(latent.rows, padded);
    ParallelRows(*step.pool, k.rows, padded, [&](size_t t) {
      const float* own = shared.data == nullptr ? nullptr : shared.row(t);
      std::copy_n(latent.row(t), config_.latent, k.row(t));
      FillRow(own, config_.shared_key, 1.0f, k.row(t), config_.latent, padded);
    });
    return k;
  }

  // [T, H·V] of the sums of latents o [T, H·R].
  FloatMatrix Values(const LayerStep& step, ConstFloatMatrix o) const {
    const FloatMatrix y = step.workspace->Take(o.rows, config_.heads * config_.value_dim);
    expansions_.to_value.Apply(step, o, config_.latent, y, config_.value_dim);
    return y;
  }

  StateLayout layout_;
  LatentAttentionConfig config_;
  Projection projection_;
  AlignedBuffer<float> latent_norm_, query_norm_;
  Linear query_;  // of the low-rank queries
  Expansions expansions_;
  SoftmaxAttentionRecurrence recurrence_;
  std::unique_ptr<PoolSelection> selection_;  // null: it has none of its own
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LatentAttentionConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<LatentAttentionLayer>(config, source);
}

}  // namespace rivulet
