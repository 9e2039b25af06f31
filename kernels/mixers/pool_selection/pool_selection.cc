// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/pool_selection/pool_selection.h"

#include <algorithm>

#include "kernels/device/device_operations.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

AlignedBuffer<float> TakePadded(const char* name, size_t rows, size_t columns,
                                ParameterSource& parameters) {
  const AlignedBuffer<float> from = parameters.TakeVector(name, {rows, columns});
  AlignedBuffer<float> to(rows * PaddedColumns(columns));
  for (size_t i = 0; i < rows; ++i) {
    std::copy_n(from.data() + i * columns, columns, to.data() + i * PaddedColumns(columns));
  }
  return to;
}

Linear TakeOfInput(const PoolSelectionConfig& c, size_t hidden, ParameterSource parameters) {
  return parameters.TakeRouter({{"wk.weight", c.key_dim, ""},
                                {"index_kpool_compress_gate", c.key_dim, ""},
                                {"weights_proj.weight", c.heads, ""}},
                               hidden);
}

}  // namespace

PoolSelection::PoolSelection(const PoolSelectionConfig& config, const MixerSource& source,
                             StateLayout& layout)
    : config_(config),
      of_input_(TakeOfInput(config, source.hidden, source.parameters.Below("indexer."))),
      of_queries_(
          source.parameters.Below("indexer.")
              .TakeRouter({{"wq_b.weight", config.heads * config.key_dim, ""}}, config.query_rank)),
      norm_weight_(source.parameters.TakeVector("indexer.k_norm.weight", {config.key_dim})),
      norm_bias_(source.parameters.TakeVector("indexer.k_norm.bias", {config.key_dim})),
      recurrence_(config,
                  TakePadded("indexer.index_kpool_compress_ape", config.pool, config.key_dim,
                             source.parameters),
                  layout) {}

void PoolSelection::Choose(const LayerStep& step, ConstFloatMatrix x, ConstFloatMatrix queries,
                           FloatMatrix chosen) const {
  const size_t width = config_.key_dim;
  const FloatMatrix projected = Project(step, of_input_, x);
  const FloatMatrix key = projected.Columns(0, width);
  LayerNorm(key, norm_weight_.data(), norm_bias_.data(), config_.norm_eps, key, *step.pool);
  const PoolSelectionInput input{
      PaddedHeads(step, Project(step, of_queries_, queries), config_.heads),
      PaddedHeads(step, key, 1), PaddedHeads(step, projected.Columns(width, width), 1),
      projected.Columns(2 * width, config_.heads)};
  recurrence_.Run(step, input, chosen);
}

void PoolSelection::Enqueue(const DeviceStep& step, const Operand& x, const Operand& queries,
                            FloatMatrix chosen) const {
  const size_t width = config_.key_dim;
  const auto map = [&](const Linear& linear, const Operand& of) {
    const FloatMatrix to = step.workspace->Take(of.rows, linear.outputs());
    linear.Enqueue(*step.device, of, to);
    return to;
  };
  const auto constant = [&](const AlignedBuffer<float>& numbers) {
    return step.device->Constant({numbers.data(), numbers.size()});
  };
  const FloatMatrix projected = map(of_input_, x), key = projected.Columns(0, width);
  step.device->AddNorm({.x = key,
                        .weight = constant(norm_weight_),
                        .bias = constant(norm_bias_),
                        .eps = config_.norm_eps,
                        .keeps_normed = true});
  recurrence_.Enqueue(step,
                      {.q = map(of_queries_, queries),
                       .head_stride = width,
                       .k = key,
                       .gates = projected.Columns(width, width),
                       .weights = projected.Columns(2 * width, config_.heads)},
                      chosen);
}

}  // namespace rivulet
