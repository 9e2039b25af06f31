// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/stream_operations.h"

namespace rivulet {
namespace {

using namespace fake;

// Each of n sets of n numbers that lie `step` apart, the sets `next` apart, divided by its
// sum + eps.
void Divide(float* matrix, size_t n, size_t next, size_t step, float eps) {
  for (size_t i = 0; i < n; ++i) {
    float sum = 0.0f;
    for (size_t j = 0; j < n; ++j) sum += matrix[i * next + j * step];
    for (size_t j = 0; j < n; ++j) matrix[i * next + j * step] /= sum + eps;
  }
}

void Weigh(const CollapseStreamsCall& call, float* weights) {
  const size_t n = call.streams;
  for (size_t i = 0; i < (2 + n) * n; ++i) {
    weights[i] = call.scales[std::min<size_t>(i / n, 2)] * weights[i] + call.bias[i];
    if (i < 2 * n) weights[i] = Function(Activation::kSigmoid, weights[i]);
    if (i < n) weights[i] += call.eps;
    if (i >= n && i < 2 * n) weights[i] *= 2.0f;
  }
  float* const mix = weights + 2 * n;
  for (size_t i = 0; i < n; ++i) {
    float* const row = mix + i * n;
    const float top = *std::max_element(row, row + n);
    for (size_t j = 0; j < n; ++j) row[j] = std::exp(row[j] - top);
  }
  Divide(mix, n, n, 1, 0.0f);
  for (size_t i = 0; i < n * n; ++i) mix[i] += call.eps;
  Divide(mix, n, 1, n, call.eps);
  for (uint32_t round = 1; round < call.rounds; ++round) {
    Divide(mix, n, n, 1, call.eps);
    Divide(mix, n, 1, n, call.eps);
  }
}

float Collapsed(const CollapseStreamsCall& call, size_t token, size_t column) {
  const size_t hidden = call.y.columns;
  float sum = 0.0f;
  for (size_t s = 0; s < call.streams; ++s) {
    const size_t at = s * hidden + column;
    if (call.form == StreamForm::kGated) {
      sum += Function(Activation::kSigmoid, call.weights.row(token)[at]) *
             OperandAt(call.normed, token, at);
    } else {
      const bool weighed = call.form == StreamForm::kSinkhorn;
      sum += call.x.row(token)[at] * (weighed ? call.weights.row(token)[s] : 1.0f);
    }
  }
  return call.form == StreamForm::kMean ? sum / static_cast<float>(call.streams) : sum;
}

void Expand(const ExpandStreamsCall& call, size_t token, size_t column) {
  const size_t n = call.streams, hidden = call.output.columns;
  const float* const weights = call.weights.row(token);
  const float output = call.output.row(token)[column];
  float* const x = call.x.row(token) + column;
  std::vector<float> old(n);
  for (size_t s = 0; s < n; ++s) old[s] = x[s * hidden];
  for (size_t m = 0; m < n; ++m) {
    if (call.form == StreamForm::kGated) {
      x[m * hidden] += 2.0f * Function(Activation::kSigmoid, weights[m]) * output;
      continue;
    }
    float next = weights[n + m] * output;
    for (size_t s = 0; s < n; ++s) next += weights[(2 + s) * n + m] * old[s];
    x[m * hidden] = next;
  }
}

}  // namespace

void FakeDevice::CollapseStreams(const CollapseStreamsCall& call) {
  Do([=] {
    for (size_t t = 0; t < call.y.rows; ++t) {
      if (call.form == StreamForm::kSinkhorn) Weigh(call, call.weights.row(t));
      for (size_t i = 0; i < call.y.columns; ++i) call.y.row(t)[i] = Collapsed(call, t, i);
    }
  });
}

void FakeDevice::ExpandStreams(const ExpandStreamsCall& call) {
  Do([=] {
    for (size_t t = 0; t < call.output.rows; ++t) {
      for (size_t i = 0; i < call.output.columns; ++i) Expand(call, t, i);
    }
  });
}

}  // namespace rivulet
