// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/feature_map.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/device/device_step.h"
#include "kernels/device/features_operations.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

constexpr size_t kDpfpRolls = 4;
constexpr float kSumEps = 1e-4f;

// The trained linear maps of φ as one, or none.
std::vector<LinearPart> Parts(const FeatureMapConfig& config, const std::string& prefix) {
  const size_t width = config.width;
  switch (config.kind) {
    case FeatureMapKind::kElementwiseProduct:
      return {{prefix + ".layer1.weight", width, prefix + ".layer1.bias"},
              {prefix + ".layer2.weight", width, prefix + ".layer2.bias"}};
    case FeatureMapKind::kHedgehog:
      return {{prefix + ".layer.weight", width, prefix + ".layer.bias"}};
    case FeatureMapKind::kT2r:
      return {{prefix + ".layer.weight", width, ""}};
    case FeatureMapKind::kRandomRelu:
    case FeatureMapKind::kRandomExp:
      return {{prefix + ".projection.weight", config.random_features,
               config.bias ? prefix + ".projection.bias" : ""}};
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

// y = relu(mapped) + offset.
void RandomRelu(const float* mapped, size_t count, float offset, float* y) {
  Activate(Activation::kRelu, mapped, y, count);
  for (size_t i = 0; i < count; ++i) y[i] += offset;
}

// y = count^{-1/2} e^{mapped - |x|²/2}.
void RandomExp(const float* x, size_t width, const float* mapped, size_t count, float* y) {
  const float half_norm = 0.5f * OrderedDot(x, x, width);
  for (size_t i = 0; i < count; ++i) y[i] = mapped[i] - half_norm;
  Activate(Activation::kExp, y, y, count);
  const float ratio = 1.0f / std::sqrt(static_cast<float>(count));
  for (size_t i = 0; i < count; ++i) y[i] *= ratio;
}

void ElementwiseProduct(const float* x, size_t width, float* y) {
  for (size_t i = 0; i < width; ++i) y[i] = x[i] * x[width + i];
}

// The function of each number, if the map is one.
std::optional<Activation> Elementwise(FeatureMapKind kind) {
  switch (kind) {
    case FeatureMapKind::kElu:
      return Activation::kEluPlusOne;
    case FeatureMapKind::kRelu:
      return Activation::kRelu;
    case FeatureMapKind::kIdentity:
      return Activation::kIdentity;
    default:
      return std::nullopt;
  }
}

}  // namespace

size_t FeatureCount(const FeatureMapConfig& config) {
  switch (config.kind) {
    case FeatureMapKind::kHedgehog:
      return 2 * config.width;
    case FeatureMapKind::kDpfp:
      return 2 * kDpfpRolls * config.width;
    case FeatureMapKind::kRandomRelu:
    case FeatureMapKind::kRandomExp:
      return config.random_features;
    default:
      return config.width;
  }
}

bool NonNegativeFeatures(FeatureMapKind kind) {
  return kind != FeatureMapKind::kElementwiseProduct && kind != FeatureMapKind::kIdentity;
}

FeatureMap::FeatureMap(const FeatureMapConfig& config, bool divide_by_sum, float scale,
                       const std::string& prefix, const std::string& tied_prefix,
                       ParameterSource& parameters)
    : config_(config), divide_by_sum_(divide_by_sum), scale_(scale) {
  std::vector<LinearPart> parts = Parts(config, prefix);
  if (parts.empty()) return;
  if (!tied_prefix.empty() && !parameters.Has(parts[0].name)) parts = Parts(config, tied_prefix);
  layer_ = parameters.TakeLinear(parts, config.width);
}

// One head of one token: φ(x) for x [d] whose trained map is `mapped`, or x itself without one.
void FeatureMap::Map(const float* x, const float* mapped, float* y) const {
  const size_t count = features();
  switch (config_.kind) {
    case FeatureMapKind::kElementwiseProduct:
      return ElementwiseProduct(mapped, config_.width, y);
    case FeatureMapKind::kHedgehog:
      return Hedgehog(mapped, config_.width, y);
    case FeatureMapKind::kDpfp:
      return Dpfp(mapped, config_.width, y);
    case FeatureMapKind::kElu:
      return Activate(Activation::kEluPlusOne, mapped, y, count);
    case FeatureMapKind::kT2r:
    case FeatureMapKind::kRelu:
      return Activate(Activation::kRelu, mapped, y, count);
    case FeatureMapKind::kRandomRelu:
      return RandomRelu(mapped, count, config_.offset, y);
    case FeatureMapKind::kRandomExp:
      return RandomExp(x, config_.width, mapped, count, y);
    case FeatureMapKind::kIdentity:
      std::copy_n(mapped, count, y);
  }
}

// y holds padded R floats.
void FeatureMap::Combine(const float* x, const float* mapped, float* y) const {
  const size_t count = features();
  Map(x, mapped, y);
  float scale = scale_;
  if (divide_by_sum_) {
    float sum = 0.0f;
    for (size_t i = 0; i < count; ++i) sum += y[i];
    scale /= sum + kSumEps;
  }
  for (size_t i = 0; i < count; ++i) y[i] *= scale;
  std::fill(y + count, y + PaddedColumns(count), 0.0f);
}

FloatMatrix FeatureMap::Apply(const LayerStep& step, ConstFloatMatrix x, size_t heads) const {
  const size_t rows = x.rows * heads, width = config_.width;
  const size_t padded = PaddedColumns(features());
  ThreadPool& pool = *step.pool;
  const FloatMatrix y = step.workspace->Take(x.rows, heads * padded);
  if (layer_.outputs() == 0) {
    ParallelRows(pool, rows, features(), [&](size_t r) {
      const float* head = x.row(r / heads) + r % heads * width;
      Combine(head, head, y.row(r / heads) + r % heads * padded);
    });
    return y;
  }
  // The trained maps are the same for every head: all heads of all tokens are rows of one product.
  const FloatMatrix packed = step.workspace->Take(rows, width);
  const FloatMatrix heads_apart{packed.data, x.rows, heads * packed.stride, heads * packed.stride};
  PadHeads(x, heads, width, Activation::kIdentity, config_.input_scale, heads_apart, pool);
  const FloatMatrix mapped = step.workspace->Take(rows, layer_.outputs());
  layer_.Apply(packed, mapped, pool);
  ParallelRows(pool, rows, features(), [&](size_t r) {
    Combine(packed.row(r), mapped.row(r), y.row(r / heads) + r % heads * padded);
  });
  return y;
}

// [T·heads, outputs of the trained maps]. All heads of all tokens are rows of one product; prompts
// have as many rows as the library's product has been chosen for, those behind the tokens unused.
ConstFloatMatrix FeatureMap::EnqueueTrained(const DeviceStep& step, ConstFloatMatrix x,
                                            size_t heads) const {
  if (layer_.outputs() == 0) return {};
  const size_t rows = (step.rows.single ? x.rows : ProductRows(x.rows)) * heads;
  const Operand packed = step.workspace->TakeOperand(rows, config_.width);
  step.device->SplitHeads({.x = x,
                           .heads = static_cast<uint32_t>(heads),
                           .width = static_cast<uint32_t>(config_.width),
                           .scale = config_.input_scale,
                           .y = packed});
  const FloatMatrix mapped = step.workspace->Take(rows, layer_.outputs());
  layer_.Enqueue(*step.device, packed, mapped);
  return mapped;
}

FloatMatrix FeatureMap::Enqueue(const DeviceStep& step, RowPreparation& rows, ConstFloatMatrix x,
                                size_t heads) const {
  if (const auto f = Elementwise(config_.kind)) {
    const DeviceHeadNorm norm = divide_by_sum_ ? DeviceHeadNorm::kSumOfPhi : DeviceHeadNorm::kNone;
    return rows.Heads(x, heads, {.f = *f, .scale = scale_, .norm = norm});
  }
  const size_t padded = PaddedColumns(features());
  const FloatMatrix y = step.workspace->Take(x.rows, heads * padded);
  step.device->Features({.kind = config_.kind,
                         .x = x,
                         .mapped = EnqueueTrained(step, x, heads),
                         .heads = static_cast<uint32_t>(heads),
                         .width = static_cast<uint32_t>(config_.width),
                         .features = static_cast<uint32_t>(features()),
                         .padded = static_cast<uint32_t>(padded),
                         .input_scale = config_.input_scale,
                         .offset = config_.offset,
                         .divide_by_sum = divide_by_sum_,
                         .scale = scale_,
                         .y = y});
  return y;
}

}  // namespace rivulet
