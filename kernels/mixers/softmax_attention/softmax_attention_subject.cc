// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/softmax_attention/softmax_attention_subject.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/mixers/softmax_attention/softmax_attention_reference.h"

namespace rivulet {
namespace {

// A layer scales queries, so that scores grow no further with the width of heads.
double BoundOf(const SoftmaxAttentionShape& s) {
  return std::min(1.0, 8 / std::sqrt(static_cast<double>(s.head_dim)));
}

// On a device heads of the output are as wide as keys, in columns of padded heads.
std::vector<size_t> OutputsAt(const SoftmaxAttentionShape& s) {
  std::vector<size_t> columns;
  for (size_t i = 0; i < s.heads * s.values(); ++i) {
    columns.push_back(i / s.values() * s.padded() + i % s.values());
  }
  return columns;
}

}  // namespace

AttentionSubject::AttentionSubject(const SoftmaxAttentionShape& s)
    : CoreSubject({{"q", 0, s.heads, s.head_dim, s.padded(), -BoundOf(s), BoundOf(s)},
                   {"k", 0, s.kv_heads, s.head_dim, s.padded(), -1.0, 1.0},
                   {"v", 0, s.kv_heads, s.values(), s.padded_values(), -1.0, 1.0}},
                  s.heads * s.values()),
      recurrence_(s, state_layout) {
  error_bound = s.state_dtype == DType::kFloat32 ? 1e-5 : 2e-2;
  run = [this](const LayerStep& step, const Inputs& inputs, FloatMatrix out) {
    recurrence_.Run(step.segments, step.state, Split(inputs), out, *step.workspace, *step.pool);
  };
  reference = [this](const Inputs& inputs) {
    return SoftmaxAttentionReference(recurrence_.shape(), Split(inputs));
  };
  if (s.padded_values() != s.padded()) return;  // a layer pads them on a device
  device_outputs_at = OutputsAt(s);
  on_device = [this](StateLayout& layout) { return DeviceRunOf(layout); };
}

CoreSubject::DeviceRun AttentionSubject::DeviceRunOf(StateLayout& layout) const {
  const auto recurrence =
      std::make_shared<const SoftmaxAttentionRecurrence>(recurrence_.shape(), layout);
  return [this, recurrence](const DeviceStep& step, ConstFloatMatrix rows) {
    return DeviceOutput{.rows = recurrence->Enqueue(step, Split(ByField(rows)))};
  };
}

std::vector<double> AttentionSubject::ReferenceFrom(ConstFloatMatrix inputs, size_t first) const {
  return SoftmaxAttentionReference(recurrence_.shape(), Split(ByField(inputs)), first);
}

}  // namespace rivulet
