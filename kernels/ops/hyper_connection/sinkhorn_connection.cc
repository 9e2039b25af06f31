// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/hyper_connection/sinkhorn_connection.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// Columns of all streams that are in registers or the first cache at a time.
constexpr size_t kColumns = 64;

void DivideRows(float* matrix, size_t n, float eps) {
  for (size_t i = 0; i < n; ++i) {
    float sum = 0;
    for (size_t j = 0; j < n; ++j) sum += matrix[i * n + j];
    for (size_t j = 0; j < n; ++j) matrix[i * n + j] /= sum + eps;
  }
}

void DivideColumns(float* matrix, size_t n, float eps) {
  for (size_t j = 0; j < n; ++j) {
    float sum = 0;
    for (size_t i = 0; i < n; ++i) sum += matrix[i * n + j];
    for (size_t i = 0; i < n; ++i) matrix[i * n + j] /= sum + eps;
  }
}

}  // namespace

SinkhornConnection::SinkhornConnection(const SinkhornForm& form, Linear map,
                                       AlignedBuffer<float> biases,
                                       const std::array<float, 3>& scales)
    : form_(form), map_(std::move(map)), biases_(std::move(biases)), scales_(scales) {
  RIVULET_CHECK(form.streams >= 1 && form.streams <= kMostStreams, "so many streams do not fit");
  RIVULET_CHECK(map_.outputs() == form.weights() && biases_.size() >= form.weights(),
                "not a weight for each use of a stream");
}

// What the map gave for one token to a, b and M.
void SinkhornConnection::Weigh(float* weights) const {
  const size_t n = form_.streams;
  for (size_t i = 0; i < form_.weights(); ++i) {
    weights[i] = scales_[std::min<size_t>(i / n, 2)] * weights[i] + biases_[i];
  }
  Activate(Activation::kSigmoid, weights, weights, 2 * n);
  for (size_t i = 0; i < n; ++i) weights[i] += form_.eps;
  for (size_t i = n; i < 2 * n; ++i) weights[i] *= 2;
  float* const mix = weights + 2 * n;
  for (size_t i = 0; i < n; ++i) Softmax(mix + i * n, mix + i * n, n);
  for (size_t i = 0; i < n * n; ++i) mix[i] += form_.eps;
  DivideColumns(mix, n, form_.eps);
  for (size_t round = 1; round < form_.sinkhorn_rounds; ++round) {
    DivideRows(mix, n, form_.eps);
    DivideColumns(mix, n, form_.eps);
  }
}

FloatMatrix SinkhornConnection::Collapse(ConstFloatMatrix streams, FloatMatrix x,
                                         Workspace& workspace, ThreadPool& pool) const {
  const size_t n = form_.streams, hidden = x.columns;
  const FloatMatrix weights = workspace.Take(x.rows, form_.weights());
  const FloatMatrix normed = workspace.Take(x.rows, n * hidden);
  RmsNorm(streams, nullptr, form_.norm_eps, normed, pool);
  map_.Apply(normed, weights, pool);
  ParallelRows(pool, x.rows, n * hidden, [&](size_t t) {
    Weigh(weights.row(t));
    SumStreams(weights.row(t), 1, streams.row(t), n, hidden, x.row(t), hidden);
  });
  return weights;
}

void SinkhornConnection::Expand(ConstFloatMatrix output, ConstFloatMatrix weights,
                                FloatMatrix streams, ThreadPool& pool) const {
  const size_t n = form_.streams, hidden = output.columns;
  ParallelRows(pool, output.rows, n * n * hidden, [&](size_t t) {
    const float* const out = weights.row(t) + n;
    const float* const mix = out + n;
    float next[kMostStreams][kColumns];
    for (size_t first = 0; first < hidden; first += kColumns) {
      const size_t count = std::min(kColumns, hidden - first);
      const float* const update = output.row(t) + first;
      for (size_t m = 0; m < n; ++m) {
        SumStreams(mix + m, n, streams.row(t) + first, n, hidden, next[m], count);
        for (size_t i = 0; i < count; ++i) next[m][i] += out[m] * update[i];
      }
      for (size_t m = 0; m < n; ++m) {
        std::copy_n(next[m], count, streams.row(t) + m * hidden + first);
      }
    }
  });
}

FloatMatrix SinkhornConnection::EnqueueCollapse(const DeviceStep& step, ConstFloatMatrix streams,
                                                FloatMatrix x) const {
  const Operand normed = EnqueueStreamNorm(step, streams, streams.columns, {}, form_.norm_eps);
  const FloatMatrix weights = step.workspace->Take(x.rows, form_.weights());
  map_.Enqueue(*step.device, normed, weights);
  step.device->CollapseStreams({.form = StreamForm::kSinkhorn,
                                .streams = static_cast<uint32_t>(form_.streams),
                                .x = streams,
                                .weights = weights,
                                .bias = step.device->Constant({biases_.data(), biases_.size()}),
                                .scales = {scales_[0], scales_[1], scales_[2]},
                                .rounds = static_cast<uint32_t>(form_.sinkhorn_rounds),
                                .eps = form_.eps,
                                .y = x});
  return weights;
}

void SinkhornConnection::EnqueueExpand(const DeviceStep& step, ConstFloatMatrix output,
                                       ConstFloatMatrix weights, FloatMatrix streams) const {
  step.device->ExpandStreams({.form = StreamForm::kSinkhorn,
                              .streams = static_cast<uint32_t>(form_.streams),
                              .output = output,
                              .weights = weights,
                              .x = streams});
}

}  // namespace rivulet
