// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Keys and values are never expanded. A head's key is W_K c, so its score is q·(W_K c) =
// (W_Kᵀ q)·c, and its output Σ w W_V c = W_V (Σ w c): the map to keys moves to the query, the one
// to values behind the sum, and what lies between is attention over the latents.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/layer_stages.h"
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
  std::vector<Linear> to_latent;  // W_Kᵀ: [R, N]
  std::vector<Linear> to_value;   // W_V: [V, R]
};

Linear PackTurned(const float* rows, size_t count, size_t columns) {
  AlignedBuffer<float> turned(count * columns);
  for (size_t i = 0; i < turned.size(); ++i) turned[i % columns * count + i / columns] = rows[i];
  return Linear::Pack({{turned.data(), DType::kFloat32, columns}}, count, DType::kFloat32);
}

Expansions TakeExpansions(const LatentAttentionConfig& c, ParameterSource& parameters) {
  const size_t rows = c.key_dim + c.value_dim;
  const AlignedBuffer<float> all =
      parameters.TakeVector("kv_b_proj.weight", {c.heads * rows, c.latent});
  Expansions maps;
  for (size_t h = 0; h < c.heads; ++h) {
    const float* keys = all.data() + h * rows * c.latent;
    const float* values = keys + c.key_dim * c.latent;
    maps.to_latent.push_back(PackTurned(keys, c.key_dim, c.latent));
    maps.to_value.push_back(
        Linear::Pack({{values, DType::kFloat32, c.value_dim}}, c.latent, DType::kFloat32));
  }
  return maps;
}

// to [padded] = scale · (a | b), zeros behind.
void JoinRow(const float* a, size_t a_count, const float* b, size_t b_count, float scale, float* to,
             size_t padded) {
  for (size_t i = 0; i < a_count; ++i) to[i] = scale * a[i];
  for (size_t i = 0; i < b_count; ++i) to[a_count + i] = scale * b[i];
  std::fill(to + a_count + b_count, to + padded, 0.0f);
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
    if (config.query_rank == 0) return;
    query_norm_ = source.parameters.TakeVector("q_a_layernorm.weight", {config.query_rank});
    query_ = TakeLinear("q_b_proj", config.query(), config.query_rank, false, source.parameters);
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const FloatMatrix latent = projected[kLatent];
    RmsNorm(latent, latent_norm_.data(), config_.norm_eps, latent, *step.pool);
    const SoftmaxAttentionInput input{Queries(step, Query(step, projected[kQuery])),
                                      Keys(step, latent, projected[kSharedKey]),
                                      PaddedHeads(step, latent, 1)};
    const FloatMatrix o = step.workspace->Take(x.rows, config_.heads * config_.latent);
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, input, o, *step.workspace, *step.pool);
    }
    ProjectOutput(step, output_, Values(step, o), y);
    return absl::OkStatus();
  }

 private:
  // [T, H·(N + P)]
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
    for (size_t h = 0; h < config_.heads; ++h) {
      expansions_.to_latent[h].Apply(query.Columns(h * width, config_.key_dim),
                                     q.Columns(h * padded, config_.latent), *step.pool);
    }
    ParallelRows(*step.pool, q.rows, q.columns, [&](size_t t) {
      for (size_t h = 0; h < config_.heads; ++h) {
        float* to = q.row(t) + h * padded;
        JoinRow(to, config_.latent, query.row(t) + h * width + config_.key_dim, config_.shared_key,
                config_.scale, to, padded);
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
      JoinRow(latent.row(t), config_.latent, own, config_.shared_key, 1.0f, k.row(t), padded);
    });
    return k;
  }

  // [T, H·V] of the sums of latents o [T, H·R].
  FloatMatrix Values(const LayerStep& step, ConstFloatMatrix o) const {
    const StageTimer timer(step.times, Stage::kProjection);
    const FloatMatrix y = step.workspace->Take(o.rows, config_.heads * config_.value_dim);
    for (size_t h = 0; h < config_.heads; ++h) {
      expansions_.to_value[h].Apply(o.Columns(h * config_.latent, config_.latent),
                                    y.Columns(h * config_.value_dim, config_.value_dim),
                                    *step.pool);
    }
    return y;
  }

  StateLayout layout_;
  LatentAttentionConfig config_;
  Projection projection_;
  AlignedBuffer<float> latent_norm_, query_norm_;
  Linear query_;  // of the low-rank queries
  Expansions expansions_;
  SoftmaxAttentionRecurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LatentAttentionConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<LatentAttentionLayer>(config, source);
}

}  // namespace rivulet
