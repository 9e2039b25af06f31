// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Feature maps of linear attention, plainly.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/features_operations.h"

namespace rivulet {
namespace {

using fake::Function;

void Softmax(std::vector<float>& x) {
  const float most = *std::max_element(x.begin(), x.end());
  float sum = 0.0f;
  for (float& value : x) sum += value = std::exp(value - most);
  for (float& value : x) value /= sum;
}

// [relu(x), relu(-x)] times itself rolled by one, two, three and four.
std::vector<float> Dpfp(const float* x, uint32_t width) {
  std::vector<float> u, y;
  for (uint32_t i = 0; i < width; ++i) u.push_back(std::max(x[i], 0.0f));
  for (uint32_t i = 0; i < width; ++i) u.push_back(std::max(-x[i], 0.0f));
  for (size_t roll = 1; roll <= 4; ++roll) {
    for (size_t i = 0; i < u.size(); ++i) y.push_back(u[i] * u[(i + u.size() - roll) % u.size()]);
  }
  return y;
}

// R^{-1/2} e^{m - |scale · x|²/2}.
void RandomExp(const FeaturesCall& call, const float* x, std::vector<float>& m) {
  float squares = 0.0f;
  for (uint32_t i = 0; i < call.width; ++i) {
    squares += call.input_scale * x[i] * call.input_scale * x[i];
  }
  const float ratio = 1.0f / std::sqrt(static_cast<float>(m.size()));
  for (float& value : m) value = std::exp(value - 0.5f * squares) * ratio;
}

// φ of one head, whose trained map is `m`.
std::vector<float> Map(const FeaturesCall& call, const float* x, const float* m) {
  const uint32_t d = call.width;
  if (call.kind == FeatureMapKind::kDpfp) return Dpfp(m, d);
  std::vector<float> y(m, m + call.features);
  for (uint32_t i = 0; i < call.features; ++i) {
    switch (call.kind) {
      case FeatureMapKind::kElementwiseProduct:
        y[i] = m[i] * m[d + i];
        break;
      case FeatureMapKind::kHedgehog:
        y[i] = i < d ? 2.0f * m[i] : -2.0f * m[i - d];
        break;
      case FeatureMapKind::kElu:
        y[i] = Function(Activation::kEluPlusOne, m[i]);
        break;
      case FeatureMapKind::kT2r:
      case FeatureMapKind::kRelu:
        y[i] = std::max(m[i], 0.0f);
        break;
      case FeatureMapKind::kRandomRelu:
        y[i] = std::max(m[i], 0.0f) + call.offset;
        break;
      default:
        break;
    }
  }
  if (call.kind == FeatureMapKind::kHedgehog) Softmax(y);
  if (call.kind == FeatureMapKind::kRandomExp) RandomExp(call, x, y);
  return y;
}

}  // namespace

void FakeDevice::SplitHeads(const SplitHeadsCall& call) {
  Do([=] {
    for (size_t row = 0; row < call.x.rows * call.heads; ++row) {
      const float* x = call.x.row(row / call.heads) + row % call.heads * call.width;
      for (size_t i = 0; i < call.y.columns; ++i) {
        fake::StoreOperand(call.y, row, i, i < call.width ? call.scale * x[i] : 0.0f);
      }
    }
  });
}

void FakeDevice::Features(const FeaturesCall& call) {
  Do([=] {
    for (size_t row = 0; row < call.x.rows * call.heads; ++row) {
      const size_t token = row / call.heads, head = row % call.heads;
      const float* x = call.x.row(token) + head * call.width;
      const std::vector<float> phi =
          Map(call, x, call.mapped.data == nullptr ? x : call.mapped.row(row));
      float sum = 0.0f;
      for (const float value : phi) sum += value;
      const float scale = call.divide_by_sum ? call.scale / (sum + 1e-4f) : call.scale;
      float* y = call.y.row(token) + head * call.padded;
      std::fill_n(y, call.padded, 0.0f);
      for (size_t i = 0; i < phi.size(); ++i) y[i] = phi[i] * scale;
    }
  });
}

}  // namespace rivulet
