// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/pool_selection/mean_pool_selection.h"

#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

enum Part : size_t { kQueries, kKey };

std::vector<ProjectionPart> Parts(const PoolSelectionConfig& c) {
  return {{"index_qk_proj", c.heads * c.key_dim}, {"index_qk_proj", c.key_dim}};
}

AlignedBuffer<float> TakeOnePlus(const char* name, size_t count, ParameterSource& parameters) {
  AlignedBuffer<float> weight = parameters.TakeVector(name, {count});
  for (size_t i = 0; i < count; ++i) weight[i] += 1.0f;
  return weight;
}

Projection TakeProjection(const PoolSelectionConfig& config, const MixerSource& source) {
  ParameterSource below = source.parameters.Below("indexer.");
  return {Parts(config), source.hidden, below};
}

}  // namespace

MeanPoolSelection::MeanPoolSelection(const PoolSelectionConfig& config, const MixerSource& source,
                                     StateLayout& layout)
    : config_(config),
      projection_(TakeProjection(config, source)),
      query_norm_(TakeOnePlus("indexer.q_layernorm.weight", config.key_dim, source.parameters)),
      key_norm_(TakeOnePlus("indexer.k_layernorm.weight", config.key_dim, source.parameters)),
      recurrence_(config, {}, layout) {}

FloatMatrix MeanPoolSelection::Choose(const LayerStep& step, const Rope& rope,
                                      ConstFloatMatrix x) const {
  const size_t width = config_.key_dim;
  const Projected projected = projection_.Apply(step, x);
  const FloatMatrix normed = step.workspace->Take(x.rows, config_.heads * width);
  HeadNormGate(projected[kQueries], config_.heads, width, width, query_norm_.data(),
               config_.norm_eps, {}, normed, *step.pool);
  const FloatMatrix q = PaddedHeads(step, normed, config_.heads);
  const RopeAngles angles = rope.Angles(step.segments, x.rows, *step.workspace, *step.pool);
  ApplyRope(angles, q, config_.heads, config_.padded(), *step.pool);
  const FloatMatrix chosen = step.workspace->Take(x.rows, config_.columns());
  const auto finish = [&](std::span<const Segment> pools, FloatMatrix keys) {
    const FloatMatrix own = keys.Columns(0, width);
    RmsNorm(own, key_norm_.data(), config_.norm_eps, own, *step.pool);
    ApplyRope(rope.Angles(pools, keys.rows, *step.workspace, *step.pool), keys, 1, config_.padded(),
              *step.pool);
  };
  recurrence_.Run(step, {q, PaddedHeads(step, projected[kKey], 1)}, chosen, finish);
  return chosen;
}

FloatMatrix MeanPoolSelection::Enqueue(const DeviceStep& step, const Rope& rope,
                                       const Operand& x) const {
  const auto constant = [&](const AlignedBuffer<float>& numbers) {
    return step.device->Constant({numbers.data(), numbers.size()});
  };
  const Projected projected = projection_.Enqueue(step, x);
  RowPreparation rows(step, {});
  const FloatMatrix q = rows.Heads(projected[kQueries], config_.heads,
                                   {.norm = DeviceHeadNorm::kRms,
                                    .norm_weight = constant(query_norm_),
                                    .norm_eps = config_.norm_eps});
  rows.Enqueue();
  rope.Enqueue(step, q, config_.padded());
  const FloatMatrix chosen = step.workspace->Take(x.rows, config_.columns());
  recurrence_.Enqueue(step,
                      {.q = q,
                       .head_stride = config_.padded(),
                       .k = projected[kKey],
                       .norm = {key_norm_.data(), key_norm_.size()},
                       .rope = &rope},
                      chosen);
  return chosen;
}

}  // namespace rivulet
