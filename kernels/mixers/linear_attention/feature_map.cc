// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/feature_map.h"

#include <algorithm>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/heads/heads.h"

namespace rivulet {
namespace {

constexpr size_t kDpfpRolls = 4;
constexpr float kSumEps = 1e-4f;

// The trained linear maps of φ as one, or none.
std::vector<LinearPart> Parts(FeatureMapKind kind, size_t width, const std::string& prefix) {
  switch (kind) {
    case FeatureMapKind::kElementwiseProduct:
      return {{prefix + ".layer1.weight", width, prefix + ".layer1.bias"},
              {prefix + ".layer2.weight", width, prefix + ".layer2.bias"}};
    case FeatureMapKind::kHedgehog:
      return {{prefix + ".layer.weight", width, prefix + ".layer.bias"}};
    case FeatureMapKind::kT2r:
      return {{prefix + ".layer.weight", width, ""}};
    default:
      return {};
  }
}

// y [8d] = [u ∘ roll_1(u), ..., u ∘ roll_4(u)], u = [relu(x), relu(-x)], roll_j(u)_i = u_{i-j}.
void Dpfp(const float* x, size_t width, float* y) {
  const size_t n = 2 * width;
  const auto u = [&](size_t i) {
    return i < width ? std::max(x[i], 0.0f) : std::max(-x[i - width], 0.0f);
  };
  for (size_t roll = 1; roll <= kDpfpRolls; ++roll) {
    for (size_t i = 0; i < n; ++i) *y++ = u(i) * u((i + n * roll - roll) % n);
  }
}

// y = softmax([2x, -2x]).
void Hedgehog(const float* x, size_t width, float* y) {
  for (size_t i = 0; i < width; ++i) {
    y[i] = 2.0f * x[i];
    y[width + i] = -2.0f * x[i];
  }
  Softmax(y, y, 2 * width);
}

void ElementwiseProduct(const float* x, size_t width, float* y) {
  for (size_t i = 0; i < width; ++i) y[i] = x[i] * x[width + i];
}

}  // namespace

size_t FeatureCount(FeatureMapKind kind, size_t width) {
  if (kind == FeatureMapKind::kHedgehog) return 2 * width;
  if (kind == FeatureMapKind::kDpfp) return 2 * kDpfpRolls * width;
  return width;
}

bool NonNegativeFeatures(FeatureMapKind kind) {
  return kind != FeatureMapKind::kElementwiseProduct && kind != FeatureMapKind::kIdentity;
}

FeatureMap::FeatureMap(FeatureMapKind kind, size_t width, bool divide_by_sum, float scale,
                       const std::string& prefix, const std::string& tied_prefix,
                       ParameterSource& parameters)
    : kind_(kind), width_(width), divide_by_sum_(divide_by_sum), scale_(scale) {
  std::vector<LinearPart> parts = Parts(kind, width, prefix);
  if (parts.empty()) return;
  if (!tied_prefix.empty() && !parameters.Has(parts[0].name)) {
    parts = Parts(kind, width, tied_prefix);
  }
  layer_ = parameters.TakeLinear(parts, width);
}

// One head of one token. y holds padded R floats.
void FeatureMap::Combine(const float* x, float* y) const {
  const size_t count = features();
  switch (kind_) {
    case FeatureMapKind::kElementwiseProduct:
      ElementwiseProduct(x, width_, y);
      break;
    case FeatureMapKind::kHedgehog:
      Hedgehog(x, width_, y);
      break;
    case FeatureMapKind::kDpfp:
      Dpfp(x, width_, y);
      break;
    case FeatureMapKind::kElu:
      Activate(Activation::kEluPlusOne, x, y, count);
      break;
    case FeatureMapKind::kT2r:
    case FeatureMapKind::kRelu:
      Activate(Activation::kRelu, x, y, count);
      break;
    case FeatureMapKind::kIdentity:
      std::copy_n(x, count, y);
      break;
  }
  float scale = scale_;
  if (divide_by_sum_) {
    float sum = 0.0f;
    for (size_t i = 0; i < count; ++i) sum += y[i];
    scale /= sum + kSumEps;
  }
  for (size_t i = 0; i < count; ++i) y[i] *= scale;
  std::fill(y + count, y + PaddedColumns(count), 0.0f);
}

void FeatureMap::Apply(ConstFloatMatrix x, size_t heads, FloatMatrix y, Workspace& workspace,
                       ThreadPool& pool) const {
  const size_t rows = x.rows * heads;
  const size_t padded = PaddedColumns(features());
  if (layer_.outputs() == 0) {
    ParallelRows(pool, rows, features(), [&](size_t r) {
      const size_t t = r / heads, h = r % heads;
      Combine(x.row(t) + h * width_, y.row(t) + h * padded);
    });
    return;
  }
  // The trained maps are the same for every head: all heads of all tokens are rows of one product.
  const FloatMatrix packed = workspace.Take(rows, width_);
  const FloatMatrix heads_apart{packed.data, x.rows, heads * packed.stride, heads * packed.stride};
  PadHeads(x, heads, width_, Activation::kIdentity, 1.0f, heads_apart, pool);
  const FloatMatrix mapped = workspace.Take(rows, layer_.outputs());
  layer_.Apply(packed, mapped, pool);
  ParallelRows(pool, rows, features(),
               [&](size_t r) { Combine(mapped.row(r), y.row(r / heads) + r % heads * padded); });
}

}  // namespace rivulet
